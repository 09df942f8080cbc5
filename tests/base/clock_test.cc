// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/clock.h>
#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

struct CountingListener final : ClockListener {
  void clockMoved() noexcept override { ++moves; }
  int moves = 0;
};

TEST(SaturatingAdd, StopsAtTheEnds) {
  EXPECT_EQ(saturatingAdd(1, 2), 3);
  EXPECT_EQ(saturatingAdd(kMost, 1), kMost);
  EXPECT_EQ(saturatingAdd(kMost, kMost), kMost);
  EXPECT_EQ(saturatingAdd(kLeast, -1), kLeast);
  EXPECT_EQ(saturatingAdd(kLeast, kLeast), kLeast);
  EXPECT_EQ(saturatingAdd(kLeast, kMost), -1);
}

RC_GTEST_PROP(SaturatingAdd, IsTheNearestRepresentableSum, (std::int64_t a, std::int64_t b)) {
  __extension__ using Wide = __int128;
  Wide sum = static_cast<Wide>(a) + b;
  if (sum > kMost) sum = kMost;
  if (sum < kLeast) sum = kLeast;

  RC_ASSERT(saturatingAdd(a, b) == static_cast<std::int64_t>(sum));
}

TEST(RealClock, IsRealAndNeverGoesBack) {
  Clock& clock = Clock::real();

  EXPECT_TRUE(clock.isReal());
  std::int64_t last = clock.nanos();
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t now = clock.nanos();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(RealClock, TellsNobodyThatItMoved) {
  CountingListener listener;

  Clock::real().addListener(listener);
  Clock::real().removeListener(listener);

  EXPECT_EQ(listener.moves, 0);
  EXPECT_FALSE(listener.isLinked());
}

TEST(ManualClock, StandsStillUntilItIsMoved) {
  ManualClock clock(100);

  EXPECT_FALSE(clock.isReal());
  EXPECT_EQ(clock.nanos(), 100);
  clock.advance(1us);
  EXPECT_EQ(clock.nanos(), 1100);
  clock.advance(Duration::zero());
  EXPECT_EQ(clock.nanos(), 1100);
}

TEST(ManualClock, StopsAtTheEndOfTime) {
  ManualClock clock(kMost - 5);

  clock.advance(1h);

  EXPECT_EQ(clock.nanos(), kMost);
}

TEST(ManualClock, DoesNotGoBack) {
  ManualClock clock(100);

  try {
    clock.advance(-5ns);
    FAIL() << "advance() took a negative step";
  } catch (const std::invalid_argument& e) {
    EXPECT_EQ(std::string(e.what()),
              "ManualClock::advance(-5ns): time does not go back; give a step of 0 or more");
  }
  EXPECT_EQ(clock.nanos(), 100);
}

TEST(ManualClock, TellsItsListenersOfEveryMove) {
  ManualClock clock;
  CountingListener first;
  CountingListener second;
  clock.addListener(first);
  clock.addListener(second);

  clock.advance(1ns);
  clock.removeListener(first);
  clock.advance(1ns);
  clock.removeListener(second);
  clock.advance(1ns);

  EXPECT_EQ(first.moves, 1);
  EXPECT_EQ(second.moves, 2);
}

TEST(ManualClock, MovesByTheSumWhenSeveralThreadsMoveIt) {
  ManualClock clock;
  CountingListener listener;
  clock.addListener(listener);

  std::thread other([&clock] {
    for (int i = 0; i < 1000; ++i) clock.advance(1ns);
  });
  for (int i = 0; i < 1000; ++i) clock.advance(2ns);
  other.join();
  clock.removeListener(listener);

  EXPECT_EQ(clock.nanos(), 3000);
  EXPECT_EQ(listener.moves, 2000);
}

TEST(Deadline, NeverIsNeverDue) {
  EXPECT_TRUE(Deadline::never().isNever());
  EXPECT_FALSE(Deadline::never().isDue(kMost));
  EXPECT_EQ(Deadline::never().left(0), Duration::max());
}

TEST(Deadline, PastIsDueOnEveryClock) {
  EXPECT_TRUE(Deadline::past().isDue(kLeast));
  EXPECT_FALSE(Deadline::past().isNever());
  EXPECT_EQ(Deadline::past().left(0), Duration::zero());
}

TEST(Deadline, IsDueFromItsMomentOn) {
  const Deadline deadline = Deadline::at(50);

  EXPECT_FALSE(deadline.isDue(49));
  EXPECT_TRUE(deadline.isDue(50));
  EXPECT_EQ(deadline.left(20), 30ns);
  EXPECT_EQ(deadline.left(50), 0ns);
  EXPECT_EQ(deadline.left(60), 0ns);
  EXPECT_EQ(deadline.nanos(), 50);
}

TEST(Deadline, AfterCountsFromNow) {
  ManualClock clock(1000);

  EXPECT_EQ(Deadline::after(5ns, clock), Deadline::at(1005));
  EXPECT_EQ(Deadline::after(-5ns, clock), Deadline::at(1000));
  EXPECT_GT(Deadline::after(1h), Deadline::at(Clock::real().nanos()));
}

TEST(Deadline, TooFarAwayIsNever) {
  ManualClock clock(1000);

  EXPECT_TRUE(Deadline::after(Duration::max(), clock).isNever());
}

TEST(Deadline, TimeLeftDoesNotOverflow) {
  EXPECT_EQ(Deadline::at(kMost - 1).left(kLeast), Duration::max());
}

RC_GTEST_PROP(Deadline, IsDueExactlyWhenNoTimeIsLeft, (std::int64_t at, std::int64_t now)) {
  const Deadline deadline = Deadline::at(at);

  RC_ASSERT(deadline.isDue(now) == (deadline.left(now) == Duration::zero()));
}

RC_GTEST_PROP(Deadline, IsOrderedLikeItsMoments, (std::int64_t a, std::int64_t b)) {
  RC_ASSERT((Deadline::at(a) < Deadline::at(b)) == (a < b));
}

}  // namespace
}  // namespace millrace
