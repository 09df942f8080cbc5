// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::LogCapture;
using test::textOf;
using testing::AllOf;
using testing::HasSubstr;

std::string nameInKernel(EventLoop& loop) {
  return loop.submit([] { return test::kernelNameOfThread(threadId()); }).get();
}

// C035
TEST(EventLoopThread, IsNamedAfterItsGroupAndItsIndex) {
  EventLoopGroup group(LoopOptions().loops(3).name("web"));
  std::vector<std::string> names;
  for (EventLoop& loop : group) {
    names.push_back(loop.name());
    EXPECT_EQ(nameInKernel(loop), loop.name());
  }

  EXPECT_EQ(names, (std::vector<std::string>{"mr-web-1", "mr-web-2", "mr-web-3"}));
  EXPECT_EQ(group.name(), "web");
}

// C035
TEST(EventLoopThread, OfAGroupWithoutANameCarriesTheGroupsNumber) {
  EventLoopGroup first(1);
  EventLoopGroup named(LoopOptions().loops(1).name("named"));
  EventLoopGroup second(1);

  EXPECT_GT(std::stoi(first.name()), 0);
  EXPECT_GT(std::stoi(second.name()), std::stoi(first.name()));
  EXPECT_EQ(second.next().name(), "mr-" + second.name() + "-1");
  EXPECT_EQ(nameInKernel(second.next()), second.next().name());
}

// C035
TEST(EventLoopThread, KeepsFifteenLettersOfALongNameInTheKernel) {
  EventLoopGroup group(LoopOptions().loops(1).name("a-rather-long-name"));

  EXPECT_EQ(group.next().name(), "mr-a-rather-long-name-1");
  EXPECT_EQ(nameInKernel(group.next()), "mr-a-rather-lon");
}

// C022
TEST(EventLoopThread, IsAFreshOneForEachLoop) {
  test::FaultScript calls;
  EventLoopGroup group(4);
  std::set<std::int64_t> ids;

  for (EventLoop& loop : group) ids.insert(loop.submit([] { return threadId(); }).get());

  EXPECT_EQ(ids.size(), 4U);
  EXPECT_FALSE(ids.contains(threadId()));
  EXPECT_EQ(calls.count("pthread_create"), 4U);
}

// C008 C038, behaviour 3.1: 7
TEST(EventLoopThread, IsKnownToTheLoopInItsVeryFirstTask) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  EXPECT_FALSE(loop.inEventLoop());
  EXPECT_EQ(loop.threadId(), 0);
  std::int64_t seen = 0;

  loop.submit([&] {
        EXPECT_TRUE(loop.inEventLoop());
        EXPECT_TRUE(group.inEventLoop());
        EXPECT_EQ(EventLoop::current(), &loop);
        EXPECT_EQ(loop.threadId(), threadId());
        EXPECT_EQ(loop.state(), EventLoop::State::started);
        seen = loop.threadId();
      })
      .get();

  EXPECT_EQ(loop.threadId(), seen);
  EXPECT_FALSE(loop.inEventLoop());
  EXPECT_EQ(EventLoop::current(), nullptr);
  loop.shutdownGracefully().get();
  EXPECT_EQ(loop.threadId(), 0);
}

// C036
TEST(EventLoopThread, HasThePriorityThatWasAskedFor) {
  EventLoopGroup group(LoopOptions().loops(1).priority(7));

  const int nice = group.next().submit([] { return ::getpriority(PRIO_PROCESS, 0); }).get();

  EXPECT_EQ(nice, 7);
  EXPECT_NE(::getpriority(PRIO_PROCESS, 0), 7);  // ours is ours
}

// C036
TEST(EventLoopThread, RefusesAPriorityThatDoesNotExistWhenItIsSet) {
  EXPECT_THAT(textOf<std::invalid_argument>([] { LoopOptions().priority(20); }),
              AllOf(HasSubstr("priority(20)"), HasSubstr("-20 to 19")));
  EXPECT_THROW(LoopOptions().priority(-21), std::invalid_argument);
  LoopOptions().priority(-20).priority(19);
}

// C036
TEST(EventLoopThread, KeepsItsPriorityWithAWarningWhereItMayNotChangeIt) {
  LogCapture log;
  test::FaultScript calls;
  calls.failAll("setpriority", EPERM);
  EventLoopGroup group(LoopOptions().loops(1).name("prio").priority(-5));

  EXPECT_EQ(group.next().submit([] { return 1; }).get(), 1);

  EXPECT_TRUE(log.contains("mr-prio-1: keeps its priority: setpriority -5"));
  EXPECT_EQ(log.count(LogLevel::warn), 1U);
}

std::vector<int> cpusOfThisThread() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(EventLoopThread, RunsOnTheProcessorOfItsIndex) {
  const std::vector<int> mine = cpusOfThisThread();
  const std::vector<int> wanted{mine.front(), mine.back()};
  EventLoopGroup group(LoopOptions().loops(3).pinTo(wanted));
  std::vector<std::vector<int>> got;

  for (EventLoop& loop : group) got.push_back(loop.submit([] { return cpusOfThisThread(); }).get());

  EXPECT_EQ(got, (std::vector<std::vector<int>>{{wanted[0]}, {wanted[1]}, {wanted[0]}}));
}

TEST(EventLoopThread, StartsUnpinnedWithAWarningWhenTheProcessorDoesNotExist) {
  LogCapture log;
  EventLoopGroup group(LoopOptions().loops(1).name("pin").pinTo({100'000}));

  const std::vector<int> cpus = group.next().submit([] { return cpusOfThisThread(); }).get();

  EXPECT_EQ(cpus, cpusOfThisThread());
  EXPECT_TRUE(log.contains("mr-pin-1: runs unpinned: sched_setaffinity cpus 100000"));
  EXPECT_EQ(log.count(LogLevel::warn), 1U);
}

TEST(EventLoopThread, PutsItsNameOnTheLinesThatItLogs) {
  LogCapture capture;
  EventLoopGroup group(LoopOptions().loops(1).name("says"));

  group.next().submit([] { log(LogLevel::info, "test", "hello from the loop"); }).get();
  log(LogLevel::info, "test", "hello from outside");

  std::string inside;
  std::string outside = "none";
  for (const LogCapture::Record& record : capture.records()) {
    if (record.text == "hello from the loop") inside = record.thread;
    if (record.text == "hello from outside") outside = record.thread;
  }
  EXPECT_EQ(inside, "mr-says-1");
  EXPECT_EQ(outside, "");
}

// F75
TEST(EventLoopThread, LeavesSignalsToOthersAndWakesWithoutSlack) {
  EventLoopGroup group(1);

  group.next()
      .submit([] {
        sigset_t blocked;
        sigemptyset(&blocked);
        EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
        EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
        EXPECT_EQ(sigismember(&blocked, SIGCHLD), 1);
        EXPECT_EQ(::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
      })
      .get();
}

struct SeesTheEnd {
  EventLoop* loop = nullptr;
  std::atomic<int>* ends = nullptr;
  ~SeesTheEnd() {
    if (loop == nullptr) return;
    EXPECT_TRUE(loop->isShutdown());
    EXPECT_FALSE(loop->isTerminated());
    EXPECT_FALSE(loop->terminationFuture().isDone());
    EXPECT_FALSE(loop->tryExecute([] {}));
    ++*ends;
  }
};

// C037 C229: TERMINATED comes after the thread's locals
TEST(EventLoopThread, DestroysItsThreadLocalsBeforeTheLoopIsTerminated) {
  std::atomic<int> ends{0};
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  loop.submit([&] {
        thread_local SeesTheEnd local;
        local.loop = &loop;
        local.ends = &ends;
      })
      .get();

  loop.shutdownGracefully().get();

  EXPECT_EQ(ends.load(), 1);
  EXPECT_TRUE(loop.isTerminated());
}

}  // namespace
}  // namespace millrace
