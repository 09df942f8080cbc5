// SPDX-License-Identifier: Apache-2.0
#include "support/executors.h"
#include "support/log_capture.h"

#include <millrace/concurrent/future.h>
#include <millrace/concurrent/global_executor.h>

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::QueueExecutor;
using test::ThreadExecutor;
using test::TurnGuard;

// Deeper than any stack: a frame or two for each would need tens of megabytes.
constexpr int kDeep = 200'000;

TEST(FutureListener, GetsTheResultTheFutureOrNothing) {
  Promise<int> promise(immediateExecutor());
  Future<int> future = promise.future();
  std::vector<std::string> calls;
  future.addListener([&](const Result<int>& r) { calls.push_back("r" + std::to_string(*r)); })
      .addListener([&](const Future<int>& f) { calls.push_back("f" + std::to_string(f.get())); })
      .addListener([&] { calls.emplace_back("-"); });
  EXPECT_TRUE(calls.empty());

  promise.setSuccess(4);

  EXPECT_EQ(calls, (std::vector<std::string>{"r4", "f4", "-"}));
}

TEST(FutureListener, IsToldOfFailureAndCancellation) {
  Promise<void> failed(immediateExecutor());
  Promise<void> cancelled(immediateExecutor());
  Error seen;
  bool sawCancel = false;
  failed.future().addListener([&](const Result<void>& r) { seen = r.error(); });
  cancelled.future().addListener([&](const Future<void>& f) { sawCancel = f.isCancelled(); });

  failed.setFailure(Error(Errc::timedOut, "test"));
  cancelled.future().cancel();

  EXPECT_TRUE(seen.is(Errc::timedOut));
  EXPECT_TRUE(sawCancel);
}

TEST(FutureListener, MayOwnWhatCannotBeCopied) {
  Promise<int> promise(immediateExecutor());
  int seen = 0;
  promise.future().addListener(
      [&seen, own = std::make_unique<int>(3)](const Result<int>& r) { seen = *own + *r; });

  promise.setSuccess(1);

  EXPECT_EQ(seen, 4);
}

TEST(FutureListener, RunsOnThePromisesExecutor) {
  QueueExecutor executor;
  Promise<int> promise(executor);
  bool onExecutor = false;
  promise.future().addListener([&] { onExecutor = executor.inEventLoop(); });

  promise.setSuccess(1);
  EXPECT_FALSE(onExecutor);
  executor.run();

  EXPECT_TRUE(onExecutor);
}

TEST(FutureListener, RunsDirectlyWhereItBelongs) {
  QueueExecutor executor;
  Promise<int> promise(executor);
  int calls = 0;
  promise.future().addListener([&] { ++calls; });

  const TurnGuard turn(executor);
  promise.setSuccess(1);

  EXPECT_EQ(calls, 1);
  EXPECT_EQ(executor.posted(), 0U);
}

// behaviour 3.2: 12
TEST(FutureListener, IsCalledHoweverLateItComes) {
  for (int early = 0; early <= 2; ++early) {
    QueueExecutor executor;
    Promise<int> promise(executor);
    Future<int> future = promise.future();
    std::vector<int> order;
    for (int i = 0; i < early; ++i) future.addListener([&order, i] { order.push_back(i); });
    executor.execute([&] {
      promise.setSuccess(1);
      future.addListener([&order] { order.push_back(10); });
    });
    executor.run();
    std::thread([&] { future.addListener([&order] { order.push_back(20); }); }).join();
    executor.run();

    std::vector<int> expected;
    for (int i = 0; i < early; ++i) expected.push_back(i);
    expected.insert(expected.end(), {10, 20});
    EXPECT_EQ(order, expected);
  }
}

// behaviour 3.2: 15-16
TEST(FutureListener, AddedLateOnTheLoopRunsBeforeTheNextTask) {
  QueueExecutor executor;
  Promise<int> promise(executor);
  int state = 0;
  int seen = -1;
  executor.execute([&] {
    promise.setSuccess(1);
    promise.future().addListener([&] { state = 1; });
  });
  executor.execute([&] { seen = state; });

  executor.run();

  EXPECT_EQ(seen, 1);
}

// behaviour 3.2: 13-14
TEST(FutureListener, AddedInsideAListenerIsCalledAfterTheOthers) {
  for (const bool success : {true, false}) {
    Promise<int> promise(immediateExecutor());
    Future<int> future = promise.future();
    std::vector<int> order;
    future.addListener([&] {
      order.push_back(1);
      future.addListener([&] {
        order.push_back(3);
        future.addListener([&] { order.push_back(4); });
      });
    });
    future.addListener([&] { order.push_back(2); });

    if (success) {
      promise.setSuccess(1);
    } else {
      promise.setFailure(Error(Errc::closed, "test"));
    }

    EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  }
}

// behaviour 3.2: 11
TEST(FutureListener, RunsInOrderOfAdditionWhileOthersComplete) {
  ThreadExecutor executor;
  std::vector<std::thread> threads;
  constexpr int kRounds = 5'000;
  std::vector<std::unique_ptr<Promise<int>>> promises;
  for (int i = 0; i < kRounds; ++i) {
    promises.push_back(std::make_unique<Promise<int>>(executor));
  }
  std::vector<std::vector<int>> order(kRounds);  // written on the executor only
  std::atomic<int> at{-1};
  std::thread completer([&] {
    for (int i = 0; i < kRounds; ++i) {
      while (at.load(std::memory_order_acquire) < i) std::this_thread::yield();
      promises[static_cast<std::size_t>(i)]->setSuccess(i);
    }
  });

  for (int i = 0; i < kRounds; ++i) {
    auto& mine = order[static_cast<std::size_t>(i)];
    Future<int> future = promises[static_cast<std::size_t>(i)]->future();
    at.store(i, std::memory_order_release);
    future.addListener([&mine, future] {
      mine.push_back(0);
      future.addListener([&mine] { mine.push_back(9); });
    });
    for (int n = 1; n < 4; ++n) future.addListener([&mine, n] { mine.push_back(n); });
  }
  completer.join();
  Promise<void> flushed(immediateExecutor());
  executor.execute([&] { flushed.setSuccess(); });
  flushed.future().get();

  for (auto& mine : order) {
    ASSERT_EQ(mine.size(), 5U);
    // The inner one comes after those that were there when it was added, wherever that is.
    mine.erase(std::find(mine.begin(), mine.end(), 9));
    ASSERT_EQ(mine, (std::vector<int>{0, 1, 2, 3}));
  }
}

// Completes the next promise from the listener of the one before.
int runChain(Executor& executor, bool startInside) {
  std::vector<Promise<int>> promises;
  for (int i = 0; i < kDeep; ++i) promises.emplace_back(executor);
  std::atomic<int> notified{0};
  for (std::size_t i = 0; i + 1 < promises.size(); ++i) {
    promises[i].future().addListener([&, next = &promises[i + 1]] {
      ++notified;
      next->setSuccess(1);
    });
  }
  const auto start = [&] { promises.front().setSuccess(1); };
  if (startInside) {
    executor.execute(start);
  } else {
    start();
  }
  promises.back().future().await();
  return notified.load();
}

// behaviour 3.2: 7-10, pattern A
TEST(FutureListener, ChainsOfPromisesDoNotGrowTheStack) {
  EXPECT_EQ(runChain(immediateExecutor(), false), kDeep - 1);
  EXPECT_EQ(runChain(immediateExecutor(), true), kDeep - 1);
  ThreadExecutor executor;
  EXPECT_EQ(runChain(executor, false), kDeep - 1);
  EXPECT_EQ(runChain(executor, true), kDeep - 1);
}

struct Nested {
  Executor& executor;
  Promise<void>& done;
  int left = kDeep;

  // Adds a listener inside the listener, each to a promise that is complete already.
  void step() {
    if (--left == 0) {
      done.setSuccess();
      return;
    }
    Promise<int> promise(executor);
    promise.setSuccess(left);
    promise.future().addListener([this] { step(); });
  }
};

// behaviour 3.2: 7-10, pattern B
TEST(FutureListener, ListenersInsideListenersDoNotGrowTheStack) {
  ThreadExecutor thread;
  for (Executor* executor : {&immediateExecutor(), static_cast<Executor*>(&thread)}) {
    for (const bool inside : {false, true}) {
      Promise<void> done(immediateExecutor());
      Nested nested{*executor, done};
      if (inside) {
        executor->execute([&] { nested.step(); });
      } else {
        nested.step();
      }
      done.future().get();
      EXPECT_EQ(nested.left, 0);
    }
  }
}

TEST(FutureListener, NestsDirectlyUpToADepthOfEight) {
  QueueExecutor executor;
  std::vector<Promise<int>> promises;
  for (int i = 0; i < 20; ++i) promises.emplace_back(executor);
  for (std::size_t i = 0; i + 1 < promises.size(); ++i) {
    promises[i].future().addListener([&, next = &promises[i + 1]] { next->setSuccess(1); });
  }

  {
    const TurnGuard turn(executor);
    promises.front().setSuccess(1);
  }

  std::size_t done = 0;
  for (const Promise<int>& each : promises) done += each.future().isDone() ? 1 : 0;
  EXPECT_EQ(done, 9U);  // the first, and eight by nested listeners
  EXPECT_EQ(executor.posted(), 1U);
  executor.run();
  EXPECT_TRUE(promises.back().future().isDone());
}

// I10. behaviour 3.2: a throwing listener is logged and does not stop the others
TEST(FutureListener, ThatThrowsIsLoggedAndTheOthersRun) {
  test::LogCapture log;
  Promise<int> promise(immediateExecutor());
  int calls = 0;
  promise.future().addListener([] { throw std::runtime_error("oops 17"); });
  promise.future().addListener([] { throw 4; });  // NOLINT: whatever users throw
  promise.future().addListener([&] { ++calls; });

  promise.setSuccess(1);

  EXPECT_EQ(calls, 1);
  EXPECT_EQ(log.count(LogLevel::warn), 2U);
  EXPECT_TRUE(log.contains("a listener of a future threw: oops 17"));
}

// behaviour 3.4: 13-14 (ours: it is notified)
TEST(FutureListener, OfAnExecutorThatIsGoneRunsOnTheGlobalExecutor) {
  QueueExecutor executor;
  Promise<int> promise(executor);
  Future<int> future = promise.future();
  std::atomic<int> onGlobal{0};
  future.addListener([&] { onGlobal += globalExecutor().inEventLoop() ? 1 : 0; });
  executor.close();

  promise.setSuccess(1);
  awaitGlobalExecutor();
  EXPECT_EQ(onGlobal.load(), 1);
  future.addListener([&] { onGlobal += globalExecutor().inEventLoop() ? 1 : 0; });  // late, too
  awaitGlobalExecutor();

  EXPECT_EQ(onGlobal.load(), 2);
}

TEST(FutureListener, MayDropTheLastHandle) {
  auto promise = std::make_unique<Promise<int>>(immediateExecutor());
  int calls = 0;
  promise->future().addListener([&] {
    ++calls;
    promise.reset();
  });
  promise->future().addListener([&] { ++calls; });

  promise->trySuccess(1);

  EXPECT_EQ(calls, 2);
  EXPECT_EQ(promise, nullptr);
}

TEST(FutureListener, IsDestroyedWithAStateThatNobodyCompletes) {
  auto token = std::make_shared<int>(1);
  auto state = makeRef<internal::ResultState<int>>(immediateExecutor());
  state->addListener([token] {});
  state->addListener([token] {});
  EXPECT_EQ(token.use_count(), 3);

  state = nullptr;

  EXPECT_EQ(token.use_count(), 1);
}

TEST(FutureListener, IsDestroyedAfterItsCall) {
  auto token = std::make_shared<int>(1);
  Promise<int> promise(immediateExecutor());
  promise.future().addListener([token] {});
  EXPECT_EQ(token.use_count(), 2);

  promise.setSuccess(1);

  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace millrace
