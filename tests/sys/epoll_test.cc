// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/base/clock.h>
#include <millrace/sys/epoll.h>
#include <millrace/sys/eventfd.h>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string>

namespace millrace {
namespace {

using test::FaultScript;

class Epoll : public testing::Test {
 protected:
  Epoll() : ep(epollCreate().orThrow()), event(eventFd().orThrow()) {}
  ~Epoll() override { forgetEpollFallbackForTest(); }

  int wait(std::int64_t nanos) { return epollWait(ep.get(), out.data(), 8, nanos); }
  /// Until the time is over: a ring that another test has closed may interrupt the sleep.
  int waitOut(std::int64_t nanos) {
    int found = -EINTR;
    while (found == -EINTR) found = wait(nanos);
    return found;
  }

  Fd ep;
  Fd event;
  std::array<EpollEvent, 8> out{};
};

TEST_F(Epoll, InstanceIsClosedOnExec) {
  EXPECT_EQ(::fcntl(ep.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(Epoll, ReportsAReadyDescriptorWithItsData) {
  ASSERT_TRUE(epollAdd(ep.get(), event.get(), kReadable, 0x1234567890abcdef).ok());
  EXPECT_EQ(wait(0), 0);

  eventWrite(event.get(), 1);

  ASSERT_EQ(wait(-1), 1);
  EXPECT_EQ(std::uint32_t{out[0].events}, kReadable);
  EXPECT_EQ(std::uint64_t{out[0].data}, 0x1234567890abcdefu);
}

TEST_F(Epoll, EdgeModeReportsEveryWriteOnce) {
  ASSERT_TRUE(epollAdd(ep.get(), event.get(), kReadable | kEdge, 1).ok());

  eventWrite(event.get(), 1);
  EXPECT_EQ(wait(0), 1);
  EXPECT_EQ(wait(0), 0);
  eventWrite(event.get(), 1);

  EXPECT_EQ(wait(0), 1);
}

TEST_F(Epoll, ModifyChangesEventsAndData) {
  ASSERT_TRUE(epollAdd(ep.get(), event.get(), kReadable, 1).ok());

  ASSERT_TRUE(epollModify(ep.get(), event.get(), kWritable, 2).ok());

  ASSERT_EQ(wait(0), 1);
  EXPECT_EQ(std::uint32_t{out[0].events}, kWritable);
  EXPECT_EQ(std::uint64_t{out[0].data}, 2u);
}

TEST_F(Epoll, RemoveEndsTheWatch) {
  ASSERT_TRUE(epollAdd(ep.get(), event.get(), kWritable, 1).ok());

  ASSERT_TRUE(epollRemove(ep.get(), event.get()).ok());

  EXPECT_EQ(wait(0), 0);
}

TEST_F(Epoll, FailuresNameTheCallAndTheDescriptor) {
  const std::string fd = "fd " + std::to_string(event.get());
  const auto textOf = [](const Result<void>& result) { return result.error().message(); };

  EXPECT_EQ(textOf(epollModify(ep.get(), event.get(), kReadable, 1)),
            "epoll_ctl(modify) " + fd + ": No such file or directory");
  EXPECT_EQ(textOf(epollRemove(ep.get(), event.get())),
            "epoll_ctl(remove) " + fd + ": No such file or directory");
  ASSERT_TRUE(epollAdd(ep.get(), event.get(), kReadable, 1).ok());
  EXPECT_EQ(textOf(epollAdd(ep.get(), event.get(), kReadable, 1)),
            "epoll_ctl(add) " + fd + ": File exists");
}

TEST_F(Epoll, CreateFailsWithTheErrnoOfTheKernel) {
  FaultScript script;
  script.fail("epoll_create1", 1, EMFILE);

  const Result<Fd> result = epollCreate();

  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().errnoValue(), EMFILE);
  EXPECT_EQ(result.error().operation(), "epoll_create1");
}

TEST_F(Epoll, WaitEndsAtItsTimeoutAndNotBefore) {
  constexpr std::int64_t kNanos = 300'000;  // less than the millisecond that epoll_wait can say
  const std::int64_t before = Clock::real().nanos();

  EXPECT_EQ(waitOut(kNanos), 0);

  EXPECT_GE(Clock::real().nanos() - before, kNanos);
}

TEST_F(Epoll, WaitReportsFailuresAsNegativeErrno) {
  FaultScript script;
  script.fail("epoll_pwait2", 1, EINTR);

  EXPECT_EQ(wait(-1), -EINTR);
  EXPECT_EQ(epollWait(-1, out.data(), 8, 0), -EBADF);
  EXPECT_EQ(script.count("epoll_wait"), 0u);
}

TEST_F(Epoll, FallsBackForGoodWhereThereIsNoPwait2) {
  for (const int refusal : {ENOSYS, EPERM}) {
    forgetEpollFallbackForTest();
    FaultScript script;
    script.failAll("epoll_pwait2", refusal);

    EXPECT_EQ(wait(0), 0);
    EXPECT_EQ(wait(0), 0);

    EXPECT_EQ(script.count("epoll_pwait2"), 1u);
    EXPECT_EQ(script.count("epoll_wait"), 2u);
  }
  EXPECT_EQ(wait(0), 0);
}

TEST_F(Epoll, FallbackRoundsUpToMilliseconds) {
  FaultScript script;
  script.failAll("epoll_pwait2", ENOSYS);
  constexpr std::int64_t kNanos = 1;
  const std::int64_t before = Clock::real().nanos();

  EXPECT_EQ(waitOut(kNanos), 0);

  EXPECT_GE(Clock::real().nanos() - before, 1'000'000);
}

TEST_F(Epoll, FallbackTakesAnyTimeout) {
  ASSERT_TRUE(epollAdd(ep.get(), event.get(), kWritable, 1).ok());
  FaultScript script;
  script.failAll("epoll_pwait2", ENOSYS);

  EXPECT_EQ(wait(-1), 1);
  EXPECT_EQ(wait(INT64_MAX), 1);
  script.fail("epoll_wait", 3, EINTR);
  EXPECT_EQ(wait(1'000'000), -EINTR);
}

}  // namespace
}  // namespace millrace
