// SPDX-License-Identifier: Apache-2.0
#include "support/executors.h"

#include <millrace/concurrent/combine.h>

#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::QueueExecutor;
using test::TurnGuard;

Error failure(const char* what) { return {Errc::closed, what}; }

// n promises on one executor, and their futures.
template <class T>
struct Sources {
  Sources(std::size_t n, Executor& executor = immediateExecutor()) {
    for (std::size_t i = 0; i < n; ++i) promises.emplace_back(executor);
  }
  std::vector<Future<T>> futures() const {
    std::vector<Future<T>> all;
    for (const Promise<T>& each : promises) all.push_back(each.future());
    return all;
  }
  Promise<T>& operator[](std::size_t i) { return promises[i]; }
  std::vector<Promise<T>> promises;
};

TEST(WhenAll, IsDoneWhenTheLastOneIs) {
  Sources<int> sources(3);
  Future<void> all = whenAll(sources.futures());

  sources[2].setSuccess(1);
  sources[0].setSuccess(1);
  EXPECT_FALSE(all.isDone());
  sources[1].setSuccess(1);

  EXPECT_TRUE(all.isSuccess());
}

TEST(WhenAll, FailsWithTheFirstFailureInTheListWhenAllAreDone) {
  Sources<void> sources(3);
  Future<void> all = whenAll(sources.futures());

  sources[2].setFailure(failure("third"));
  sources[1].setFailure(failure("second"));
  EXPECT_FALSE(all.isDone());
  sources[0].setSuccess();

  EXPECT_EQ(all.cause().operation(), "second");
}

TEST(WhenAll, OfNothingSucceedsAtOnce) {
  EXPECT_TRUE(whenAll(std::vector<Future<int>>{}).isSuccess());
}

TEST(WhenAll, OfFuturesThatAreDoneIsDone) {
  EXPECT_TRUE(whenAll(std::vector{Future<int>::of(1), Future<int>::of(2)}).isSuccess());
  EXPECT_FALSE(whenAll(std::vector{Future<int>::of(1), Future<int>::of(failure("x"))}).isSuccess());
}

TEST(WhenAll, ReportsABrokenPromise) {
  Future<void> all;
  {
    Sources<int> sources(2);
    all = whenAll(sources.futures());
    sources[0].setSuccess(1);
  }
  EXPECT_TRUE(all.cause().is(Errc::brokenPromise));
}

TEST(WhenAll, RunsItsListenersOnTheFirstSourcesExecutorOrTheGivenOne) {
  QueueExecutor first;
  QueueExecutor given;
  Sources<int> sources(2, first);
  Future<void> usual = whenAll(sources.futures());
  Future<void> asked = whenAll(sources.futures(), given);

  EXPECT_EQ(&usual.executor(), &first);
  EXPECT_EQ(&asked.executor(), &given);
  {
    const TurnGuard turn(first);
    EXPECT_THROW(usual.get(), BlockingOperation);  // as for the sources themselves
  }
  usual.cancel();
  asked.cancel();
  first.run();
  given.run();
}

TEST(WhenAll, CancelsItsSourcesWhenItIsCancelled) {
  Sources<int> sources(3);
  sources[0].setSuccess(1);
  EXPECT_TRUE(sources[1].setUncancellable());
  Future<void> all = whenAll(sources.futures());

  EXPECT_TRUE(all.cancel());

  EXPECT_TRUE(all.isCancelled());
  EXPECT_TRUE(sources[0].future().isSuccess());
  EXPECT_FALSE(sources[1].future().isDone());
  EXPECT_TRUE(sources[2].isCancelled());
  sources[1].setSuccess(1);  // nobody is surprised
}

TEST(WhenAll, IsNotCancelledBySourcesThatAre) {
  Sources<int> sources(2);
  Future<void> all = whenAll(sources.futures());

  sources[0].future().cancel();
  EXPECT_FALSE(all.isDone());
  sources[1].setSuccess(1);

  EXPECT_TRUE(all.isCancelled());  // the failure of the first one is handed on
}

TEST(WhenAll, IsDoneOnceWhenManyThreadsComplete) {
  constexpr std::size_t kThreads = 4;
  for (int round = 0; round < 300; ++round) {
    Sources<int> sources(kThreads);
    Future<void> all = whenAll(sources.futures());
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    for (Promise<int>& each : sources.promises) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        each.setSuccess(1);
      });
    }
    all.get();
    for (std::thread& each : threads) each.join();
    ASSERT_TRUE(all.isSuccess());
  }
}

TEST(WhenAny, GivesTheIndexOfTheFirst) {
  Sources<int> sources(3);
  Future<std::size_t> any = whenAny(sources.futures());
  EXPECT_FALSE(any.isDone());

  sources[1].setSuccess(5);
  sources[0].setSuccess(5);

  EXPECT_EQ(any.get(), 1U);
  EXPECT_FALSE(sources[2].future().isDone());  // the others go on
}

TEST(WhenAny, CountsAFailureAsDone) {
  Sources<void> sources(2);
  Future<std::size_t> any = whenAny(sources.futures());

  sources[1].setFailure(failure("x"));

  EXPECT_EQ(any.get(), 1U);
}

TEST(WhenAny, OfSeveralThatAreDoneGivesTheFirstInTheList) {
  QueueExecutor executor;
  Sources<int> sources(3, executor);
  sources[2].setSuccess(1);
  sources[1].setSuccess(1);

  Future<std::size_t> any = whenAny(sources.futures());

  EXPECT_EQ(any.get(), 1U);
  EXPECT_EQ(executor.posted(), 0U);
}

TEST(WhenAny, OfNothingIsRefused) {
  try {
    static_cast<void>(whenAny(std::vector<Future<int>>{}));
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "whenAny() of no futures: it would never be done; give it one");
  }
}

TEST(WhenAny, CancelsItsSourcesWhenItIsCancelled) {
  Sources<int> sources(2);
  Future<std::size_t> any = whenAny(sources.futures());

  EXPECT_TRUE(any.cancel());

  EXPECT_TRUE(sources[0].isCancelled());
  EXPECT_TRUE(sources[1].isCancelled());
}

TEST(WhenAny, LetsGoOfTheOthersOnceItIsDone) {
  QueueExecutor loserExecutor;
  Promise<int> forever(immediateExecutor());
  {
    Promise<int> loser(loserExecutor);
    Promise<int> winner(immediateExecutor());
    Future<std::size_t> any = whenAny(
        std::vector{winner.future(), forever.future(), loser.future()}, immediateExecutor());
    winner.setSuccess(1);
    EXPECT_EQ(any.get(), 0U);
    loser.setSuccess(1);
    loserExecutor.run();
  }
  // `forever` is still open and holds its listener, but not the other sources.
  EXPECT_EQ(loserExecutor.users(), 0);
}

TEST(Cascade, HandsOnValueFailureAndCancellation) {
  Sources<std::string> from(3);
  Sources<std::string> to(3);
  const std::vector<Future<std::string>> results = to.futures();
  for (std::size_t i = 0; i < 3; ++i) cascade(from[i].future(), std::move(to[i]));

  from[0].setSuccess("value");
  from[1].setFailure(failure("x"));
  from[2].future().cancel();

  EXPECT_EQ(results[0].get(), "value");
  EXPECT_EQ(from[0].future().get(), "value");  // copied, not taken away
  EXPECT_EQ(results[1].cause().operation(), "x");
  EXPECT_TRUE(results[2].isCancelled());
}

TEST(Cascade, HandsOnNothingAndWhatCannotBeCopied) {
  Promise<void> done(immediateExecutor());
  Promise<std::unique_ptr<int>> owner(immediateExecutor());
  Future<void> doneToo = done.future();
  Future<std::unique_ptr<int>> owned = owner.future();
  Promise<std::unique_ptr<int>> source(immediateExecutor());
  cascade(Future<void>::of({}), std::move(done));
  cascade(source.future(), std::move(owner));

  source.setSuccess(std::make_unique<int>(2));

  EXPECT_TRUE(doneToo.isSuccess());
  EXPECT_EQ(*owned.get(), 2);
}

// behaviour 3.2, PromiseNotifier: cancelling the target cancels the source
TEST(Cascade, CancelsTheSourceWhenTheTargetIsCancelled) {
  Promise<int> from(immediateExecutor());
  Promise<int> to(immediateExecutor());
  Future<int> target = to.future();
  cascade(from.future(), std::move(to));

  EXPECT_TRUE(target.cancel());

  EXPECT_TRUE(from.isCancelled());
}

TEST(Cascade, IntoNobodyDoesNothing) {
  QueueExecutor executor;
  Promise<int> from(executor);

  cascade(from.future(), Promise<int>());
  from.setSuccess(1);

  EXPECT_EQ(executor.posted(), 0U);
}

}  // namespace
}  // namespace millrace
