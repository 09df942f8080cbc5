// SPDX-License-Identifier: Apache-2.0
// What all EventExecutors share: submit, rejection handlers, waiting for the end.
#include "support/executors.h"

#include <millrace/concurrent/event_executor.h>
#include <millrace/concurrent/rejection.h>

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::FakeEventExecutor;
using test::TurnGuard;

constexpr const char* kFull =
    "execute(): rejected, the executor has as many pending tasks as its capacity allows; raise "
    "maxPendingTasks or use rejectAfterBackOff()";
constexpr const char* kStopped =
    "execute(): rejected, the executor is shut down and takes no more tasks; use tryExecute() "
    "where "
    "that may happen";

std::string textOfRejection(EventExecutor& executor) {
  try {
    executor.execute([] {});
  } catch (const RejectedExecution& e) {
    return e.what();
  }
  return "not rejected";
}

// C067
TEST(Submit, GivesTheResultToAFutureOfTheExecutor) {
  FakeEventExecutor executor;
  Future<int> future = executor.submit([] { return 6 * 7; });
  bool listenerInLoop = false;
  future.addListener([&] { listenerInLoop = executor.inEventLoop(); });
  EXPECT_FALSE(future.isDone());

  executor.run();

  EXPECT_EQ(future.get(), 42);
  EXPECT_TRUE(listenerInLoop);
  EXPECT_EQ(&future.executor(), &executor);
}

// C067
TEST(Submit, GivesWhatTheTaskThrowsToTheFuture) {
  FakeEventExecutor executor;
  Future<int> failed = executor.submit([]() -> int { throw std::out_of_range("index 3"); });
  Future<void> good = executor.submit([] {});

  executor.run();

  EXPECT_THROW(failed.get(), std::out_of_range);
  EXPECT_TRUE(failed.cause().is(Errc::exception));
  EXPECT_EQ(failed.cause().operation(), "submitted task");
  EXPECT_TRUE(good.isSuccess());
}

TEST(Submit, CarriesMoveOnlyWorkAndResults) {
  FakeEventExecutor executor;
  Future<std::unique_ptr<int>> future =
      executor.submit([own = std::make_unique<int>(4)]() mutable { return std::move(own); });

  executor.run();

  EXPECT_EQ(*future.get(), 4);
}

TEST(Submit, DoesNotRunWhatWasCancelledBeforeItsTurn) {
  FakeEventExecutor executor;
  bool ran = false;
  Future<void> future = executor.submit([&] { ran = true; });

  EXPECT_TRUE(future.cancel());
  executor.run();

  EXPECT_FALSE(ran);
  EXPECT_TRUE(future.isCancelled());
}

TEST(Submit, CannotBeCancelledOnceItRuns) {
  FakeEventExecutor executor;
  Future<int> future;
  bool cancelled = true;
  future = executor.submit([&] {
    cancelled = future.cancel();
    return 1;
  });

  executor.run();

  EXPECT_FALSE(cancelled);
  EXPECT_EQ(future.get(), 1);
}

// C060
TEST(RejectByThrowing, SaysThatTheExecutorIsFull) {
  FakeEventExecutor executor;
  executor.capacity = 16;
  for (int i = 0; i < 16; ++i) executor.execute([] {});
  const auto token = std::make_shared<int>(1);

  EXPECT_EQ(textOfRejection(executor), kFull);
  EXPECT_THROW(executor.execute([token] {}), RejectedExecution);
  EXPECT_EQ(token.use_count(), 1);  // the task died here
  EXPECT_FALSE(executor.tryExecute([] {}));
  EXPECT_EQ(executor.run(), 16U);
  EXPECT_NO_THROW(executor.execute([] {}));
}

// C061
TEST(RejectByThrowing, SaysThatTheExecutorIsShutDown) {
  FakeEventExecutor executor;
  static_cast<void>(executor.shutdownGracefully(0s, 0s));

  EXPECT_EQ(textOfRejection(executor), kStopped);
  EXPECT_THROW(static_cast<void>(executor.submit([] {})), RejectedExecution);
}

TEST(RejectAfterBackOff, TriesAgainUntilThereIsRoom) {
  FakeEventExecutor executor;
  executor.capacity = 0;
  executor.rejection = rejectAfterBackOff(5, 0ns);
  executor.onOffer = [&] {
    if (executor.offers == 3) executor.capacity = 1;  // room at the second retry
  };
  bool ran = false;

  executor.execute([&] { ran = true; });

  EXPECT_EQ(executor.offers, 3);
  executor.run();
  EXPECT_TRUE(ran);
}

TEST(RejectAfterBackOff, ThrowsAfterTheLastTry) {
  FakeEventExecutor executor;
  executor.capacity = 0;
  executor.rejection = rejectAfterBackOff(4, 1us);

  EXPECT_EQ(textOfRejection(executor), kFull);

  EXPECT_EQ(executor.offers, 5);
}

TEST(RejectAfterBackOff, ThrowsAtOnceOnTheExecutorsThread) {
  FakeEventExecutor executor;
  executor.capacity = 0;
  executor.rejection = rejectAfterBackOff(1000, 1h);
  const TurnGuard turn(executor);

  EXPECT_EQ(textOfRejection(executor), kFull);

  EXPECT_EQ(executor.offers, 1);
}

TEST(RejectAfterBackOff, GivesUpOnceTheExecutorIsShutDown) {
  FakeEventExecutor executor;
  executor.rejection = rejectAfterBackOff(1000, 1h);
  static_cast<void>(executor.shutdownGracefully(0s, 0s));

  EXPECT_EQ(textOfRejection(executor), kStopped);

  EXPECT_EQ(executor.offers, 1);
}

TEST(RejectAfterBackOff, RefusesNegativeNumbers) {
  EXPECT_THROW(rejectAfterBackOff(-1, 1ms), std::invalid_argument);
  EXPECT_THROW(rejectAfterBackOff(1, -1ms), std::invalid_argument);
  try {
    rejectAfterBackOff(-2, 5ns);
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "rejectAfterBackOff(-2, 5ns): neither may be negative");
  }
}

TEST(EventExecutor, IsNotAwaitedOnItsOwnThread) {
  FakeEventExecutor executor;
  EXPECT_FALSE(executor.awaitTermination(Deadline::past()));
  {
    const TurnGuard turn(executor);
    EXPECT_THROW(executor.awaitTermination(Deadline::never()), BlockingOperation);
  }
  static_cast<void>(executor.shutdownGracefully(0s, 0s));

  EXPECT_TRUE(executor.awaitTermination(Deadline::never()));
}

TEST(ShutdownReport, AddsUp) {
  ShutdownReport sum{1, 2, 3, 4, 5, false};

  sum += ShutdownReport{10, 20, 30, 40, 50, true};
  sum += ShutdownReport{};

  EXPECT_EQ(sum.timersCancelled, 11U);
  EXPECT_EQ(sum.watchesClosed, 22U);
  EXPECT_EQ(sum.channelsCut, 33U);
  EXPECT_EQ(sum.bytesCut, 44U);
  EXPECT_EQ(sum.tasksRunAfterTimeout, 55U);
  EXPECT_TRUE(sum.timedOut);
}

}  // namespace
}  // namespace millrace
