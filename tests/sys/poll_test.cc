// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/base/clock.h>
#include <millrace/sys/eventfd.h>
#include <millrace/sys/poll.h>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>

namespace millrace {
namespace {

using test::FaultScript;

constexpr auto kIn = static_cast<std::int16_t>(kReadable);
constexpr auto kOut = static_cast<std::int16_t>(kWritable);

TEST(PollWait, ReportsWhichEntriesAreReady) {
  const Fd first = eventFd().orThrow();
  const Fd second = eventFd().orThrow();
  eventWrite(second.get(), 1);
  std::array<PollEntry, 3> entries{
      PollEntry{first.get(), kIn, 0}, {second.get(), kIn, 0}, {-1, kIn, 0}};

  EXPECT_EQ(pollWait(entries.data(), entries.size(), -1), 1);

  EXPECT_EQ(entries[0].revents, 0);
  EXPECT_EQ(entries[1].revents, kIn);
  EXPECT_EQ(entries[2].revents, 0);
}

TEST(PollWait, ReportsADescriptorThatIsNotOpen) {
  int number = -1;
  {
    const Fd closed = eventFd().orThrow();
    number = closed.get();
  }
  PollEntry entry{number, kOut, 0};

  EXPECT_EQ(pollWait(&entry, 1, 0), 1);
  EXPECT_EQ(static_cast<std::uint32_t>(entry.revents), kNotOpen);
}

TEST(PollWait, EndsAtItsTimeoutAndNotBefore) {
  const Fd fd = eventFd().orThrow();
  PollEntry entry{fd.get(), kIn, 0};
  constexpr std::int64_t kNanos = 300'000;
  const std::int64_t before = Clock::real().nanos();

  EXPECT_EQ(pollWait(&entry, 1, kNanos), 0);

  EXPECT_GE(Clock::real().nanos() - before, kNanos);
  EXPECT_EQ(pollWait(&entry, 1, 0), 0);
}

TEST(PollWait, ReportsFailuresAsNegativeErrno) {
  FaultScript script;
  script.fail("ppoll", 1, EINTR);
  PollEntry entry{-1, kIn, 0};

  EXPECT_EQ(pollWait(&entry, 1, -1), -EINTR);
}

}  // namespace
}  // namespace millrace
