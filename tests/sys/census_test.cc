// SPDX-License-Identifier: Apache-2.0
#include "support/census.h"

#include <millrace/sys/eventfd.h>
#include <millrace/sys/futex.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace millrace::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A thread that stays until it is told to end.
class Sleeper {
 public:
  explicit Sleeper(const char* name)
      : thread_(startThread(name, [this] {
                  running_.store(true);
                  while (end_.load() == 0) futexWait(end_, 0, Deadline::never());
                }).orThrow()) {
    while (!running_.load()) cpuRelax();
  }
  ~Sleeper() {
    end_.store(1);
    futexWake(end_, 1);
    thread_.join();
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  Atomic<std::uint32_t> end_{0};
  Atomic<bool> running_{false};
  Thread thread_;
};

TEST(Census, FindsNothingWhenNothingIsLeft) {
  const Census before = Census::take();

  { const Fd fd = eventFd().orThrow(); }

  EXPECT_THAT(leaksBetween(before, Census::take()), IsEmpty());
}

TEST(Census, NamesADescriptorThatIsLeft) {
  const Census before = Census::take();
  const Fd fd = eventFd().orThrow();

  EXPECT_THAT(leaksBetween(before, Census::take()),
              ElementsAre("descriptor " + std::to_string(fd.get()) + " (anon_inode:[eventfd])"));
}

TEST(Census, NamesAThreadThatIsLeft) {
  const Census before = Census::take();
  {
    const Sleeper sleeper("mr-lost-1");

    const auto leaks = leaksSince(before, Duration::zero());
    ASSERT_EQ(leaks.size(), 1u);
    EXPECT_THAT(leaks[0], testing::MatchesRegex("thread [0-9]+ \\(mr-lost-1\\)"));
  }
  EXPECT_THAT(leaksSince(before), IsEmpty());
}

TEST(Census, DoesNotCountThreadsThatItIsToldToIgnore) {
  const Census before = Census::take();
  ignoreThreadsInCensus("mr-forever");
  const Sleeper sleeper("mr-forever-1");

  EXPECT_THAT(leaksBetween(before, Census::take()), IsEmpty());
}

TEST(Census, ReadsTheGauges) {
  static std::int64_t level = 0;
  addCensusGauge("live things", [] { return level; });
  level = 3;
  const Census before = Census::take();

  level = 5;
  const auto leaks = leaksBetween(before, Census::take());
  level = 2;
  const auto fewer = leaksBetween(before, Census::take());

  EXPECT_THAT(leaks, ElementsAre("live things: 5, before the test 3"));
  EXPECT_THAT(fewer, IsEmpty());
  level = 0;
}

TEST(CensusListener, FailsATestThatLeavesADescriptor) {
  static CensusListener listener(Duration::zero());
  const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
  const Fd early = eventFd().orThrow();
  listener.OnTestStart(info);
  EXPECT_NONFATAL_FAILURE(
      {
        const Fd late = eventFd().orThrow();
        listener.OnTestEnd(info);
      },
      "the test left behind: descriptor");

  listener.OnTestEnd(info);
}

}  // namespace
}  // namespace millrace::test
