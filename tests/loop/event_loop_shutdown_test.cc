// SPDX-License-Identifier: Apache-2.0
// The states of a loop's end, quiet period and timeout. Hooks and resources:
// event_loop_end_test.cc.
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/loop_test.h"

#include <millrace/base/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using State = EventLoop::State;
using test::EngineProbe;
using test::Held;
using test::textOf;
using testing::AllOf;
using testing::HasSubstr;

/// A hand-driven loop on a clock of its own: every moment of the end can be looked at.
class QuietPeriod : public testing::Test {
 protected:
  QuietPeriod() : loop(EventLoop::handDriven(LoopOptions().clock(clock).io(io::parking()))) {
    loop->runNow();
    loop->execute([] {});
    loop->runNow();
  }
  void runUntilIdle() {
    while (loop->runNow() != 0) {
    }
    loop->runNow();
  }
  ManualClock clock{1'000'000'000'000};
  Ref<EventLoop> loop;
};

// C061 C225 C228 I1, behaviour 3.4: 12
TEST(EventLoopShutdown, RunsWhatIsQueuedAndGoesThroughItsStates) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  EXPECT_EQ(loop.state(), State::notStarted);
  std::vector<State> seen;
  int ran = 0;
  Future<ShutdownReport> end;
  {
    Held held(loop);
    EXPECT_EQ(loop.state(), State::started);
    EXPECT_FALSE(loop.isShuttingDown());
    for (int i = 0; i < 10; ++i) loop.execute([&] { ++ran; });
    end = loop.shutdownGracefully();

    EXPECT_TRUE(loop.isShuttingDown());  // from now on, though the loop is still busy
    EXPECT_TRUE(group.isShuttingDown());
    EXPECT_FALSE(loop.isShutdown());
    EXPECT_FALSE(loop.isTerminated());
    EXPECT_FALSE(loop.awaitTermination(Deadline::past()));
    loop.execute([&] {
      ++ran;
      seen.push_back(loop.state());
    });
    loop.addShutdownHook([&] {
      loop.execute([&] {    // runs before the inbox is closed
        loop.execute([&] {  // and this one behind it
          seen.push_back(loop.state());
          EXPECT_THROW(loop.execute([] {}), RejectedExecution);
          EXPECT_THROW(loop.executeAfterEventLoopIteration([] {}), RejectedExecution);
          EXPECT_THROW(static_cast<void>(loop.schedule(0s, [] {})), RejectedExecution);
        });
      });
    });
  }
  const ShutdownReport report = end.get();

  EXPECT_EQ(ran, 11);
  EXPECT_EQ(seen, (std::vector<State>{State::shuttingDown, State::shutdown}));
  EXPECT_EQ(loop.state(), State::terminated);
  EXPECT_TRUE(loop.isShuttingDown());
  EXPECT_TRUE(loop.isShutdown());
  EXPECT_TRUE(loop.isTerminated());
  EXPECT_TRUE(loop.awaitTermination(Deadline::past()));
  EXPECT_FALSE(report.timedOut);
  EXPECT_EQ(report.tasksRunAfterTimeout, 0U);
}

// C225: read from outside all along, the state never goes back
TEST(EventLoopShutdown, StatesNeverGoBack) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  std::atomic<bool> done{false};
  std::thread watcher([&] {
    State last = State::notStarted;
    while (!done.load()) {
      const State now = loop.state();
      EXPECT_GE(now, last);
      last = now;
    }
  });
  for (int i = 0; i < 100; ++i) loop.submit([] {}).get();

  loop.shutdownGracefully().get();
  done = true;
  watcher.join();
}

class EventLoopShutdownOn : public test::EngineTest {};

INSTANTIATE_TEST_SUITE_P(Engines, EventLoopShutdownOn, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

// C229 C231 I8: paid wakeups under way, sleeping and busy loops
TEST_P(EventLoopShutdownOn, EndsWhateverTheLoopIsDoing) {
  for (int round = 0; round < 100; ++round) {
    EventLoopGroup group(options().loops(1));
    expectEngine(group);
    EventLoop& loop = group.next();
    std::atomic<bool> stop{false};
    std::thread poster([&] {
      while (!stop.load() && loop.tryExecute([] {})) {
        if (loop.pendingTasks() > 100) std::this_thread::yield();
      }
    });
    if (round % 2 == 0) loop.submit([] {}).get();
    loop.shutdownGracefully(0s, 1ms).get();
    stop = true;
    poster.join();

    EXPECT_TRUE(loop.isTerminated());
  }
}

// C231: zero is our default
TEST_F(QuietPeriod, OfZeroEndsAtOnce) {
  Future<ShutdownReport> end = loop->shutdownGracefully();

  loop->runNow();

  EXPECT_TRUE(end.isDone());
  EXPECT_EQ(loop->state(), State::terminated);
}

// C231 C232, behaviour 3.4: 15
TEST_F(QuietPeriod, IsMadeLongerByEveryTask) {
  Future<ShutdownReport> end = loop->shutdownGracefully(2s, 15s);
  runUntilIdle();
  int ran = 0;

  for (int i = 0; i < 10; ++i) {
    clock.advance(1s);
    loop->execute([&] { ++ran; });  // still taken
    runUntilIdle();
    ASSERT_EQ(loop->state(), State::shuttingDown);
  }
  clock.advance(1999ms);
  runUntilIdle();
  EXPECT_EQ(loop->state(), State::shuttingDown);
  EXPECT_TRUE(loop->isShuttingDown());
  EXPECT_FALSE(loop->isShutdown());
  clock.advance(1ms);
  runUntilIdle();

  EXPECT_EQ(ran, 10);
  EXPECT_EQ(loop->state(), State::terminated);
  EXPECT_FALSE(end.get().timedOut);
}

// C064 C231
TEST_F(QuietPeriod, IsNotMadeLongerByMereWakeups) {
  Future<ShutdownReport> end = loop->shutdownGracefully(10s, 60s);

  for (int i = 0; i < 9; ++i) {
    clock.advance(1s);  // each wakes the loop
    runUntilIdle();
    ASSERT_EQ(loop->state(), State::shuttingDown);
  }
  clock.advance(1s);
  runUntilIdle();

  EXPECT_TRUE(end.isDone());
}

// C231: tail tasks are tasks
TEST_F(QuietPeriod, IsMadeLongerByATailTask) {
  Future<ShutdownReport> end = loop->shutdownGracefully(10s, 60s);
  clock.advance(9s);
  loop->executeAfterEventLoopIteration([] {});
  runUntilIdle();
  clock.advance(9s);
  runUntilIdle();

  EXPECT_FALSE(end.isDone());
  clock.advance(1s);
  runUntilIdle();
  EXPECT_TRUE(end.isDone());
}

// C231, behaviour 3.4: 16
TEST_F(QuietPeriod, IsCutByTheTimeout) {
  Future<ShutdownReport> end = loop->shutdownGracefully(2s, 5s);
  runUntilIdle();
  for (int i = 0; i < 4; ++i) {
    clock.advance(1s);
    loop->execute([] {});
    runUntilIdle();
    ASSERT_EQ(loop->state(), State::shuttingDown);
  }
  clock.advance(1s);
  int ran = 0;
  loop->execute([&] { ++ran; });  // taken: nobody has looked at the clock yet
  loop->runNow();

  EXPECT_EQ(ran, 1);
  EXPECT_EQ(loop->state(), State::terminated);
  EXPECT_TRUE(end.get().timedOut);
  EXPECT_FALSE(loop->tryExecute([] {}));
}

// C231: a task that never ends posting
TEST_F(QuietPeriod, OfZeroStillWaitsForTasksUntilTheTimeout) {
  int ran = 0;
  int rejected = 0;
  std::function<void()> again = [&] {
    ++ran;
    if (!loop->tryExecute([&] { again(); })) ++rejected;
  };
  loop->execute([&] { again(); });
  Future<ShutdownReport> end = loop->shutdownGracefully(0s, 5s);

  for (int i = 0; i < 100; ++i) loop->runNow();
  EXPECT_EQ(loop->state(), State::shuttingDown);
  EXPECT_EQ(ran, 100);
  clock.advance(5s);
  loop->runNow();

  EXPECT_EQ(loop->state(), State::terminated);
  EXPECT_EQ(ran, 102);  // one in the turn, and the one that was accepted before the end
  EXPECT_EQ(rejected, 1);
  EXPECT_TRUE(end.get().timedOut);
  EXPECT_EQ(end.get().tasksRunAfterTimeout, 1U);
}

// behaviour 3.1: (e)
TEST_F(QuietPeriod, IsNotShortenedByASecondCallButCanBeMadeLonger) {
  Future<ShutdownReport> end = loop->shutdownGracefully(10s, 20s);
  runUntilIdle();

  EXPECT_EQ(loop->shutdownGracefully(0s, 0s), end);
  clock.advance(9s);
  runUntilIdle();
  EXPECT_EQ(loop->state(), State::shuttingDown);
  EXPECT_EQ(loop->shutdownGracefully(15s, 20s), end);
  clock.advance(5s);
  runUntilIdle();
  EXPECT_EQ(loop->state(), State::shuttingDown);
  clock.advance(1s);
  runUntilIdle();

  EXPECT_EQ(loop->state(), State::terminated);
  EXPECT_EQ(loop->shutdownGracefully(1h, 2h), end);
  EXPECT_EQ(loop->terminationFuture(), end);
}

// C231: nothing was done for long before the end was asked for
TEST_F(QuietPeriod, OfALoopThatHasBeenIdleLongEnoughIsOver) {
  clock.advance(1h);

  Future<ShutdownReport> end = loop->shutdownGracefully(10s, 20s);
  runUntilIdle();

  EXPECT_TRUE(end.isDone());
}

// C231 C232: the same on a thread, woken by the clock
TEST(EventLoopShutdown, KeepsItsQuietPeriodOnAThreadOfItsOwn) {
  ManualClock clock;
  auto probe = EngineProbe::make();
  EventLoopGroup group(LoopOptions().loops(1).clock(clock).io(probe->factory()));
  EventLoop& loop = group.next();
  loop.submit([] {}).get();

  Future<ShutdownReport> end = group.shutdownGracefully(2s, 15s);
  clock.advance(1s);
  EXPECT_EQ(loop.submit([] { return 8; }).get(), 8);
  probe->awaitAsleep();
  EXPECT_FALSE(end.isDone());
  clock.advance(1999ms);
  probe->awaitAsleep();
  EXPECT_FALSE(end.isDone());
  clock.advance(1ms);

  EXPECT_FALSE(end.get().timedOut);
}

// C231: and on the machine's clock, where the sleep itself must end in time
TEST(EventLoopShutdown, KeepsItsQuietPeriodOnTheRealClock) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  const std::int64_t before = Clock::real().nanos();
  loop.submit([] {}).get();

  loop.shutdownGracefully(20ms, 1h).get();

  EXPECT_GE(Clock::real().nanos() - before, 20'000'000);
}

// behaviour 3.1: (d)
TEST(EventLoopShutdown, RefusesPeriodsThatMakeNoSense) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();

  EXPECT_THAT(
      textOf<std::invalid_argument>([&] { static_cast<void>(loop.shutdownGracefully(2s, 1s)); }),
      AllOf(HasSubstr("shutdownGracefully(2000000000ns, 1000000000ns)"), HasSubstr("timeout")));
  EXPECT_THROW(static_cast<void>(loop.shutdownGracefully(-1ns, 1s)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(group.shutdownGracefully(0s, -1ns)), std::invalid_argument);
  EXPECT_FALSE(loop.isShuttingDown());
  EXPECT_EQ(loop.submit([] { return 1; }).get(), 1);
}

// C233: ours needs no thread for it
TEST(EventLoopShutdown, OfALoopThatNeverStartedHappensOnTheCallersThread) {
  test::FaultScript calls;
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  std::vector<std::string> order;
  const std::thread::id me = std::this_thread::get_id();
  loop.executeAfterEventLoopIteration([&] { order.emplace_back("tail"); });
  loop.beforeShutdown([&] { order.emplace_back("before"); });
  loop.addShutdownHook([&] {
    order.emplace_back("hook");
    EXPECT_EQ(std::this_thread::get_id(), me);
    EXPECT_TRUE(loop.inEventLoop());
    loop.execute([&] { order.emplace_back("task"); });
  });

  Future<ShutdownReport> end = loop.shutdownGracefully(2s, 15s);

  EXPECT_TRUE(end.isSuccess());
  EXPECT_TRUE(loop.isTerminated());
  EXPECT_EQ(order, (std::vector<std::string>{"tail", "before", "hook", "task"}));
  EXPECT_EQ(calls.count("close"), 2U);  // selector and wakeup descriptor
  EXPECT_EQ(EventLoop::current(), nullptr);
  EXPECT_EQ(loop.shutdownGracefully(), end);
}

// C233 I6: against a first post
TEST(EventLoopShutdown, RacesWithTheFirstPostWithoutLosingIt) {
  for (int round = 0; round < 300; ++round) {
    EventLoopGroup group(1, io::parking());
    EventLoop& loop = group.next();
    int ran = 0;
    bool accepted = false;
    std::latch start(2);
    std::thread poster([&] {
      start.arrive_and_wait();
      accepted = loop.tryExecute([&] { ++ran; });
    });
    start.arrive_and_wait();
    loop.shutdownGracefully().get();
    poster.join();

    EXPECT_EQ(ran, accepted ? 1 : 0);
    EXPECT_TRUE(loop.isTerminated());
  }
}

// C072 C225: asked for by a task of its own
TEST(EventLoopShutdown, CanBeAskedForOnTheLoopItself) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();

  loop.execute([&] { static_cast<void>(loop.shutdownGracefully()); });

  EXPECT_TRUE(loop.awaitTermination(Deadline::never()));
}

}  // namespace
}  // namespace millrace
