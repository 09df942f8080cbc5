// SPDX-License-Identifier: Apache-2.0
#include "support/executors.h"
#include "support/fault_script.h"

#include <millrace/concurrent/future.h>

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::QueueExecutor;
using test::ThreadExecutor;
using test::TurnGuard;

TEST(FutureWait, GetsTheValueFromAnotherThread) {
  ThreadExecutor executor;
  Promise<int> promise(executor);
  Future<int> future = promise.future();

  executor.execute([&] { promise.setSuccess(42); });

  EXPECT_EQ(future.get(), 42);
  EXPECT_EQ(&future.sync(), &future);
}

TEST(FutureWait, EndsAtTheDeadline) {
  QueueExecutor executor;
  Promise<int> promise(executor);

  EXPECT_FALSE(promise.future().await(Deadline::past()));
  EXPECT_FALSE(promise.future().await(Deadline::after(1ms)));
  EXPECT_FALSE(promise.future().isDone());

  promise.setSuccess(1);
  EXPECT_TRUE(promise.future().await(Deadline::past()));
}

TEST(FutureWait, WakesEveryWaiter) {
  const test::FaultScript script;  // only counts
  Promise<int> promise(immediateExecutor());
  std::atomic<int> sum{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] { sum += promise.future().get(); });
  }
  while (script.count("futex") < 4) std::this_thread::yield();  // they sleep, or are about to

  promise.setSuccess(10);
  for (std::thread& each : waiters) each.join();

  EXPECT_EQ(sum.load(), 40);
}

// behaviour 3.2: 17. The deadline is hours away: a lost signal hangs the test.
TEST(FutureWait, LosesNoSignalInFourThousandRaces) {
  ThreadExecutor executor;
  for (int i = 0; i < 4096; ++i) {
    Promise<int> promise(executor);
    Future<int> future = promise.future();
    executor.execute([done = std::move(promise), i] { done.setSuccess(i); });

    ASSERT_TRUE(future.await(Deadline::after(2h)));
    ASSERT_EQ(future.get(), i);
  }
}

// behaviour 3.2: 17, with waits so short that many time out in the middle of the completion.
TEST(FutureWait, TellsTheTruthWhenTimeoutAndResultMeet) {
  ThreadExecutor executor;
  for (int i = 0; i < 1000; ++i) {
    Promise<int> promise(executor);
    Future<int> future = promise.future();
    executor.execute([done = std::move(promise), i] { done.setSuccess(i); });

    int tries = 0;
    while (!future.await(Deadline::after(Duration(100)))) ++tries;
    ASSERT_TRUE(future.isDone());
    ASSERT_EQ(future.result().value(), i);
  }
}

TEST(FutureWait, GoesOnAfterASignal) {
  test::FaultScript script;
  script.fail("futex", 1, EINTR);
  ThreadExecutor executor;
  Promise<int> promise(executor);
  Future<int> future = promise.future();
  std::thread waiter([&] { EXPECT_EQ(future.get(), 6); });
  while (script.count("futex") < 2) std::this_thread::yield();  // it slept again

  promise.setSuccess(6);
  waiter.join();

  EXPECT_EQ(script.faults(), 1U);
}

// behaviour 3.2: blocking await on the promise's own executor thread raises a deadlock error
TEST(FutureWait, OnTheOwnLoopsThreadThrowsAtOnceAndSaysWhy) {
  QueueExecutor executor;
  Promise<int> promise(executor);
  Future<int> future = promise.future();
  const TurnGuard turn(executor);

  EXPECT_THROW(future.get(), BlockingOperation);
  EXPECT_THROW(future.sync(), BlockingOperation);
  EXPECT_THROW(future.await(Deadline::past()), BlockingOperation);
  try {
    future.get();
  } catch (const BlockingOperation& e) {
    EXPECT_STREQ(
        e.what(),
        "waiting for a future on the thread of its own executor would wait for ever: only this "
        "thread can complete it; use addListener() or co_await instead of get(), sync() or "
        "await(), or run() a loop that you drive by hand");
  }
  promise.setSuccess(2);
  EXPECT_EQ(future.get(), 2);  // nothing to wait for
}

}  // namespace
}  // namespace millrace
