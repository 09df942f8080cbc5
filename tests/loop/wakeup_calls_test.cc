// SPDX-License-Identifier: Apache-2.0
// Sleeping and waking on the real engines, counted in system calls.
#include "support/call_hooks.h"
#include "support/engines.h"
#include "support/fault_script.h"

#include <millrace/base/manual_clock.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/epoll.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <future>
#include <latch>
#include <pthread.h>
#include <sys/epoll.h>

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using test::eventually;
using test::FaultScript;

class WakeupCalls : public test::EngineTest {
 protected:
  // Calls that may block. A loop without watches makes one for each sleep, and only then.
  static std::uint64_t sleeps(const FaultScript& script) {
    return script.count("epoll_pwait2") + script.count("epoll_wait") + script.count("ppoll") +
           script.count("io_uring_enter");
  }
  // Starts the only loop of `group` and waits until it sleeps for good: the post that starts it may
  // itself find the loop asleep again, and then ends that sleep by a write.
  static EventLoop& asleep(EventLoopGroup& group, const FaultScript& script) {
    const std::uint64_t before = sleeps(script);
    const std::uint64_t written = script.count("write");
    EventLoop& loop = *group.begin();
    loop.submit([] {}).sync();
    const std::uint64_t expected = before + 1 + script.count("write") - written;
    EXPECT_TRUE(eventually([&] { return sleeps(script) == expected; }));
    return loop;
  }
};

// C095 C097 I4
TEST_P(WakeupCalls, ManyPostsToASleepingLoopMakeOneWrite) {
  const FaultScript script;
  std::latch posted(1);
  std::atomic<int> ran{0};
  EventLoopGroup group(options().loops(1));
  expectEngine(group);
  EventLoop& loop = asleep(group, script);
  const std::uint64_t before = script.count("write");
  const std::uint64_t wakeups = loop.metrics().wakeups;

  loop.execute([&] { posted.wait(); });
  for (int i = 0; i < 1000; ++i) loop.execute([&] { ++ran; });
  const std::uint64_t writes = script.count("write") - before;
  posted.count_down();

  EXPECT_EQ(writes, 1U);
  EXPECT_TRUE(eventually([&] { return ran == 1000; }));
  EXPECT_EQ(loop.metrics().wakeups, wakeups + 1);
}

// C098
TEST_P(WakeupCalls, InLoopPostsMakeNoCallAtAll) {
  const FaultScript script;
  std::promise<std::uint64_t> calls;
  EventLoopGroup group(options().loops(1));
  EventLoop& loop = asleep(group, script);

  loop.execute([&, ran = std::make_shared<int>(0)] {
    const std::uint64_t before = script.total();
    for (int i = 0; i < 1000; ++i) {
      loop.execute([&, ran, before] {
        if (++*ran == 1000) calls.set_value(script.total() - before);
      });
    }
  });

  EXPECT_EQ(calls.get_future().get(), 0U);
}

// C168
TEST_P(WakeupCalls, LaterTimersMakeNoWriteAndEarlierOnesMakeOne) {
  const FaultScript script;
  EventLoopGroup group(options().loops(1));
  EventLoop& loop = asleep(group, script);
  const std::uint64_t slept = sleeps(script);
  loop.submit([&] { loop.schedule(hours(1), [] {}); }).sync();
  ASSERT_TRUE(eventually([&] { return sleeps(script) == slept + 1; }));
  const std::uint64_t before = script.count("write");

  for (int i = 0; i < 100; ++i) loop.schedule(hours(2), [] {});
  EXPECT_EQ(script.count("write"), before);
  loop.schedule({}, [] {}).future().sync();

  EXPECT_EQ(script.count("write"), before + 1);
}

// C097 C101 I4: behaviour 3.7, number 2. An edge-triggered eventfd is never read, one in level mode
// once for each wakeup; each write ends one sleep, and the next write the next one.
TEST_P(WakeupCalls, EachWriteEndsOneSleep) {
  const FaultScript script;
  EventLoopGroup group(options().loops(1));
  EventLoop& loop = asleep(group, script);
  const std::uint64_t writes = script.count("write");
  const std::uint64_t reads = script.count("read");
  const std::uint64_t slept = sleeps(script);
  const LoopMetrics before = loop.metrics();

  for (std::uint64_t i = 1; i <= 100; ++i) {
    loop.execute([] {});
    ASSERT_TRUE(eventually([&] { return sleeps(script) == slept + i; }));
    EXPECT_EQ(script.count("write"), writes + i);
  }

  EXPECT_EQ(script.count("read") - reads, GetParam().hasEdge ? 0U : 100U);
  const LoopMetrics after = loop.metrics();
  EXPECT_EQ(after.wakeups - before.wakeups, 100U);
  EXPECT_EQ(after.sleeps - before.sleeps, 100U);
  EXPECT_EQ(after.prematureReturns, 0U);
}

// C100: behaviour 3.6, number 3
TEST_P(WakeupCalls, BrokenBySignalsAreMadeAgain) {
  FaultScript script;
  script.interruptFirstTries();
  EventLoopGroup group(options().loops(1));
  EventLoop& loop = *group.begin();

  for (int i = 0; i < 50; ++i) EXPECT_EQ(loop.submit([i] { return i; }).get(), i);
  const ScheduledFuture timer = loop.schedule(milliseconds(2), [] {});
  timer.future().sync();
  EXPECT_GE(Clock::real().nanos(), timer.deadline().nanos());
  group.shutdownGracefully().sync();

  EXPECT_GT(script.faults(), 10U);
  EXPECT_EQ(loop.metrics().prematureReturns, 0U);
  EXPECT_EQ(loop.metrics().failures, 0U);
}

// C100: real signals, one sleep
TEST_P(WakeupCalls, SignalsNeitherEndNorStallASleep) {
  struct sigaction handler {};
  struct sigaction before {};
  handler.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &handler, &before), 0);
  const FaultScript script;
  const Ref<EventLoop> loop = handDriven();
  const pthread_t sleeper = ::pthread_self();

  std::thread other([&] {
    EXPECT_TRUE(eventually([&] { return sleeps(script) == 1; }));
    for (std::uint64_t i = 1; i <= 20; ++i) {
      const std::uint64_t seen = sleeps(script);
      // A signal that comes just before the call breaks nothing: until one does.
      EXPECT_TRUE(eventually([&] {
        ::pthread_kill(sleeper, SIGUSR1);
        return sleeps(script) > seen;
      }));
    }
    loop->execute([] {});
  });
  const std::size_t ran = loop->run(Deadline::never());
  other.join();
  ::sigaction(SIGUSR1, &before, nullptr);

  EXPECT_EQ(ran, 1U);
  EXPECT_GE(sleeps(script), 21U);
  EXPECT_EQ(loop->metrics().sleeps, 1U);
  EXPECT_EQ(loop->metrics().prematureReturns, 0U);
  EXPECT_EQ(loop->metrics().rebuilds, 0U);
}

INSTANTIATE_TEST_SUITE_P(Engines, WakeupCalls, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

class IdleLoop : public test::EngineTest {};

// C090: rule 3 of the blueprint. The time is measured by the ticks of another loop, which sleeps in
// a futex; three equal observations in a row, or the test fails by its limit.
TEST_P(IdleLoop, MakesNoSystemCall) {
  const FaultScript script;
  EventLoopGroup group(options().loops(1));
  expectEngine(group);
  EventLoop& loop = *group.begin();
  loop.submit([] {}).sync();
  EventLoopGroup metronome(LoopOptions().loops(1).io(io::parking()));
  const auto observe = [&] {
    metronome.schedule(milliseconds(20), [] {}).future().sync();
    std::vector<std::uint64_t> seen{
        static_cast<std::uint64_t>(test::voluntarySwitches(loop.threadId())), loop.metrics().sleeps,
        loop.metrics().turns};
    for (const char* call :
         {"epoll_pwait2", "epoll_wait", "epoll_ctl", "ppoll", "io_uring_enter", "read", "write"}) {
      seen.push_back(script.count(call));
    }
    return seen;
  };

  EXPECT_TRUE(eventually([&] {
    const auto first = observe();
    return observe() == first && observe() == first && observe() == first;
  }));

  EXPECT_GT(test::voluntarySwitches(loop.threadId()), 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, IdleLoop, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

class EndOfSleep : public test::EngineTest {
 protected:
  // A turn that fails the test instead of hanging.
  static std::size_t turn(EventLoop& loop) {
    return loop.run(Deadline::after(std::chrono::minutes(1)));
  }
};

// C099
TEST_P(EndOfSleep, ComesWithATaskFromAnotherThread) {
  const Ref<EventLoop> loop = handDriven();
  std::thread other([&] {
    EXPECT_TRUE(eventually([&] { return loop->metrics().sleeps == 1; }));
    loop->execute([] {});
  });

  EXPECT_EQ(turn(*loop), 1U);

  other.join();
}

// C099
TEST_P(EndOfSleep, ComesWithATaskThatWokeNobody) {
  const Ref<EventLoop> loop = handDriven();
  loop->lazyExecute([] {});

  EXPECT_EQ(turn(*loop), 1U);
}

// C091 C092 C099 I5
TEST_P(EndOfSleep, ComesWithADueTimerAndNotBefore) {
  const Ref<EventLoop> loop = handDriven();
  for (const Duration delay :
       {Duration(1), Duration(1'500), Duration(700'000), Duration(30'000'000)}) {
    std::int64_t at = 0;
    const ScheduledFuture timer = loop->schedule(delay, [&] { at = Clock::real().nanos(); });
    loop->runNow();

    while (at == 0) turn(*loop);

    EXPECT_GE(at, timer.deadline().nanos());
  }
  EXPECT_EQ(loop->metrics().prematureReturns, 0U);
}

INSTANTIATE_TEST_SUITE_P(Engines, EndOfSleep, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

class PingPong : public test::EngineTest {};

// C094 C096 C101 I3 I4: a wakeup that is lost stops the game
TEST_P(PingPong, BetweenTwoLoopsLosesNoWakeup) {
  constexpr int kRounds = 5000;
  std::promise<void> over;
  EventLoopGroup group(options().loops(2));
  EventLoop& ping = *group.begin();
  EventLoop& pong = *++group.begin();
  std::function<void(int)> play = [&](int left) {
    if (left == 0) return over.set_value();
    EventLoop& other = left % 2 == 0 ? ping : pong;
    other.execute([&, left] { play(left - 1); });
  };

  ping.execute([&] { play(kRounds); });

  ASSERT_EQ(over.get_future().wait_for(std::chrono::seconds(100)), std::future_status::ready);
  const LoopMetrics metrics = group.metrics();
  EXPECT_LE(metrics.wakeups, metrics.sleeps);
  EXPECT_EQ(metrics.prematureReturns, 0U);
  group.shutdownGracefully().sync();
}

INSTANTIATE_TEST_SUITE_P(Engines, PingPong, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

}  // namespace
}  // namespace millrace
