// SPDX-License-Identifier: Apache-2.0
// Loops with threads of their own that live by a clock moved by hand.
#include "support/engines.h"

#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>

#include <atomic>

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

class ManualClockOfLoops : public test::EngineTest {
 protected:
  // Waits until each loop of `group` sleeps once more than now.
  static void awaitSleep(EventLoopGroup& group) {
    for (EventLoop& loop : group) {
      const std::uint64_t sleeps = loop.submit([&] { return loop.metrics().sleeps; }).get();
      EXPECT_TRUE(test::eventually([&] { return loop.metrics().sleeps > sleeps; }));
    }
  }

  ManualClock clock_;
};

// C091: rule 6 of the blueprint
TEST_P(ManualClockOfLoops, WakesTheSleepersWhenItMoves) {
  EventLoopGroup group(options().loops(3).clock(clock_));
  expectEngine(group);
  std::vector<ScheduledFuture> timers;
  for (EventLoop& loop : group) timers.push_back(loop.schedule(hours(1), [] {}));
  awaitSleep(group);

  clock_.advance(hours(1));

  for (const ScheduledFuture& timer : timers) timer.future().sync();
  group.shutdownGracefully().sync();
}

// C091 I5: a step that is too small runs nothing; one that passes many deadlines runs all
TEST_P(ManualClockOfLoops, RunsWhatIsDueAndNothingElse) {
  std::atomic<int> ran{0};
  EventLoopGroup group(options().loops(1).clock(clock_));
  EventLoop& loop = *group.begin();
  for (int i = 1; i <= 10; ++i) loop.schedule(minutes(i), [&] { ++ran; });
  awaitSleep(group);

  clock_.advance(minutes(1) - Duration(1));
  loop.submit([] {}).sync();
  EXPECT_EQ(ran, 0);
  clock_.advance(Duration(1));
  EXPECT_TRUE(test::eventually([&] { return ran == 1; }));
  clock_.advance(minutes(5));
  EXPECT_TRUE(test::eventually([&] { return ran == 6; }));
  loop.submit([] {}).sync();
  EXPECT_EQ(ran, 6);

  EXPECT_EQ(group.shutdownGracefully().get().timersCancelled, 4U);
}

// C091: many moves, many timers, no move is missed
TEST_P(ManualClockOfLoops, LosesNoMove) {
  EventLoopGroup group(options().loops(1).clock(clock_));
  EventLoop& loop = *group.begin();

  for (int i = 0; i < 500; ++i) {
    const ScheduledFuture timer = loop.schedule(minutes(1), [] {});
    clock_.advance(minutes(1));
    ASSERT_TRUE(timer.future().await(Deadline::after(minutes(1)))) << "move " << i;
  }
}

// C152 C231: also the quiet period counts by it
TEST_P(ManualClockOfLoops, MovesTheQuietPeriod) {
  EventLoopGroup group(options().loops(1).clock(clock_));
  EventLoop& loop = *group.begin();
  loop.submit([] {}).sync();

  const Future<ShutdownReport> end = group.shutdownGracefully(minutes(1), hours(1));
  EXPECT_TRUE(test::eventually([&] { return loop.isShuttingDown(); }));
  EXPECT_EQ(loop.submit([] { return 3; }).get(), 3);
  EXPECT_FALSE(end.isDone());
  // The task may be noted as the last one only after its future is done.
  EXPECT_TRUE(test::eventually([&] {
    clock_.advance(minutes(1));
    return end.isDone();
  }));
}

INSTANTIATE_TEST_SUITE_P(Engines, ManualClockOfLoops, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

}  // namespace
}  // namespace millrace
