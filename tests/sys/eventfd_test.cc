// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/eventfd.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <string>

namespace millrace {
namespace {

using test::FaultScript;

TEST(EventFd, IsNonblockingAndClosedOnExec) {
  const Fd fd = eventFd().orThrow();

  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

TEST(EventFd, ReadTakesTheSumOfTheWrites) {
  const Fd fd = eventFd().orThrow();

  EXPECT_EQ(eventWrite(fd.get(), 2), 0);
  EXPECT_EQ(eventWrite(fd.get(), 3), 0);

  EXPECT_EQ(eventRead(fd.get()).value(), 5u);
  EXPECT_EQ(eventRead(fd.get()).value(), 0u);
}

TEST(EventFd, WriteThatWouldOverflowSaysSo) {
  const Fd fd = eventFd().orThrow();
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() - 1;

  EXPECT_EQ(eventWrite(fd.get(), kMost), 0);
  EXPECT_EQ(eventWrite(fd.get(), 1), -EAGAIN);

  EXPECT_EQ(eventRead(fd.get()).value(), kMost);
}

TEST(EventFd, CallsThatASignalBreaksAreMadeAgain) {
  const Fd fd = eventFd().orThrow();
  FaultScript script;
  script.interruptFirstTries();

  EXPECT_EQ(eventWrite(fd.get(), 1), 0);
  EXPECT_EQ(eventRead(fd.get()).value(), 1u);

  EXPECT_EQ(script.count("write"), 2u);
  EXPECT_EQ(script.count("read"), 2u);
}

TEST(EventFd, FailuresAreReported) {
  FaultScript script;
  script.fail("eventfd", 1, ENFILE);

  EXPECT_EQ(eventFd().error().errnoValue(), ENFILE);
  EXPECT_EQ(eventWrite(-1, 1), -EBADF);
  EXPECT_EQ(eventRead(-1).error().message(), "read(eventfd) fd -1: Bad file descriptor");
}

}  // namespace
}  // namespace millrace
