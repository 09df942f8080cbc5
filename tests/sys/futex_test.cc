// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/futex.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::FaultScript;

TEST(Futex, DoesNotSleepWhenTheWordHasAnotherValue) {
  const Atomic<std::uint32_t> word{1};

  EXPECT_EQ(futexWait(word, 0, Deadline::never()), 0);
}

TEST(Futex, SleepsUntilTheDeadlineAndNotLess) {
  const Atomic<std::uint32_t> word{0};
  const Deadline until = Deadline::after(300us);

  EXPECT_EQ(futexWait(word, 0, until), -ETIMEDOUT);

  EXPECT_TRUE(until.isDue(Clock::real().nanos()));
}

TEST(Futex, DeadlineThatHasPassedEndsAtOnce) {
  const Atomic<std::uint32_t> word{0};

  EXPECT_EQ(futexWait(word, 0, Deadline::past()), -ETIMEDOUT);
  EXPECT_EQ(futexWait(word, 0, Deadline::at(0)), -ETIMEDOUT);
}

TEST(Futex, SignalsAreReported) {
  const Atomic<std::uint32_t> word{0};
  FaultScript script;
  script.fail("futex", 1, EINTR);

  EXPECT_EQ(futexWait(word, 0, Deadline::never()), -EINTR);
}

TEST(Futex, WakeEndsTheSleepOfAll) {
  Atomic<std::uint32_t> word{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&word] {
      while (word.load() == 0) futexWait(word, 0, Deadline::never());
    });
  }

  word.store(1);
  futexWake(word, 3);

  for (std::thread& sleeper : sleepers) sleeper.join();
}

TEST(Futex, TwoThreadsHandAWordToAndFro) {
  Atomic<std::uint32_t> word{0};
  constexpr std::uint32_t kRounds = 500;
  const auto play = [&word](std::uint32_t mine) {
    for (std::uint32_t turn = mine; turn < kRounds; turn += 2) {
      for (std::uint32_t seen = word.load(); seen != turn; seen = word.load()) {
        futexWait(word, seen, Deadline::never());
      }
      word.store(turn + 1);
      futexWake(word, 1);
    }
  };

  std::thread other(play, 1);
  play(0);
  other.join();

  EXPECT_EQ(word.load(), kRounds);
}

TEST(FutexDeathTest, FailuresThatCannotBeEndTheProcess) {
  const Atomic<std::uint32_t> word{0};
  EXPECT_DEATH(
      {
        FaultScript script;
        script.failAll("futex", ENOSYS);
        futexWait(word, 0, Deadline::never());
      },
      "futex\\(wait\\) failed");
  EXPECT_DEATH(
      {
        FaultScript script;
        script.failAll("futex", ENOSYS);
        futexWake(word, 1);
      },
      "futex\\(wake\\) failed");
}

}  // namespace
}  // namespace millrace
