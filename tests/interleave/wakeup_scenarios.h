// SPDX-License-Identifier: Apache-2.0
// What must hold for the wakeup of a loop, for every implementation that has the calls of
// WakeupModel: nothing is lost, accepted tasks run exactly once, timers fire at their time, a sleep
// costs at most one wakeup, and no wakeup is written to a closed descriptor.
#pragma once

#include "explorer.h"

namespace millrace::explorer {

// Tasks of the scenarios.
constexpr int kFirst = 1;
constexpr int kSecond = 2;
constexpr int kLazy = 3;
constexpr int kOwnTimer = 4;
constexpr int kForeignTimer = 5;

template <class Loop>
struct LoopState {
  Loop loop;
  bool accepted[6] = {};

  void checkEnd() const {
    for (int id = 1; id <= kLazy; ++id) {
      EXPLORE_CHECK(loop.ran(id) == (accepted[id] ? 1 : 0),
                    "an accepted task runs exactly once, a refused one never");
    }
    EXPLORE_CHECK(loop.writes() <= loop.sleeps(), "at most one wakeup per sleep");
  }
};

/// One task, one producer. With `ioEvents` the loop may also wake up by itself.
template <class Loop>
Scenario executeOnce(int ioEvents = 0) {
  return [ioEvents](Execution& run) {
    auto& s = run.make<LoopState<Loop>>();
    s.loop.allowIoEvents(ioEvents);
    run.thread("loop", [&s] {
      s.loop.runUntil(kFirst);
      s.loop.shutdown();
    });
    run.thread("producer", [&s] { s.accepted[kFirst] = s.loop.execute(kFirst); });
    run.finally([&s] { s.checkEnd(); });
  };
}

/// One producer, two tasks in a row: the loop may sleep in between.
template <class Loop>
Scenario executeTwice() {
  return [](Execution& run) {
    auto& s = run.make<LoopState<Loop>>();
    run.thread("loop", [&s] {
      s.loop.runUntil(kSecond);
      s.loop.shutdown();
    });
    run.thread("producer", [&s] {
      s.accepted[kFirst] = s.loop.execute(kFirst);
      s.accepted[kSecond] = s.loop.execute(kSecond);
    });
    run.finally([&s] { s.checkEnd(); });
  };
}

/// Two producers; the loop waits for both.
template <class Loop>
Scenario executeAndExecute() {
  return [](Execution& run) {
    auto& s = run.make<LoopState<Loop>>();
    run.thread("loop", [&s] {
      s.loop.runUntil(kFirst);
      s.loop.runUntil(kSecond);
      s.loop.shutdown();
    });
    run.thread("producer1", [&s] { s.accepted[kFirst] = s.loop.execute(kFirst); });
    run.thread("producer2", [&s] { s.accepted[kSecond] = s.loop.execute(kSecond); });
    run.finally([&s] { s.checkEnd(); });
  };
}

/// Two producers; the loop shuts down after the first task, whatever becomes of the other.
template <class Loop>
Scenario executeAndShutdown(int ioEvents) {
  return [ioEvents](Execution& run) {
    auto& s = run.make<LoopState<Loop>>();
    s.loop.allowIoEvents(ioEvents);
    run.thread("loop", [&s] {
      s.loop.runUntil(kFirst);
      s.loop.shutdown();
    });
    run.thread("producer1", [&s] { s.accepted[kFirst] = s.loop.execute(kFirst); });
    run.thread("producer2", [&s] { s.accepted[kSecond] = s.loop.execute(kSecond); });
    run.finally([&s] { s.checkEnd(); });
  };
}

/// A lazy task wakes nobody, and must not keep another one from waking the loop.
template <class Loop>
Scenario lazyAndExecute() {
  return [](Execution& run) {
    auto& s = run.make<LoopState<Loop>>();
    run.thread("loop", [&s] {
      s.loop.runUntil(kFirst);
      s.loop.shutdown();
    });
    run.thread("lazy", [&s] { s.accepted[kLazy] = s.loop.lazyExecute(kLazy); });
    run.thread("producer", [&s] { s.accepted[kFirst] = s.loop.execute(kFirst); });
    run.finally([&s] { s.checkEnd(); });
  };
}

/// A timer from outside that is due before the loop's own: it fires at its time, not when the loop
/// wakes anyway.
template <class Loop>
Scenario earlierTimer(bool andExecute) {
  return [andExecute](Execution& run) {
    auto& s = run.make<LoopState<Loop>>();
    s.loop.arm(kOwnTimer, 100);
    run.thread("loop", [&s] {
      s.loop.runUntil(kOwnTimer);
      s.loop.shutdown();
    });
    run.thread("scheduler", [&s] { s.loop.schedule(kForeignTimer, 50); });
    if (andExecute) run.thread("producer", [&s] { s.accepted[kFirst] = s.loop.execute(kFirst); });
    run.finally([&s] {
      EXPLORE_CHECK(s.loop.firedAt(kForeignTimer) == 50, "the earlier timer fires in time");
      EXPLORE_CHECK(s.loop.firedAt(kOwnTimer) == 100, "the later timer fires in time");
      s.checkEnd();
    });
  };
}

/// A timer from outside that is due after the loop's own: it wakes nobody, and fires at its time.
template <class Loop>
Scenario laterTimer(bool andExecute) {
  return [andExecute](Execution& run) {
    auto& s = run.make<LoopState<Loop>>();
    s.loop.arm(kOwnTimer, 100);
    run.thread("loop", [&s] {
      s.loop.runUntil(kForeignTimer);
      s.loop.shutdown();
    });
    run.thread("scheduler", [&s] { s.loop.schedule(kForeignTimer, 200); });
    if (andExecute) run.thread("producer", [&s] { s.accepted[kFirst] = s.loop.execute(kFirst); });
    run.finally([&s, andExecute] {
      EXPLORE_CHECK(s.loop.firedAt(kOwnTimer) == 100, "the earlier timer fires in time");
      EXPLORE_CHECK(s.loop.firedAt(kForeignTimer) == 200, "the later timer fires in time");
      EXPLORE_CHECK(andExecute || s.loop.writes() == 0, "a later timer wakes nobody");
      s.checkEnd();
    });
  };
}

}  // namespace millrace::explorer
