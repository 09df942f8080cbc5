// SPDX-License-Identifier: Apache-2.0
// What timers cost in memory.
#include "support/engines.h"
#include "support/heap_count.h"
#include "support/scripted_engine.h"

#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace millrace {
namespace {

using std::chrono::hours;
using test::ScriptedLoop;

// Fewer under sanitizers, which are slow and see leaks themselves.
const int kMany = test::countsHeap() ? 1'000'000 : 50'000;

// Memory that the process has asked for, by whatever call: KiB.
std::int64_t dataKiB() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::int64_t size = 0;
  while (status >> word) {
    if (word == "VmData:") status >> size;
  }
  return size;
}

// C165
TEST(TimerMemory, IsTakenWithTheFirstTimer) {
  const Ref<EventLoop> loop = EventLoop::handDriven();
  const auto inLoop = [&](const std::function<void()>& fn) {
    std::uint64_t calls = 0;
    loop->execute([&] {
      const std::uint64_t before = test::heapCallsOfThread();
      fn();
      calls = test::heapCallsOfThread() - before;
    });
    loop->runNow();
    return calls;
  };
  for (int i = 0; i < 100; ++i) loop->execute([] {});
  loop->runNow();
  std::uint64_t duringTasks = test::heapCallsOfThread();
  for (int i = 0; i < 3; ++i) loop->runNow();
  duringTasks = test::heapCallsOfThread() - duringTasks;

  const std::uint64_t first = inLoop([&] { loop->schedule(hours(1), [] {}); });

  EXPECT_EQ(duringTasks, 0U);
  EXPECT_TRUE(!test::countsHeap() || first > 0);
}

// C173
TEST(TimerMemory, DoesNotGrowWithTimersThatWereCancelled) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));
  const auto churn = [&](int times) {
    loop->execute([&, times] {
      for (int i = 0; i < times; ++i) loop->schedule(hours(1 + i % 50), [] {}).cancel();
    });
    loop->runNow();
  };
  churn(kMany / 10);
  const std::int64_t before = dataKiB();
  const std::int64_t heapBefore = test::heapBytes();

  for (int i = 0; i < 10; ++i) churn(kMany / 10);

  EXPECT_LT(test::heapBytes() - heapBefore, 64 * 1024);
  EXPECT_TRUE(!test::countsHeap() || dataKiB() - before < 4 * 1024);
}

// C173: with others that stay armed, cancelled in another order than scheduled
TEST(TimerMemory, StaysWithinTwiceWhatLives) {
  ScriptedLoop loop;
  loop->execute([&] {
    std::vector<ScheduledFuture> timers;
    for (int i = 0; i < 1000; ++i) timers.push_back(loop->schedule(hours(1), [] {}));
    for (int i = 0; i < kMany / 10; ++i) {
      ScheduledFuture& one = timers[static_cast<std::size_t>(i * 7919 % 1000)];
      EXPECT_TRUE(one.cancel());
      one = loop->schedule(hours(1 + i % 24), [] {});
    }
  });
  const std::int64_t before = test::heapBytes();

  loop->runNow();

  EXPECT_LT(test::heapBytes() - before, 1024 * 1024);
}

// C173: from outside; the loop is woken now and then to look at what was posted
TEST(TimerMemory, DoesNotGrowWithTimersCancelledFromOutside) {
  EventLoopGroup group(1);
  EventLoop& loop = *group.begin();
  const auto churn = [&](int times) {
    for (int i = 0; i < times; ++i) loop.schedule(hours(1), [] {}).cancel();
    loop.submit([] {}).sync();
  };
  churn(kMany / 10);
  const std::int64_t before = test::heapBytes();

  for (int i = 0; i < 5; ++i) churn(kMany / 10);

  EXPECT_LT(test::heapBytes() - before, 1024 * 1024);
}

// C174
TEST(TimerMemory, IsNotAllocatedForEachTimerInTheLongRun) {
  ScriptedLoop loop;
  std::uint64_t calls = 0;
  loop->execute([&] {
    std::vector<ScheduledFuture> idle(1000);  // as one for each connection
    const auto touchAll = [&] {
      for (ScheduledFuture& timer : idle) {
        if (timer.valid()) timer.cancel();
        timer = loop->schedule(std::chrono::seconds(60), [&idle] { idle.clear(); });
      }
    };
    for (int i = 0; i < 10; ++i) touchAll();
    const std::uint64_t before = test::heapCallsOfThread();
    for (int i = 0; i < 20; ++i) touchAll();
    calls = test::heapCallsOfThread() - before;
    for (const ScheduledFuture& timer : idle) timer.cancel();
  });

  loop->runNow();

  EXPECT_LT(calls, 20'000U / 100);  // the queue shrinks and grows now and then; timers cost nothing
}

}  // namespace
}  // namespace millrace
