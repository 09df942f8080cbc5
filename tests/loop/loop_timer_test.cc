// SPDX-License-Identifier: Apache-2.0
// Scheduled tasks on a loop: order, time, periods, failure and cancel.
#include "support/engines.h"
#include "support/log_capture.h"
#include "support/scripted_engine.h"

#include <millrace/base/error.h>
#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>
#include <stdexcept>
#include <time.h>

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::fromOutside;
using test::ScriptedLoop;

constexpr std::int64_t kMilli = 1'000'000;

// A hand-driven loop on a clock moved by hand.
class LoopTimer : public testing::Test {
 protected:
  // Moves the clock, then runs until a turn has nothing to do.
  void advance(Duration step) {
    clock.advance(step);
    while (loop->runNow() != 0) {
    }
  }
  std::int64_t now() const { return clock.nanos(); }

  ManualClock clock;
  ScriptedLoop loop{LoopOptions().clock(clock)};
};

// C166 I2
TEST_F(LoopTimer, RunsEqualDeadlinesInTheOrderTheyWereScheduled) {
  std::vector<int> order;
  const auto schedule = [&](int i) {
    loop->schedule(milliseconds(5), [&, i] { order.push_back(i); });
  };
  loop->execute([&] {
    for (int i = 0; i < 100; ++i) schedule(i);
  });
  loop->runNow();
  fromOutside([&] {
    for (int i = 100; i < 200; ++i) schedule(i);
  });
  loop->runNow();

  advance(milliseconds(5));

  ASSERT_EQ(order.size(), 200U);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// I2 I5
TEST_F(LoopTimer, RunsInTheOrderOfDeadlinesAndNeverEarly) {
  std::mt19937 random(7);
  std::vector<std::int64_t> ran;
  loop->execute([&] {
    for (int i = 0; i < 1000; ++i) {
      const std::int64_t deadline = now() + static_cast<std::int64_t>(random() % 1000) * kMilli;
      loop->schedule(Duration(deadline - now()), [&, deadline] {
        EXPECT_GE(now(), deadline);
        ran.push_back(deadline);
      });
    }
  });
  loop->runNow();

  for (int i = 0; i < 100; ++i) advance(milliseconds(10));

  EXPECT_EQ(ran.size(), 1000U);
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
}

// C171: behaviour 3.3, numbers 1 to 4
TEST_F(LoopTimer, TakesANegativeDelayForNow) {
  clock.advance(seconds(1));
  for (const Duration delay : {Duration(0), Duration(-1), Duration::min()}) {
    int ran = 0;
    const ScheduledFuture timer = loop->schedule(delay, [&] { ++ran; });
    EXPECT_EQ(timer.delay(clock), Duration(0));
    EXPECT_EQ(timer.deadline().nanos(), now());

    loop->runNow();
    loop->runNow();
    loop->runNow();

    EXPECT_EQ(ran, 1);
    EXPECT_TRUE(timer.isDone());
  }
}

// C171: behaviour 3.3, numbers 5 to 8
TEST_F(LoopTimer, RefusesPeriodsThatAreNotPositive) {
  const auto nothing = [] {};
  for (const Duration bad : {Duration(0), Duration(-5)}) {
    EXPECT_THROW(loop->scheduleAtFixedRate({}, bad, nothing), std::invalid_argument);
    EXPECT_THROW(loop->scheduleWithFixedDelay({}, bad, nothing), std::invalid_argument);
  }
  EXPECT_THROW(loop->scheduleAtFixedRate(Duration(-5), seconds(1), nothing), std::invalid_argument);
  EXPECT_THROW(loop->scheduleWithFixedDelay(Duration(-5), seconds(1), nothing),
               std::invalid_argument);
  EXPECT_THROW(loop->schedule(seconds(1), {}), std::invalid_argument);
  advance(seconds(10));
  EXPECT_EQ(loop->metrics().timers, 0U);
}

// C167: behaviour 3.3, number 9
TEST_F(LoopTimer, NeverComesTooEarlyForTheLongestDelay) {
  clock.advance(hours(1000));
  int ran = 0;
  const ScheduledFuture longest = loop->schedule(Duration::max(), [&] { ++ran; });
  EXPECT_EQ(longest.deadline(), Deadline::never());
  loop->runNow();
  loop.turn();
  EXPECT_EQ(loop.script->waits.back(), Deadline::never());

  advance(hours(24 * 365 * 200));

  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(longest.cancel());
}

// C167
TEST_F(LoopTimer, StopsInsteadOfWrappingAroundWithTheLongestPeriod) {
  clock.advance(hours(1));
  int ran = 0;
  const ScheduledFuture timer = loop->scheduleAtFixedRate({}, Duration::max(), [&] { ++ran; });

  advance(Duration(0));
  advance(hours(24 * 365));

  EXPECT_EQ(ran, 1);
  EXPECT_EQ(timer.deadline(), Deadline::never());
}

// C169
TEST(LoopTime, IsMonotonic) {
  const auto monotonic = [] {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  const Ref<EventLoop> loop = EventLoop::handDriven();

  const std::int64_t before = monotonic();
  const ScheduledFuture timer = loop->schedule(hours(1), [] {});
  const std::int64_t after = monotonic();

  EXPECT_TRUE(loop->clock().isReal());
  EXPECT_GE(timer.deadline().nanos(), before + Duration(hours(1)).count());
  EXPECT_LE(timer.deadline().nanos(), after + Duration(hours(1)).count());
}

// C170: behaviour 3.4, numbers 6 to 9
TEST_F(LoopTimer, AtFixedRateCatchesUpAfterSlowRuns) {
  std::vector<std::int64_t> begun;
  Duration work = milliseconds(30);
  const ScheduledFuture timer = loop->scheduleAtFixedRate({}, milliseconds(10), [&] {
    begun.push_back(now() / kMilli);
    clock.advance(work);
  });
  loop->runNow();

  for (int i = 0; i < 4; ++i) EXPECT_EQ(loop->runNow(), 1U);  // back to back
  EXPECT_EQ(begun, (std::vector<std::int64_t>{0, 30, 60, 90}));
  EXPECT_EQ(timer.deadline().nanos(), 40 * kMilli);
  work = Duration(0);
  advance(Duration(0));

  EXPECT_EQ(begun.size(), 13U);  // at 120 ms: the runs of 0, 10, … 120
  EXPECT_EQ(timer.deadline().nanos(), 130 * kMilli);
  EXPECT_TRUE(timer.cancel());
  advance(seconds(1));
  EXPECT_EQ(begun.size(), 13U);
}

// C170: behaviour 3.4, numbers 10 and 11
TEST_F(LoopTimer, WithFixedDelayCountsFromTheEndOfTheRun) {
  std::vector<std::int64_t> begun;
  loop->scheduleWithFixedDelay({}, milliseconds(10), [&] {
    begun.push_back(now() / kMilli);
    clock.advance(milliseconds(30));
  });
  loop->runNow();

  for (int i = 0; i < 200; ++i) advance(milliseconds(1));

  ASSERT_GE(begun.size(), 4U);
  EXPECT_EQ(begun[0], 0 + 1);  // the first millisecond that we let pass
  for (std::size_t i = 1; i < begun.size(); ++i) EXPECT_EQ(begun[i] - begun[i - 1], 40);
}

// C172
TEST_F(LoopTimer, ThatRepeatsEndsWithTheFirstThatThrows) {
  const test::LogCapture log;
  int ran = 0;
  const ScheduledFuture timer = loop->scheduleAtFixedRate({}, milliseconds(1), [&] {
    if (++ran == 3) throw std::runtime_error("third time unlucky");
  });
  const Future<void> end = timer.future();
  loop->runNow();

  for (int i = 0; i < 20; ++i) advance(milliseconds(1));

  EXPECT_EQ(ran, 3);
  EXPECT_TRUE(timer.isDone());
  EXPECT_FALSE(timer.isCancelled());
  EXPECT_TRUE(end.cause().is(Errc::exception));
  EXPECT_NE(end.cause().message().find("third time unlucky"), std::string::npos);
  bool healthy = false;
  loop->execute([&] { healthy = true; });
  loop->runNow();
  EXPECT_TRUE(healthy);
}

// C172: a single one, too; who asks later learns it
TEST_F(LoopTimer, ThatThrowsFailsItsFuture) {
  const test::LogCapture log;
  const ScheduledFuture timer = loop->schedule({}, [] { throw std::runtime_error("no"); });
  loop->runNow();
  loop->runNow();

  EXPECT_TRUE(timer.isDone());
  EXPECT_TRUE(timer.future().cause().is(Errc::exception));
  EXPECT_TRUE(log.contains("no"));
}

// I5: due both, in one turn; the first cancels the second
TEST_F(LoopTimer, StaysCancellableUntilItsCall) {
  int ran = 0;
  ScheduledFuture second;
  loop->schedule(milliseconds(1), [&] { EXPECT_TRUE(second.cancel()); });
  second = loop->schedule(milliseconds(1), [&] { ++ran; });
  loop->runNow();

  advance(milliseconds(1));

  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(second.isCancelled());
  EXPECT_TRUE(second.future().isCancelled());
  EXPECT_FALSE(second.cancel());
  EXPECT_EQ(loop->metrics().timers, 1U);
}

// I5: before it has even reached the loop
TEST_F(LoopTimer, NeverRunsIfItWasCancelledBeforeItWasArmed) {
  int ran = 0;
  const ScheduledFuture timer = loop->schedule({}, [&] { ++ran; });
  EXPECT_TRUE(timer.cancel());

  advance(seconds(1));

  EXPECT_EQ(ran, 0);
}

// C170: by itself, in a run
TEST_F(LoopTimer, ThatRepeatsCanCancelItself) {
  int ran = 0;
  bool cancelled = false;
  ScheduledFuture timer;
  timer = loop->scheduleAtFixedRate({}, milliseconds(1), [&] {
    if (++ran == 2) cancelled = timer.cancel();
  });
  loop->runNow();

  for (int i = 0; i < 10; ++i) advance(milliseconds(1));

  EXPECT_EQ(ran, 2);
  EXPECT_TRUE(cancelled);
  EXPECT_TRUE(timer.future().isCancelled());
}

class RealTimers : public test::EngineTest {};

// C091 C092 I5: on every engine, by the loop's own clock
TEST_P(RealTimers, NeverFireEarly) {
  std::atomic<int> early{0};
  std::atomic<int> ran{0};
  EventLoopGroup group(options().loops(1));
  expectEngine(group);
  EventLoop& loop = *group.begin();
  std::mt19937 random(11);
  for (int i = 0; i < 500; ++i) {
    const Duration delay(static_cast<std::int64_t>(random() % 3'000'000));
    const std::int64_t least = Clock::real().nanos() + delay.count();
    loop.schedule(delay, [&, least] {
      if (Clock::real().nanos() < least) ++early;
      ++ran;
    });
  }

  EXPECT_TRUE(test::eventually([&] { return ran == 500; }));
  EXPECT_EQ(early, 0);
  EXPECT_EQ(loop.metrics().timers, 500U);
}

// C173: behaviour 3.5, number 10
TEST_P(RealTimers, ScheduledAndCancelledAtRandomFromOutsideEndCancelled) {
  EventLoopGroup group(options().loops(1));
  std::mt19937 random(13);
  std::vector<ScheduledFuture> timers;
  for (int i = 0; i < 5000; ++i) {
    const Duration period(1 + static_cast<std::int64_t>(random() % 100'000'000));
    timers.push_back(group.scheduleAtFixedRate(period, period, [] {}));
    if (random() % 2 == 0) timers[random() % timers.size()].cancel();
  }
  for (const ScheduledFuture& timer : timers) timer.cancel();

  for (const ScheduledFuture& timer : timers) {
    timer.future().await();
    ASSERT_TRUE(timer.future().isCancelled());
  }
  EXPECT_EQ(group.metrics().failures, 0U);
}

INSTANTIATE_TEST_SUITE_P(Engines, RealTimers, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

}  // namespace
}  // namespace millrace
