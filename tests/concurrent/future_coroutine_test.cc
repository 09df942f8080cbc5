// SPDX-License-Identifier: Apache-2.0
#include "support/co.h"
#include "support/executors.h"

#include <millrace/concurrent/future.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace millrace {
namespace {

using test::CoTask;
using test::QueueExecutor;
using test::ThreadExecutor;
using test::TurnGuard;

template <class F>
concept HasCoAwait = requires(F&& future) {
  std::forward<F>(future).operator co_await();
};

static_assert(HasCoAwait<Future<int>&>);
static_assert(HasCoAwait<const Future<int>&>);
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
static_assert(!HasCoAwait<Future<int>>, "g++ 12 destroys temporaries in co_await twice");
#else
static_assert(HasCoAwait<Future<int>>);
#endif

template <class T, class Out>
CoTask awaitInto(Future<T> future, Out* out) {
  *out = co_await future;
}

CoTask awaitNothing(Future<void> future, bool* done) {
  co_await future;
  *done = true;
}

CoTask awaitFailure(Future<int> future, std::string* text) {
  try {
    co_await future;
  } catch (const std::exception& e) {
    *text = e.what();
  }
}

TEST(FutureInACoroutine, GivesItsValueAtOnceWhenDone) {
  int value = 0;

  awaitInto(Future<int>::of(5), &value);

  EXPECT_EQ(value, 5);
}

TEST(FutureInACoroutine, ResumesOnThePromisesExecutor) {
  QueueExecutor executor;
  Promise<int> promise(executor);
  int value = 0;
  awaitInto(promise.future(), &value);
  EXPECT_EQ(value, 0);

  promise.setSuccess(8);
  EXPECT_EQ(value, 0);
  executor.run();

  EXPECT_EQ(value, 8);
}

TEST(FutureInACoroutine, WaitsForAFutureOfNothing) {
  Promise<void> promise(immediateExecutor());
  bool done = false;
  awaitNothing(promise.future(), &done);
  EXPECT_FALSE(done);

  promise.setSuccess();

  EXPECT_TRUE(done);
}

TEST(FutureInACoroutine, ThrowsWhatWentWrong) {
  std::string failed;
  std::string cancelled;
  Promise<int> promise(immediateExecutor());
  Promise<int> other(immediateExecutor());
  awaitFailure(promise.future(), &failed);
  awaitFailure(other.future(), &cancelled);

  try {
    throw std::out_of_range("index 9");
  } catch (...) {
    promise.setFailure(Error::fromCurrentException("work"));
  }
  other.future().cancel();

  EXPECT_EQ(failed, "index 9");
  EXPECT_NE(cancelled.find("cancelled"), std::string::npos);
}

TEST(FutureInACoroutine, GivesValuesThatCannotBeCopied) {
  Promise<std::unique_ptr<int>> promise(immediateExecutor());
  std::unique_ptr<int> value;
  awaitInto(promise.future(), &value);

  promise.setSuccess(std::make_unique<int>(3));

  ASSERT_NE(value, nullptr);
  EXPECT_EQ(*value, 3);
}

#if !(defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13)
CoTask awaitTemporary(Promise<int>* promise, int* out) { *out = co_await promise->future(); }

TEST(FutureInACoroutine, MayBeATemporaryWhereTheCompilerIsSound) {
  Promise<int> promise(immediateExecutor());
  int value = 0;
  awaitTemporary(&promise, &value);

  promise.setSuccess(2);

  EXPECT_EQ(value, 2);
}
#endif

CoTask awaitMany(Executor& executor, int count, Promise<int> done) {
  int sum = 0;
  for (int i = 0; i < count; ++i) {
    Promise<int> promise(executor);
    Future<int> future = promise.future();
    executor.execute([last = std::move(promise)] { last.setSuccess(1); });
    sum += co_await future;
  }
  done.setSuccess(sum);
}

TEST(FutureInACoroutine, AwaitsManyInARowOnOneStack) {
  constexpr int kMany = 20'000;
  Promise<int> onThread(immediateExecutor());
  Promise<int> here(immediateExecutor());
  Future<int> first = onThread.future();
  Future<int> second = here.future();
  {
    ThreadExecutor executor;
    awaitMany(executor, kMany, std::move(onThread));
    EXPECT_EQ(first.get(), kMany);
  }
  awaitMany(immediateExecutor(), kMany, std::move(here));
  EXPECT_EQ(second.get(), kMany);
}

TEST(FutureInACoroutine, MayEndTheCoroutineThatHoldsTheLastHandle) {
  QueueExecutor executor;
  bool done = false;
  {
    Promise<void> promise(executor);
    awaitNothing(promise.future(), &done);
    const TurnGuard turn(executor);
    promise.setSuccess();
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(executor.users(), 0);
}

}  // namespace
}  // namespace millrace
