// SPDX-License-Identifier: Apache-2.0
// Promise and Future: values, failures, cancelling, life. Listeners, waiting and coroutines have
// files of their own.
#include "support/executors.h"

#include <millrace/concurrent/future.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>

namespace millrace {
namespace {

using test::QueueExecutor;
using testing::HasSubstr;

Error someError() { return {Errc::closed, "test"}; }

template <class F>
std::string textOfThrown(F&& fn) {
  try {
    fn();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Promise, GivesItsFutureAValue) {
  Promise<std::string> promise(immediateExecutor());
  Future<std::string> future = promise.future();
  EXPECT_FALSE(future.isDone());
  EXPECT_FALSE(future.isSuccess());
  EXPECT_FALSE(future.cause());

  EXPECT_TRUE(promise.trySuccess("hello"));

  EXPECT_TRUE(future.isDone());
  EXPECT_TRUE(future.isSuccess());
  EXPECT_FALSE(future.isCancelled());
  EXPECT_FALSE(future.cause());
  EXPECT_EQ(future.get(), "hello");
  EXPECT_EQ(future.result().value(), "hello");
  EXPECT_EQ(&future.get(), &Future<std::string>(future).result().value());  // one, not copies
}

TEST(Promise, GivesItsFutureAFailure) {
  Promise<int> promise(immediateExecutor());
  Future<int> future = promise.future();

  EXPECT_TRUE(promise.tryFailure(someError()));

  EXPECT_TRUE(future.isDone());
  EXPECT_FALSE(future.isSuccess());
  EXPECT_FALSE(future.isCancelled());
  EXPECT_TRUE(future.cause().is(Errc::closed));
  EXPECT_FALSE(future.result().ok());
  EXPECT_THROW(future.get(), Exception);
  EXPECT_THROW(future.sync(), Exception);
  EXPECT_TRUE(future.await());
}

TEST(Promise, OfNothingSucceedsOrFails) {
  Promise<void> good(immediateExecutor());
  Promise<void> bad(immediateExecutor());

  EXPECT_TRUE(good.trySuccess());
  EXPECT_TRUE(bad.tryComplete(someError()));

  good.future().get();
  good.future().sync();
  EXPECT_TRUE(good.future().isSuccess());
  EXPECT_THROW(bad.future().get(), Exception);
}

TEST(Future, ThrowsWhatTheWorkThrew) {
  Promise<int> promise(immediateExecutor());
  try {
    throw std::out_of_range("index 7");
  } catch (...) {
    promise.setFailure(Error::fromCurrentException("work"));
  }

  EXPECT_THROW(promise.future().get(), std::out_of_range);
  EXPECT_THAT(textOfThrown([&] { promise.future().sync(); }), HasSubstr("index 7"));
  EXPECT_TRUE(promise.future().cause().is(Errc::exception));
}

// behaviour 3.2: trySuccess/tryFailure return false when already done while setSuccess throws
TEST(Promise, IsCompletedOnce) {
  Promise<int> promise(immediateExecutor());
  promise.setSuccess(1);

  EXPECT_FALSE(promise.trySuccess(2));
  EXPECT_FALSE(promise.tryFailure(someError()));
  EXPECT_FALSE(promise.tryComplete(3));
  EXPECT_FALSE(promise.setUncancellable());
  EXPECT_EQ(
      textOfThrown([&] { promise.setSuccess(2); }),
      "setSuccess(): the promise is complete already; use the try form if others may complete "
      "it, too");
  EXPECT_EQ(
      textOfThrown([&] { promise.setFailure(someError()); }),
      "setFailure(): the promise is complete already; use the try form if others may complete "
      "it, too");
  EXPECT_THROW(promise.setSuccess(2), std::logic_error);
  EXPECT_EQ(promise.future().get(), 1);
}

TEST(Promise, IsCompletedByOneOfManyThreads) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 300; ++round) {
    Promise<int> promise(immediateExecutor());
    std::atomic<int> winners{0};
    std::atomic<int> winner{-1};
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        const bool won = i == 0 ? promise.future().cancel() : promise.trySuccess(i);
        if (!won) return;
        winners.fetch_add(1);
        winner.store(i);
      });
    }
    for (std::thread& each : threads) each.join();

    ASSERT_EQ(winners.load(), 1);
    ASSERT_EQ(promise.future().isCancelled(), winner.load() == 0);
    if (winner.load() != 0) {
      ASSERT_EQ(promise.future().get(), winner.load());
    }
  }
}

// behaviour 3.2: 18-19. Values that look like the bits of our word are values like any other.
TEST(Promise, TakesEveryValueAsAValue) {
  for (std::uintptr_t bits = 0; bits < 64; ++bits) {
    Promise<std::uintptr_t> promise(immediateExecutor());
    promise.setSuccess(bits);
    ASSERT_TRUE(promise.future().isSuccess());
    ASSERT_EQ(promise.future().get(), bits);
  }
  Promise<std::nullptr_t> null(immediateExecutor());
  null.setSuccess(nullptr);
  EXPECT_TRUE(null.future().isSuccess());
  Promise<bool> no(immediateExecutor());
  no.setSuccess(false);
  EXPECT_TRUE(no.future().isSuccess());
}

// behaviour 3.2: 4-6
TEST(Future, ThatWasCancelledSaysSo) {
  Promise<int> promise(immediateExecutor());
  Future<int> future = promise.future();

  EXPECT_TRUE(future.cancel());

  EXPECT_TRUE(future.isCancelled());
  EXPECT_TRUE(future.isDone());
  EXPECT_FALSE(future.isSuccess());
  EXPECT_TRUE(future.cause().isCancelled());
  EXPECT_THAT(textOfThrown([&] { future.get(); }), HasSubstr("cancelled"));
  EXPECT_THROW(future.sync(), Exception);
  EXPECT_TRUE(future.await(Deadline::after(std::chrono::hours(1))));
  EXPECT_TRUE(promise.isCancelled());
  EXPECT_FALSE(promise.setUncancellable());
  EXPECT_FALSE(promise.trySuccess(1));
  EXPECT_FALSE(future.cancel());  // only once
}

// behaviour 3.2: 20
TEST(Promise, CannotBeCancelledOnceItSaidSo) {
  Promise<int> promise(immediateExecutor());

  EXPECT_TRUE(promise.setUncancellable());
  EXPECT_TRUE(promise.setUncancellable());

  EXPECT_FALSE(promise.future().isDone());
  EXPECT_FALSE(promise.future().isSuccess());
  EXPECT_FALSE(promise.future().cancel());
  EXPECT_FALSE(promise.isCancelled());
  EXPECT_TRUE(promise.trySuccess(5));
  EXPECT_EQ(promise.future().get(), 5);
}

TEST(Promise, IsEitherCancelledOrUncancellableUnderARace) {
  for (int round = 0; round < 1000; ++round) {
    Promise<int> promise(immediateExecutor());
    std::latch start(2);
    bool cancelled = false;
    std::thread other([&] {
      start.arrive_and_wait();
      cancelled = promise.future().cancel();
    });
    start.arrive_and_wait();
    const bool uncancellable = promise.setUncancellable();
    other.join();

    ASSERT_NE(cancelled, uncancellable);
    ASSERT_EQ(promise.isCancelled(), cancelled);
  }
}

TEST(Promise, ThatIsDroppedFailsItsFuture) {
  Future<int> dropped;
  Future<int> overwritten;
  Future<int> kept;
  {
    Promise<int> promise(immediateExecutor());
    dropped = promise.future();
    Promise<int> moved(immediateExecutor());
    kept = moved.future();
    Promise<int> target(immediateExecutor());
    overwritten = target.future();
    target = std::move(moved);
    EXPECT_TRUE(overwritten.isDone());
    EXPECT_FALSE(kept.isDone());
    EXPECT_FALSE(moved.valid());
    target.setSuccess(3);
  }

  EXPECT_TRUE(dropped.cause().is(Errc::brokenPromise));
  EXPECT_TRUE(overwritten.cause().is(Errc::brokenPromise));
  EXPECT_EQ(kept.get(), 3);
}

TEST(Promise, MovedToItselfStaysAsItWas) {
  Promise<int> promise(immediateExecutor());
  Promise<int>& same = promise;

  promise = std::move(same);

  EXPECT_TRUE(promise.valid());
  EXPECT_FALSE(promise.future().isDone());
}

TEST(Promise, ThatIsEmptySwallowsResults) {
  const Promise<int> nobody;
  const Promise<void> nothing;

  EXPECT_FALSE(nobody.valid());
  EXPECT_FALSE(nobody.trySuccess(1));
  EXPECT_FALSE(nobody.tryFailure(someError()));
  EXPECT_FALSE(nobody.tryComplete(1));
  EXPECT_FALSE(nobody.setUncancellable());
  EXPECT_FALSE(nobody.isCancelled());
  EXPECT_NO_THROW(nobody.setSuccess(1));
  EXPECT_NO_THROW(nobody.setFailure(someError()));
  EXPECT_NO_THROW(nothing.setSuccess());
}

TEST(Future, MayBeMadeComplete) {
  Future<int> good = Future<int>::of(4);
  Future<int> bad = Future<int>::of(someError());
  Future<void> nothing = Future<void>::of({});

  EXPECT_EQ(good.get(), 4);
  EXPECT_TRUE(bad.cause().is(Errc::closed));
  EXPECT_TRUE(nothing.isSuccess());
  EXPECT_FALSE(good.cancel());
  EXPECT_EQ(&good.executor(), &immediateExecutor());
}

TEST(Future, ComparesByIdentity) {
  Promise<int> one(immediateExecutor());
  Promise<int> two(immediateExecutor());

  EXPECT_EQ(one.future(), one.future());
  EXPECT_NE(one.future(), two.future());
  EXPECT_EQ(Future<int>(), Future<int>());
  EXPECT_FALSE(Future<int>().valid());
}

TEST(Future, CarriesValuesThatCannotBeCopied) {
  Promise<std::unique_ptr<int>> promise(immediateExecutor());
  Future<std::unique_ptr<int>> future = promise.future();
  promise.setSuccess(std::make_unique<int>(7));

  EXPECT_EQ(*future.get(), 7);                          // a look at it
  std::unique_ptr<int> mine = std::move(future).get();  // taken out
  EXPECT_EQ(*mine, 7);
  EXPECT_EQ(promise.future().result().value(), nullptr);
}

TEST(Future, CopiesAValueOutOfATemporary) {
  Promise<std::string> promise(immediateExecutor());
  promise.setSuccess("shared");

  std::string mine = promise.future().get();

  EXPECT_EQ(mine, "shared");
  EXPECT_EQ(promise.future().get(), "shared");  // others still have it
}

// behaviour 3.2: 1-3
TEST(Promise, WithoutListenersPostsNothing) {
  QueueExecutor executor;
  Promise<int> succeeded(executor);
  Promise<int> failed(executor);
  Promise<int> cancelled(executor);

  succeeded.setSuccess(1);
  failed.setFailure(someError());
  cancelled.future().cancel();

  EXPECT_EQ(executor.posted(), 0U);
}

TEST(Promise, KeepsItsExecutorAliveAsLongAsItsFuture) {
  QueueExecutor executor;
  {
    Future<int> future;
    {
      Promise<int> promise(executor);
      future = promise.future();
      EXPECT_EQ(executor.users(), 1);
    }
    EXPECT_EQ(executor.users(), 1);
  }
  EXPECT_EQ(executor.users(), 0);
}

TEST(FutureDeathTest, StopsTheProgramWhenItIsAskedForWhatIsNotThere) {
  Promise<int> promise(immediateExecutor());

  EXPECT_DEATH(static_cast<void>(promise.future().result()), "before the future is done");
  EXPECT_DEATH(static_cast<void>(Future<int>().isDone()), "a call on an empty Future");
  EXPECT_DEATH(static_cast<void>(Promise<int>().future()), "future\\(\\) of an empty Promise");
}

}  // namespace
}  // namespace millrace
