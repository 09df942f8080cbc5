// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <sched.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::FaultScript;
using testing::HasSubstr;

std::string ownName() {
  char name[16] = "";
  ::prctl(PR_GET_NAME, name);
  return name;
}

TEST(Thread, RunsItsBodyUnderItsName) {
  std::string name;
  std::uint64_t id = 0;

  Thread thread = startThread("mr-1-1", [&] {
                    name = ownName();
                    id = currentThread();
                  }).orThrow();
  const std::uint64_t seen = thread.id();
  ASSERT_TRUE(thread.joinable());
  thread.join();

  EXPECT_EQ(name, "mr-1-1");
  EXPECT_EQ(id, seen);
  EXPECT_NE(id, currentThread());
  EXPECT_FALSE(thread.joinable());
  EXPECT_EQ(thread.id(), 0u);
}

TEST(Thread, DestroysItsBodyOnTheThread) {
  std::int64_t diedOn = 0;
  std::int64_t ranOn = 0;
  const auto mark = [&diedOn](int* p) {
    diedOn = threadId();
    delete p;
  };
  std::shared_ptr<int> held(new int(1), mark);

  startThread("t", [held = std::move(held), &ranOn] { ranOn = threadId(); }).orThrow().join();

  EXPECT_EQ(diedOn, ranOn);
  EXPECT_NE(diedOn, threadId());
}

TEST(Thread, CanBeMovedAndDetached) {
  auto done = std::make_shared<std::atomic<bool>>(false);
  Thread first = startThread("t", [done] { done->store(true); }).orThrow();
  Thread second(std::move(first));
  Thread third;
  third = std::move(second);
  EXPECT_FALSE(first.joinable());   // NOLINT: moved-from has no thread by contract
  EXPECT_FALSE(second.joinable());  // NOLINT

  third.detach();

  EXPECT_FALSE(third.joinable());
  while (!done->load()) std::atomic_thread_fence(std::memory_order_seq_cst), ::sched_yield();
}

TEST(Thread, ThatCannotBeMadeNamesTheRemedy) {
  FaultScript script;
  script.fail("pthread_create", 1, EAGAIN).fail("pthread_create", 1, EAGAIN);
  auto held = std::make_shared<int>(1);

  const Result<Thread> result = startThread("mr-io-3", [held] {});

  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().errnoValue(), EAGAIN);
  EXPECT_THAT(result.error().message(),
              HasSubstr("pthread_create mr-io-3 (no more threads: raise ulimit -u"));
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Thread, OtherFailuresSayWhatTheyAre) {
  FaultScript script;
  script.fail("pthread_create", 1, EPERM);

  EXPECT_EQ(startThread("t", [] {}).error().message(), "pthread_create t: Operation not permitted");
}

TEST(ThreadDeathTest, MistakesEndTheProcess) {
  EXPECT_DEATH(Thread().join(), "Thread::join\\(\\) without a thread");
  EXPECT_DEATH(Thread().detach(), "Thread::detach\\(\\) without a thread");
  EXPECT_DEATH({ const Thread lost = startThread("t", [] {}).orThrow(); },
               "a Thread died before it was joined or detached");
  EXPECT_DEATH(
      {
        Thread thread = startThread("t", [] {}).orThrow();
        thread = Thread();
      },
      "a Thread was assigned to before");
}

TEST(ThreadDeathTest, WhatABodyThrowsEndsTheProcess) {
  EXPECT_DEATH(startThread("t", [] { throw std::runtime_error("from the body"); }).orThrow().join(),
               "from the body");
}

TEST(ThreadName, IsCutToWhatTheKernelKeeps) {
  const std::string before = ownName();

  setThreadName("a-name-longer-than-fifteen");
  EXPECT_EQ(ownName(), "a-name-longer-t");
  setThreadName("");
  EXPECT_EQ(ownName(), "");

  setThreadName(before);
}

TEST(ThreadId, IsTheKernelsNumber) {
  EXPECT_EQ(threadId(), static_cast<std::int64_t>(::gettid()));
  EXPECT_EQ(threadId(), static_cast<std::int64_t>(::gettid()));
}

TEST(ThreadId, IsRightInAForkedChild) {
  static_cast<void>(threadId());

  const pid_t child = ::fork();
  if (child == 0) ::_exit(threadId() == ::getpid() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);

  EXPECT_EQ(status, 0);
}

TEST(TimerSlack, IsSetForTheCallingThread) {
  startThread("t",
              [] {
                EXPECT_TRUE(setTimerSlack(1).ok());
                EXPECT_EQ(::prctl(PR_GET_TIMERSLACK), 1);
              })
      .orThrow()
      .join();
  EXPECT_NE(::prctl(PR_GET_TIMERSLACK), 1);
}

TEST(TimerSlack, FailureIsReported) {
  FaultScript script;
  script.fail("prctl", 1, EPERM);

  EXPECT_EQ(setTimerSlack(1).error().message(),
            "prctl(PR_SET_TIMERSLACK) 1: Operation not permitted");
}

TEST(ThreadNice, IsSetForTheCallingThreadOnly) {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  const int nicer = std::min(before + 1, 19);

  const auto body = [nicer] {
    EXPECT_TRUE(setThreadPriority(nicer).ok());
    EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), nicer);
  };
  startThread("t", body).orThrow().join();

  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), before);
}

TEST(ThreadNice, FailureIsReported) {
  FaultScript script;
  script.fail("setpriority", 1, EACCES);

  EXPECT_EQ(setThreadPriority(-5).error().message(), "setpriority -5: Permission denied");
}

TEST(PinThread, BindsTheCallingThreadOnly) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;

  startThread("t",
              [cpu] {
                EXPECT_TRUE(pinThread({cpu}).ok());
                cpu_set_t now;
                EXPECT_EQ(::sched_getaffinity(0, sizeof now, &now), 0);
                EXPECT_EQ(CPU_COUNT(&now), 1);
                EXPECT_TRUE(CPU_ISSET(cpu, &now));
              })
      .orThrow()
      .join();

  cpu_set_t after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(PinThread, RefusesWhatIsNoProcessor) {
  EXPECT_EQ(pinThread({}).error().message(), "sched_setaffinity no cpus: Invalid argument");
  EXPECT_EQ(pinThread({0, -1}).error().message(), "sched_setaffinity cpus 0,-1: Invalid argument");
  EXPECT_EQ(pinThread({5000}).error().errnoValue(), EINVAL);
}

}  // namespace
}  // namespace millrace
