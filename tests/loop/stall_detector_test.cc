// SPDX-License-Identifier: Apache-2.0
#include "loop/stall_detector.h"

#include <gtest/gtest.h>

#include <chrono>

namespace millrace {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMilli = 1'000'000;

// C157
TEST(StallDetector, TellsOnceThatALoopStandsStillForLongerThanTheThreshold) {
  StallDetector detector(100ms);
  const LoopPulse stuck{.turnBegan = 5, .tasks = 7, .callbacks = 3};

  EXPECT_FALSE(detector.see(stuck, 10 * kMilli));
  EXPECT_FALSE(detector.see(stuck, 110 * kMilli));  // not longer than the threshold
  const auto told = detector.see(stuck, 111 * kMilli);
  ASSERT_TRUE(told);
  EXPECT_EQ(*told, 101ms);
  EXPECT_FALSE(detector.see(stuck, 112 * kMilli));
  EXPECT_FALSE(detector.see(stuck, 10'000 * kMilli));
}

// C157
TEST(StallDetector, TellsOfTheNextStallAgain) {
  StallDetector detector(100ms);
  EXPECT_FALSE(detector.see({.turnBegan = 5, .tasks = 7}, 0));
  EXPECT_TRUE(detector.see({.turnBegan = 5, .tasks = 7}, 200 * kMilli));

  EXPECT_FALSE(detector.see({.turnBegan = 5, .tasks = 8}, 300 * kMilli));
  EXPECT_TRUE(detector.see({.turnBegan = 5, .tasks = 8}, 401 * kMilli));
}

// C157
TEST(StallDetector, IsSilentWhileTasksOrCallbacksBegin) {
  StallDetector detector(100ms);

  for (std::uint64_t i = 0; i < 100; ++i) {
    // One turn that lasts for ten seconds, with something new each time it is looked at.
    const LoopPulse pulse{.turnBegan = 5, .tasks = i / 2, .callbacks = (i + 1) / 2};
    EXPECT_FALSE(detector.see(pulse, static_cast<std::int64_t>(i) * 101 * kMilli)) << i;
  }
}

// C157
TEST(StallDetector, IsSilentWhileEachTurnIsAnother) {
  StallDetector detector(100ms);

  for (std::int64_t i = 1; i < 100; ++i) {
    EXPECT_FALSE(detector.see({.turnBegan = i}, i * 101 * kMilli)) << i;
  }
}

// C157
TEST(StallDetector, IsSilentAboutALoopThatWaitsForWork) {
  StallDetector detector(100ms);

  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(detector.see({.turnBegan = 0, .tasks = 7}, i * 101 * kMilli)) << i;
  }
}

TEST(StallDetector, KnowsWhenToLookAgain) {
  StallDetector detector(100ms);
  EXPECT_TRUE(detector.nextPossible().isNever());

  detector.see({.turnBegan = 5}, 10);
  EXPECT_EQ(detector.nextPossible(), Deadline::at(10 + 100 * kMilli + 1));

  EXPECT_TRUE(detector.see({.turnBegan = 5}, detector.nextPossible().nanos()));
  EXPECT_TRUE(detector.nextPossible().isNever());
}

}  // namespace
}  // namespace millrace
