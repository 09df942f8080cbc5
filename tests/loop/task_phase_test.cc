// SPDX-License-Identifier: Apache-2.0
// What one turn runs, in what order, and what it tells about it.
#include "support/scripted_engine.h"

#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::fromOutside;
using test::ScriptedLoop;

// C150
TEST(TaskPhase, TellsExactlyHowMuchRan) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));

  EXPECT_EQ(loop->runNow(), 0U);
  loop->execute([] {});
  EXPECT_EQ(loop->runNow(), 1U);
  EXPECT_EQ(loop->runNow(), 0U);
  loop->executeAfterEventLoopIteration([] {});
  EXPECT_EQ(loop->runNow(), 1U);
  const ScheduledFuture timer = loop->schedule(milliseconds(5), [] {});
  EXPECT_EQ(loop->runNow(), 0U);  // armed, not due
  clock.advance(milliseconds(5));
  EXPECT_EQ(loop->runNow(), 1U);
  loop->schedule(milliseconds(5), [] {}).cancel();
  clock.advance(milliseconds(5));
  EXPECT_EQ(loop->runNow(), 0U);  // cancelled ones do not count
  loop->execute([] { throw 1; });
  EXPECT_EQ(loop->runNow(), 1U);
}

// C070 C150 C154 I2
TEST(TaskPhase, RunsEventsThenTasksThenDueTimersThenTailTasks) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));
  std::string order;
  loop->schedule(milliseconds(2), [&] { order += '2'; });
  loop->schedule(milliseconds(1), [&] { order += '1'; });
  loop->runNow();
  clock.advance(milliseconds(2));
  loop->executeAfterEventLoopIteration([&] { order += 'z'; });
  loop->execute([&] { order += 'A'; });
  loop->execute([&] { order += 'B'; });
  loop.script->onWait = [](Deadline) { return WaitOutcome{1, false}; };
  loop.script->onDispatch = [&] {
    order += 'e';
    return 1;
  };

  EXPECT_EQ(loop->runNow(), 6U);

  EXPECT_EQ(order, "eAB12z");
}

// C154: a timer that has been due for long does not overtake a task that is already queued
TEST(TaskPhase, PutsDueTimersBehindTasksOfTheSameMoment) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));
  std::string order;
  loop->schedule({}, [&] { order += 'T'; });
  loop->execute([&] { order += 'A'; });
  loop->execute([&] { order += 'B'; });

  loop->runNow();
  loop->runNow();

  EXPECT_EQ(order, "ABT");
}

// C151
TEST(TaskPhase, RunsAllDueTimersHoweverSmallTheCapacity) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock).maxPendingTasks(16).ioRatio(100));
  int ran = 0;
  for (int i = 0; i < 100; ++i) loop->schedule(milliseconds(1 + i), [&] { ++ran; });
  loop->runNow();
  clock.advance(seconds(1));

  EXPECT_EQ(loop->runNow(), 100U);

  EXPECT_EQ(ran, 100);
}

// C153 I2
TEST(TaskPhase, LosesNoTimerWhenMoreAreDueThanABatchHolds) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock).maxPendingTasks(16));
  std::vector<int> order;
  loop->execute([&] {
    for (int i = 199; i >= 0; --i) {
      loop->schedule(milliseconds(1 + i), [&, i] { order.push_back(i); });
    }
  });
  loop->runNow();
  clock.advance(seconds(1));
  std::vector<std::size_t> batches;

  while (order.size() < 200) batches.push_back(loop->runNow());

  // The clock's own tick is a task of the framework and takes a place in the first batch.
  EXPECT_EQ(batches, (std::vector<std::size_t>{63, 64, 64, 9}));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// C152: what ran last is what the quiet period counts from
class QuietPeriodByHand : public testing::Test {
 protected:
  void SetUp() override { loop->runNow(); }  // starts it
  void beginShutdown() {
    static_cast<void>(loop->shutdownGracefully(seconds(10), seconds(1000)));
    loop->runNow();
    EXPECT_TRUE(loop->isShuttingDown());
  }
  // Moves the clock and gives the loop a turn; true if that ended it.
  bool endsAfter(Duration step) {
    clock.advance(step);
    loop->runNow();
    return loop->isTerminated();
  }

  ManualClock clock;
  ScriptedLoop loop{LoopOptions().clock(clock)};
};

// C051 C152
TEST_F(QuietPeriodByHand, CountsFromTheStartIfNothingEverRan) {
  clock.advance(seconds(3));

  beginShutdown();

  EXPECT_FALSE(endsAfter(seconds(6)));
  EXPECT_TRUE(endsAfter(seconds(1)));
}

// C152
TEST_F(QuietPeriodByHand, BeginsAnewWithEveryTask) {
  beginShutdown();

  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(endsAfter(seconds(9)));
    loop->execute([] {});
    loop->runNow();
  }

  EXPECT_FALSE(endsAfter(seconds(9)));
  EXPECT_TRUE(endsAfter(seconds(1)));
}

// C152
TEST_F(QuietPeriodByHand, BeginsAnewWithATailTask) {
  beginShutdown();
  EXPECT_FALSE(endsAfter(seconds(9)));

  loop->executeAfterEventLoopIteration([] {});
  loop->runNow();

  EXPECT_FALSE(endsAfter(seconds(9)));
  EXPECT_TRUE(endsAfter(seconds(1)));
}

// C152
TEST_F(QuietPeriodByHand, CountsFromATimerToo) {
  loop->schedule(seconds(8), [] {});
  loop->runNow();
  EXPECT_FALSE(endsAfter(seconds(8)));

  beginShutdown();

  EXPECT_FALSE(endsAfter(seconds(9)));
  EXPECT_TRUE(endsAfter(seconds(1)));
}

// I2: a phase runs what was there when it began
TEST(TaskPhase, LeavesWhatTasksPostToTheNextTurn) {
  ScriptedLoop loop;
  std::string order;
  loop->execute([&] {
    order += 'a';
    loop->execute([&] { order += 'c'; });
    fromOutside([&] { loop->execute([&] { order += 'd'; }); });
    loop->execute([&] { order += 'e'; });
  });
  loop->execute([&] { order += 'b'; });

  EXPECT_EQ(loop->runNow(), 2U);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(loop->runNow(), 3U);

  EXPECT_EQ(order, "abcde");
}

}  // namespace
}  // namespace millrace
