// SPDX-License-Identifier: Apache-2.0
// Who wakes a sleeping loop, and until when it sleeps. On a scripted engine, so that "while it
// sleeps" is a place in the test and not a matter of luck.
#include "support/engines.h"
#include "support/scripted_engine.h"

#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using test::fromOutside;
using test::ScriptedLoop;

// Plays `asleep` during the next blocking wait, which then ends as woken if somebody woke it.
void duringTheNextSleep(ScriptedLoop& loop, std::function<void()> asleep) {
  test::EngineScript& script = *loop.script;
  script.onWait = [&script, asleep = std::move(asleep), done = false](Deadline until) mutable {
    if (until == Deadline::past() || std::exchange(done, true)) return WaitOutcome{};
    const int before = script.wakeups;
    asleep();
    return WaitOutcome{0, script.wakeups != before};
  };
}

// C090
TEST(Sleep, HasNoLimitWithoutTimers) {
  ScriptedLoop loop;

  loop.turn();

  EXPECT_EQ(loop.script->waits, (std::vector<Deadline>{Deadline::never()}));
}

// C091 C092
TEST(Sleep, LastsExactlyUntilTheNextTimer) {
  for (const Duration delay : {Duration(hours(1)), Duration(hours(1)) + Duration(1),
                               Duration(hours(1)) + Duration(500'123)}) {
    ScriptedLoop loop;
    const ScheduledFuture timer = loop->schedule(delay, [] {});
    loop->schedule(hours(2), [] {});

    loop.turn();  // arms
    loop.turn();

    ASSERT_EQ(loop.script->waits.size(), 2U);
    EXPECT_EQ(loop.script->waits[1], timer.deadline());
  }
}

// C091
TEST(Sleep, EndsWithTheRunsOwnLimitIfThatComesFirst) {
  ScriptedLoop loop;
  loop->schedule(hours(1), [] {});
  loop.turn();
  const Deadline limit = Deadline::after(minutes(1));

  loop->run(limit);

  EXPECT_EQ(loop.script->waits.back(), limit);
}

// C093
TEST(Sleep, IsALookWhenATimerIsDueAlready) {
  ScriptedLoop loop;
  int ran = 0;
  loop->scheduleAtFixedRate({}, Duration(1), [&] { ++ran; });
  loop.turn();  // arms

  for (int i = 1; i <= 5; ++i) {
    loop.turn();
    EXPECT_EQ(ran, i);
  }

  EXPECT_EQ(loop.script->waits, (std::vector<Deadline>(6, Deadline::past())));
}

// C094 C096 I3: lazy posts wake nobody, but are seen before the loop sleeps
TEST(Sleep, IsALookWhenALazyPostWaits) {
  ScriptedLoop loop;
  loop.turn();
  fromOutside([&] { loop->lazyExecute([] {}); });

  EXPECT_EQ(loop.turn(), 1U);

  EXPECT_EQ(loop.script->waits.back(), Deadline::past());
  EXPECT_EQ(loop.script->wakeups, 0);
}

// C095 C097 C101 I4
TEST(Wakeup, IsMadeOnceForManyPostsInOneSleep) {
  ScriptedLoop loop;
  int ran = 0;
  duringTheNextSleep(loop, [&] {
    fromOutside([&] {
      for (int i = 0; i < 60; ++i) loop->execute([&] { ++ran; });
    });
  });

  loop.turn();

  EXPECT_EQ(ran, 60);
  EXPECT_EQ(loop.script->wakeups, 1);
  EXPECT_EQ(loop->metrics().wakeups, 1U);
  EXPECT_EQ(loop->metrics().sleeps, 1U);
}

// C096 I4: one that lands just before the wait swallows none of the next sleep
TEST(Wakeup, IsMadeAnewInEverySleep) {
  ScriptedLoop loop;
  int ran = 0;

  for (int sleep = 1; sleep <= 5; ++sleep) {
    duringTheNextSleep(loop, [&] {
      for (int i = 0; i < 3; ++i) fromOutside([&] { loop->execute([&] { ++ran; }); });
    });
    loop.turn();
    EXPECT_EQ(loop.script->wakeups, sleep);
    EXPECT_EQ(ran, 3 * sleep);
  }

  EXPECT_EQ(loop->metrics().wakeups, 5U);
  EXPECT_EQ(loop->metrics().sleeps, 5U);
}

// C097 I4
TEST(Wakeup, IsNotMadeForALoopThatIsAwake) {
  ScriptedLoop loop;
  int ran = 0;
  loop->execute([&] {
    fromOutside([&] {
      for (int i = 0; i < 10; ++i) loop->execute([&] { ++ran; });
      loop->schedule(Duration(1), [&] { ++ran; });
      loop->executeAfterEventLoopIteration([&] { ++ran; });
    });
  });

  while (ran < 12) loop.turn();

  EXPECT_EQ(loop.script->wakeups, 0);
  EXPECT_EQ(loop->metrics().wakeups, 0U);
}

// C098 I4
TEST(Wakeup, IsNotMadeByTheLoopItself) {
  ScriptedLoop loop;
  int ran = 0;
  // Inside a wait, but on the loop's own thread.
  duringTheNextSleep(loop, [&] {
    loop->execute([&] { ++ran; });
    loop->schedule({}, [&] { ++ran; });
    loop->executeAfterEventLoopIteration([&] { ++ran; });
  });

  while (ran < 3) loop.turn();

  EXPECT_EQ(loop.script->wakeups, 0);
}

// C063 C097: a lazy post leaves the loop asleep; the next plain one wakes it, and both run in order
TEST(Wakeup, IsLeftToTheNextPostByALazyOne) {
  ScriptedLoop loop;
  std::string order;
  int afterLazy = -1;
  duringTheNextSleep(loop, [&] {
    fromOutside([&] {
      loop->lazyExecute([&] { order += 'a'; });
      afterLazy = loop.script->wakeups;
      loop->execute([&] { order += 'b'; });
    });
  });

  loop.turn();

  EXPECT_EQ(afterLazy, 0);
  EXPECT_EQ(loop.script->wakeups, 1);
  EXPECT_EQ(order, "ab");
}

// C168 I4
TEST(Wakeup, IsMadeForAnEarlierTimerOnly) {
  ScriptedLoop loop;
  loop->schedule(hours(1), [] {});
  loop.turn();
  std::vector<int> wakeups;
  duringTheNextSleep(loop, [&] {
    fromOutside([&] {
      for (const Duration delay :
           {Duration(hours(2)), Duration(hours(3)), Duration(minutes(30)), Duration(minutes(1))}) {
        loop->schedule(delay, [] {});
        wakeups.push_back(loop.script->wakeups);
      }
    });
  });

  loop.turn();

  EXPECT_EQ(wakeups, (std::vector<int>{0, 0, 1, 1}));
}

// C168: a later timer that woke nobody is armed nevertheless
TEST(Wakeup, IsNotNeededForALaterTimerToFire) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));
  std::string order;
  loop->schedule(minutes(1), [&] { order += '1'; });
  loop.turn();
  duringTheNextSleep(
      loop, [&] { fromOutside([&] { loop->schedule(minutes(2), [&] { order += '2'; }); }); });
  loop.turn();
  EXPECT_EQ(loop.script->wakeups, 0);

  clock.advance(minutes(1));
  loop.turn();
  EXPECT_EQ(order, "1");
  clock.advance(minutes(1));
  loop.turn();

  EXPECT_EQ(order, "12");
}

// C168: so many timers from outside that the inbox would swell wake the loop now and then
TEST(Wakeup, IsMadeForEvery1024thOutsideTimer) {
  ScriptedLoop loop;
  loop->schedule(hours(1), [] {});
  loop.turn();
  int before = -1;
  duringTheNextSleep(loop, [&] {
    fromOutside([&] {
      for (int i = 0; i < 1022; ++i) loop->schedule(hours(2), [] {});
      before = loop.script->wakeups;
      loop->schedule(hours(2), [] {});
    });
  });

  loop.turn();

  EXPECT_EQ(before, 0);
  EXPECT_EQ(loop.script->wakeups, 1);
}

// C155
TEST(Wakeup, IsMadeForATailTaskFromOutside) {
  ScriptedLoop loop;
  bool ran = false;
  duringTheNextSleep(loop, [&] {
    fromOutside([&] { loop->executeAfterEventLoopIteration([&] { ran = true; }); });
  });

  loop.turn();

  EXPECT_TRUE(ran);
  EXPECT_EQ(loop.script->wakeups, 1);
}

// C101: what was paid for is what the end waits for
TEST(Wakeup, IsAwaitedAtTheEndIfItWasPaidFor) {
  ScriptedLoop loop;
  for (int i = 0; i < 3; ++i) {
    duringTheNextSleep(loop, [&] { fromOutside([&] { loop->execute([] {}); }); });
    loop.turn();
  }

  static_cast<void>(loop->shutdownGracefully());
  loop.turn();

  EXPECT_TRUE(loop->isTerminated());
  EXPECT_EQ(loop.script->awaited, 3U);
}

// Rule 6 of the blueprint
TEST(ManualTime, NeverBecomesATimeoutOfTheKernel) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));
  loop->schedule(minutes(1), [] {});
  loop.turn();

  loop.turn();

  EXPECT_EQ(loop.script->waits.back(), Deadline::never());
}

// C091: the clock's move is what ends the sleep, once for many moves
TEST(ManualTime, WakesTheLoopThatSleepsWhenItMoves) {
  ManualClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock));
  bool ran = false;
  loop->schedule(minutes(1), [&] { ran = true; });
  loop.turn();
  duringTheNextSleep(loop, [&] {
    fromOutside([&] {
      for (int i = 0; i < 60; ++i) clock.advance(std::chrono::seconds(1));
    });
  });

  loop.turn();

  EXPECT_TRUE(ran);
  EXPECT_EQ(loop.script->wakeups, 1);
}

}  // namespace
}  // namespace millrace
