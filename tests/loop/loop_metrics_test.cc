// SPDX-License-Identifier: Apache-2.0
// The figures of a loop: what moves them, and by how much.
#include "support/engines.h"
#include "support/scripted_engine.h"

#include <millrace/base/manual_clock.h>
#include <millrace/loop/metrics.h>

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

namespace millrace {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::fromOutside;
using test::ScriptedLoop;

// Rule 7 of the blueprint
TEST(LoopFigure, CountsTurnsTasksAndFailures) {
  ScriptedLoop loop;
  for (int i = 0; i < 3; ++i) loop->execute([] {});
  loop->execute([] { throw 1; });
  loop->executeAfterEventLoopIteration([] {});
  EXPECT_EQ(loop->metrics().pendingTasks, 5U);

  loop->runNow();
  loop->runNow();

  const LoopMetrics metrics = loop->metrics();
  EXPECT_EQ(metrics.turns, 2U);
  EXPECT_EQ(metrics.tasks, 5U);
  EXPECT_EQ(metrics.failures, 1U);
  EXPECT_EQ(metrics.pendingTasks, 0U);
  EXPECT_EQ(metrics.turnTime.total, 2U);
}

// Rule 7 of the blueprint
TEST(LoopFigure, CountsTimersAndHowLateTheyWere) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));
  loop->schedule(milliseconds(10), [] {});
  loop->schedule(milliseconds(12), [] {});
  loop->schedule(milliseconds(15), [] {});
  loop->runNow();

  clock.advance(milliseconds(10));
  loop->runNow();  // in time
  clock.advance(microseconds(5500));
  loop->runNow();  // 3.5 ms and 0.5 ms late

  const LoopMetrics metrics = loop->metrics();
  EXPECT_EQ(metrics.timers, 3U);
  EXPECT_EQ(metrics.tasks, 3U);
  EXPECT_EQ(metrics.lateTimers, 1U);
  EXPECT_EQ(metrics.timerLateness.total, 3U);
  EXPECT_EQ(metrics.timerLateness.max, 3'500'000U);
  EXPECT_EQ(metrics.timerLateness.counts[0], 1U);
}

// Rule 7 of the blueprint
TEST(LoopFigure, MeasuresTurnsFromTheEndOfTheWait) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));
  loop.script->onWait = [&](Deadline) {
    clock.advance(std::chrono::seconds(5));  // asleep
    return WaitOutcome{1, false};
  };
  loop.script->onDispatch = [&] {
    clock.advance(milliseconds(2));
    return 1;
  };
  loop->execute([&] { clock.advance(milliseconds(5)); });

  loop->runNow();

  const LoopMetrics metrics = loop->metrics();
  EXPECT_EQ(metrics.turnTime.max, 7'000'000U);
  EXPECT_EQ(metrics.busyNanos, 7'000'000U);
  EXPECT_EQ(metrics.ioEvents, 1U);
}

// C101
TEST(LoopFigure, CountsSleepsAndTheWakeupsAmongThem) {
  ScriptedLoop loop;
  loop.turn();
  loop.script->onWait = [&](Deadline) {
    fromOutside([&] { loop->execute([] {}); });
    return WaitOutcome{0, true};
  };
  loop.turn();
  loop.script->onWait = {};
  loop->runNow();  // only looks

  const LoopMetrics metrics = loop->metrics();
  EXPECT_EQ(metrics.sleeps, 2U);
  EXPECT_EQ(metrics.wakeups, 1U);
  EXPECT_EQ(metrics.prematureReturns, 1U);  // the first
  EXPECT_EQ(metrics.taskDelay.total, 1U);   // how long the wakeup took
}

// Rule 7 of the blueprint
TEST(LoopFigure, SamplesTheDelayFromPostToRun) {
  ScriptedLoop loop;

  fromOutside([&] {
    for (int i = 0; i < 1024; ++i) loop->execute([] {});
  });
  while (loop->runNow() != 0) {
  }

  EXPECT_EQ(loop->metrics().taskDelay.total, 4U);
  EXPECT_EQ(loop->metrics().tasks, 1024U);  // the samples are none
}

// Rule 7 of the blueprint
TEST(LoopFigure, OfAGroupIsTheSum) {
  EventLoopGroup group(LoopOptions().loops(3).io(io::parking()));
  for (int i = 0; i < 30; ++i) group.submit([] {}).sync();
  for (EventLoop& loop : group) loop.submit([] { throw 1; }).await();
  group.shutdownGracefully().sync();

  LoopMetrics sum;
  for (const EventLoop& loop : group) {
    EXPECT_EQ(loop.metrics().tasks, 11U);
    sum += loop.metrics();
  }
  const LoopMetrics metrics = group.metrics();
  EXPECT_EQ(metrics.tasks, 33U);
  EXPECT_EQ(metrics.turns, sum.turns);
  EXPECT_EQ(metrics.sleeps, sum.sleeps);
  EXPECT_EQ(metrics.turnTime.total, sum.turnTime.total);
  EXPECT_EQ(metrics.turnTime.max, sum.turnTime.max);
  EXPECT_EQ(metrics.turnTime.counts, sum.turnTime.counts);
}

// Rule 7 of the blueprint: stops nobody, and never goes back
TEST(LoopFigure, CanBeReadByAnyThreadWhileTheLoopWorks) {
  std::atomic<bool> over{false};
  std::latch started(2);
  EventLoopGroup group(1);
  EventLoop& loop = *group.begin();
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      LoopMetrics last;
      started.count_down();
      while (!over) {
        const LoopMetrics now = loop.metrics();
        EXPECT_GE(now.tasks, last.tasks);
        EXPECT_GE(now.turns, last.turns);
        EXPECT_GE(now.sleeps, last.sleeps);
        EXPECT_GE(now.turnTime.total, last.turnTime.total);
        EXPECT_GE(now.busyNanos, last.busyNanos);
        last = now;
      }
    });
  }
  started.wait();

  for (int i = 0; i < 2000; ++i) loop.submit([] {}).sync();
  over = true;
  for (std::thread& reader : readers) reader.join();

  EXPECT_EQ(loop.metrics().tasks, 2000U);
}

TEST(HistogramBuckets, KnowAValueToAQuarter) {
  for (std::uint64_t value = 0; value < (std::uint64_t{1} << 40); value = value * 5 / 4 + 1) {
    const std::size_t bucket = HistogramSnapshot::bucketOf(value);
    const std::uint64_t most = HistogramSnapshot::upperBound(bucket);
    EXPECT_GE(most, value);
    EXPECT_LE(most, value + value / 4);
    EXPECT_EQ(HistogramSnapshot::bucketOf(most), bucket);
    EXPECT_EQ(HistogramSnapshot::bucketOf(most + 1), bucket + 1);
  }
  EXPECT_EQ(HistogramSnapshot::bucketOf(UINT64_MAX), HistogramSnapshot::kBuckets - 1);
}

TEST(HistogramPercentile, IsTheUpperBoundOfItsBucket) {
  internal::Histogram histogram;
  EXPECT_EQ(histogram.snapshot().percentile(0.5), 0U);
  for (int i = 1; i <= 100; ++i) histogram.record(i);
  histogram.record(-5);  // counts as 0

  const HistogramSnapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.total, 101U);
  EXPECT_EQ(snapshot.max, 100U);
  EXPECT_EQ(snapshot.percentile(0), 0U);
  EXPECT_GE(snapshot.percentile(0.5), 50U);
  EXPECT_LE(snapshot.percentile(0.5), 63U);
  EXPECT_EQ(snapshot.percentile(1), 100U);
  EXPECT_EQ(snapshot.percentile(7), 100U);
}

}  // namespace
}  // namespace millrace
