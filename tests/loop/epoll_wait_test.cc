// SPDX-License-Identifier: Apache-2.0
// How the epoll engine asks the kernel to wait.
#include "support/call_hooks.h"
#include "support/engines.h"
#include "support/fault_script.h"

#include <millrace/base/manual_clock.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/epoll.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <sys/epoll.h>
#include <time.h>

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Forgets what the process has learnt about epoll_pwait2, before and after.
struct Forgetful {
  Forgetful() { forgetEpollFallbackForTest(); }
  ~Forgetful() { forgetEpollFallbackForTest(); }
};

std::int64_t nanosOf(const timespec* time) {
  return time == nullptr ? -1 : std::int64_t{time->tv_sec} * 1'000'000'000 + time->tv_nsec;
}

// C092: what the kernel is given has nanoseconds
TEST(EpollWaits, AreNotRoundedToMilliseconds) {
  test::CallHooks hooks;
  std::vector<std::int64_t> timeouts;
  hooks.epollPwait2 = [&](int ep, epoll_event* out, int capacity, const timespec* timeout) {
    timeouts.push_back(nanosOf(timeout));
    return realCalls().epoll_pwait2(ep, out, capacity, timeout);
  };
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()));
  ASSERT_EQ(&loop->ioType(), &io::epollType);
  bool ran = false;
  loop->schedule(Duration(5'123'457), [&] { ran = true; });

  while (!ran) loop->run(Deadline::never());

  // A late thread may have less left, but hardly whole milliseconds three times in a row.
  bool fine = timeouts.empty();
  for (const std::int64_t timeout : timeouts) fine |= timeout % 1'000'000 != 0;
  EXPECT_TRUE(fine);
}

// C090
TEST(EpollWaits, HaveNoTimeoutWithoutATimer) {
  test::CallHooks hooks;
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()));
  std::vector<std::int64_t> timeouts;
  hooks.epollPwait2 = [&](int, epoll_event*, int, const timespec* timeout) {
    timeouts.push_back(nanosOf(timeout));
    return 0;
  };

  loop->run(Deadline::never());

  EXPECT_EQ(timeouts, std::vector<std::int64_t>{-1});
}

// Rule 2 of the blueprint: the kernel adds 0.1 % to long waits, so the first step ends a little
// early
TEST(EpollWaits, AreShortenedWhenTheyAreLong) {
  test::CallHooks hooks;
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()));
  std::vector<std::int64_t> timeouts;
  hooks.epollPwait2 = [&](int, epoll_event*, int, const timespec* timeout) {
    timeouts.push_back(nanosOf(timeout));
    return 0;
  };
  loop->schedule(hours(10), [] {});
  loop->runNow();

  loop->run(Deadline::never());

  ASSERT_EQ(timeouts.size(), 1U);
  EXPECT_LT(timeouts[0], Duration(hours(10)).count() - Duration(std::chrono::minutes(2)).count());
  EXPECT_GT(timeouts[0], Duration(hours(9)).count() + Duration(std::chrono::minutes(50)).count());
}

// Rule 2 of the blueprint
TEST(EpollWaits, InTwoStepsAreOneSleepAndEndWithTheTimer) {
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()));
  std::int64_t at = 0;
  const ScheduledFuture timer =
      loop->schedule(milliseconds(120), [&] { at = Clock::real().nanos(); });
  loop->runNow();

  EXPECT_EQ(loop->run(Deadline::never()), 1U);

  EXPECT_GE(at, timer.deadline().nanos());
  EXPECT_EQ(loop->metrics().sleeps, 1U);
  EXPECT_EQ(loop->metrics().prematureReturns, 0U);
}

// C092 C120d I5
TEST(EpollWaits, FallBackToWholeMillisecondsWhereTheKernelHasNoBetterCall) {
  const Forgetful forgetful;
  test::FaultScript script;
  script.failAll("epoll_pwait2", ENOSYS);
  std::atomic<std::int64_t> at{0};
  EventLoopGroup group(LoopOptions().loops(1).io(io::epoll()));
  EventLoop& loop = *group.begin();

  const ScheduledFuture timer =
      loop.schedule(Duration(2'100'000), [&] { at = Clock::real().nanos(); });
  timer.future().sync();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(loop.submit([i] { return i; }).get(), i);
  group.shutdownGracefully().sync();

  EXPECT_GE(at, timer.deadline().nanos());
  EXPECT_EQ(script.count("epoll_pwait2"), 1U);  // the process remembers
  EXPECT_GT(script.count("epoll_wait"), 0U);
  EXPECT_EQ(loop.metrics().failures, 0U);
}

// C167: behaviours 3.6, number 2, and 3.7, number 1
TEST(EpollWaits, TakeTheLongestDelayForNever) {
  std::atomic<bool> ran{false};
  EventLoopGroup group(LoopOptions().loops(1).io(io::epoll()));
  EventLoop& loop = *group.begin();
  const ScheduledFuture longest = loop.schedule(Duration::max(), [&] { ran = true; });
  const ScheduledFuture long2 = loop.schedule(Duration::max() - Duration(1), [&] { ran = true; });

  for (int i = 0; i < 100; ++i) loop.submit([] {}).sync();
  loop.schedule(milliseconds(1), [] {}).future().sync();

  EXPECT_FALSE(ran);
  EXPECT_EQ(loop.metrics().failures, 0U);
  EXPECT_EQ(loop.metrics().prematureReturns, 0U);
  EXPECT_TRUE(longest.cancel());
  EXPECT_TRUE(long2.cancel());
  EXPECT_TRUE(longest.future().isCancelled());
}

}  // namespace
}  // namespace millrace
