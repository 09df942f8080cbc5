// SPDX-License-Identifier: Apache-2.0
// Where io_uring is forbidden, missing, or cannot be had at the moment: epoll takes its place.
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/log_capture.h"

#include <millrace/base/error.h>
#include <millrace/sys/fd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::FaultScript;
using test::LogCapture;
using test::Pipe;
using test::watchInLoop;
using testing::HasSubstr;

/// A loop of this group runs tasks, timers and watches.
bool works(EventLoopGroup& group) {
  EventLoop& loop = *group.begin();
  const Pipe pipe;
  std::atomic<int> seen{0};
  const Watch watch = watchInLoop(loop, pipe.readEnd(), kReadable, [&](int fd, std::uint32_t) {
    seen += static_cast<int>(test::readAll(fd).size());
  });
  for (int i = 0; i < 10; ++i) {
    pipe.put();
    if (!test::eventually([&] { return seen > i; }, 30s)) return false;
  }
  loop.schedule(1ms, [] {}).future().sync();
  watch.unwatch();
  return loop.submit([] {}).await(Deadline::after(30s));
}

// What a container's profile does: these calls fail, for this process and for good.
bool forbidUring() {
  const auto check = [](unsigned number) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
  };
  const sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      check(SYS_io_uring_setup),
      refuse,
      check(SYS_io_uring_enter),
      refuse,
      check(SYS_io_uring_register),
      refuse,
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Runs in a process of its own. 0, or the line where it is not as it should be.
int liveWithoutUring() {
#define MR_REQUIRE(condition) \
  if (!(condition)) return __LINE__ % 200 + 10
  // The engines of parameterised suites were made before this; the line they said is not counted.
  const LogCapture logs("warn");
  MR_REQUIRE(forbidUring());
  const IoSupport found = ioSupport();
  MR_REQUIRE(!found.uring && !found.uringDeferred);
  MR_REQUIRE(found.why.find("seccomp") != std::string::npos);
  MR_REQUIRE(found.why.find("kernel.io_uring_disabled") != std::string::npos);
  for (int i = 0; i < 3; ++i) {
    EventLoopGroup group(LoopOptions().loops(2).io(io::uring()));
    MR_REQUIRE(&group.begin()->ioType() == &io::epollType);
    MR_REQUIRE(group.begin()->io().ring() == nullptr);
    MR_REQUIRE(works(group));
  }
  MR_REQUIRE(logs.records().size() == 1);
  const std::string line = logs.records()[0].text;
  MR_REQUIRE(line.find("epoll") != std::string::npos);
  MR_REQUIRE(line.find(found.why) != std::string::npos);
  return 0;
#undef MR_REQUIRE
}

// F72: the way of containers
TEST(UringAbsentDeathTest, ForbiddenBySeccompItIsEpollAndOneLineSaysWhy) {
  if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  EXPECT_EXIT(std::_Exit(liveWithoutUring()), testing::ExitedWithCode(0), "");
}

// F72: the way of old kernels
TEST(UringAbsent, WithoutTheCallItIsEpoll) {
  const LogCapture logs("off");
  FaultScript script;
  script.failAll("io_uring_setup", ENOSYS);

  EventLoopGroup group(1, io::uring());

  EXPECT_EQ(&group.begin()->ioType(), &io::epollType);
  EXPECT_FALSE(ioSupport().uring);
  EXPECT_THAT(ioSupport().why, HasSubstr("the kernel has no io_uring"));
  EXPECT_EQ(io::byName("uring").type, &io::epollType);
  EXPECT_TRUE(works(group));
}

// A ring that has gone is tidied up by way of its thread, whose calls would end with EINTR.
TEST(UringAbsent, LookingForItDisturbsNoCallOfTheCaller) {
  // A fresh thread: this one may have driven rings of other tests.
  std::thread([] {
    const Fd nothing(::epoll_create1(EPOLL_CLOEXEC));
    for (int round = 0; round < 5; ++round) {
      static_cast<void>(ioSupport());
      static_cast<void>(io::uring());
      epoll_event none{};
      EXPECT_EQ(::epoll_wait(nothing.get(), &none, 1, 50), 0) << errno;
    }
  }).join();
}

// F72: it is tried with the sizes that are asked for
TEST(UringAbsent, TooLargeItIsEpoll) {
  const LogCapture logs("off");
  if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  FaultScript script;
  script.fail("io_uring_setup", 1, ENOMEM);
  EXPECT_EQ(io::uring().type, &io::epollType);
  EXPECT_EQ(io::uring({.entries = 8, .completions = 16}).type, &io::uringType);
}

class UringRefused : public testing::Test {
 protected:
  void SetUp() override {
    if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  }
  /// Loops whose ring cannot be made when they start.
  static LoopOptions unlucky(FaultScript& script, int loops) {
    const IoFactory uring = io::uring();
    script.fail("io_uring_setup", script.count("io_uring_setup") + 1, EMFILE);
    return LoopOptions().loops(loops).io(uring);
  }
};

// F72: out of descriptors at the wrong moment
TEST_F(UringRefused, WhenALoopStartsItRunsOnEpoll) {
  const LogCapture logs("warn");
  FaultScript script;
  EventLoopGroup group(unlucky(script, 1));

  EXPECT_TRUE(works(group));

  EXPECT_EQ(script.faults(), 1U);
  EXPECT_EQ(group.begin()->io().ring(), nullptr);
  EXPECT_EQ(&group.begin()->ioType(), &io::epollType);
  EXPECT_EQ(logs.count(LogLevel::warn), 1U);
  EXPECT_TRUE(logs.contains("io_uring is not used, epoll is: "));
  EXPECT_TRUE(logs.contains(group.begin()->name()));
}

// F72: one of them; the others are not worse off
TEST_F(UringRefused, IsOnlyThatOneLoop) {
  const LogCapture logs("off");
  FaultScript script;
  EventLoopGroup group(unlucky(script, 3));
  int rings = 0;

  for (EventLoop& each : group) {
    rings += each.submit([&] { return each.io().ring() != nullptr ? 1 : 0; }).get();
  }

  EXPECT_EQ(rings, 2);
  EXPECT_TRUE(works(group));
}

// F72: its selector can be made anew like that of any epoll
TEST_F(UringRefused, CanBeRebuilt) {
  const LogCapture logs("off");
  FaultScript script;
  EventLoopGroup group(unlucky(script, 1));
  EventLoop& loop = *group.begin();
  ASSERT_TRUE(works(group));

  loop.rebuildSelector();
  ASSERT_TRUE(test::eventually([&] { return loop.metrics().rebuilds == 1; }, 30s));

  EXPECT_TRUE(works(group));
}

// The ring has operations in flight and is not made anew.
TEST_F(UringRefused, ToBeRebuiltWithARing) {
  const LogCapture logs("off");
  EventLoopGroup group(1, io::uring());
  ASSERT_TRUE(works(group));

  group.begin()->rebuildSelector();

  EXPECT_TRUE(works(group));
  EXPECT_EQ(group.begin()->metrics().rebuilds, 0U);
}

}  // namespace
}  // namespace millrace
