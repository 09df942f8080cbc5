// SPDX-License-Identifier: Apache-2.0
//
// Figures without a clock: instructions (for callgrind) and memory.
//
// A peer that can be driven by hand brings a class `Driven`: `post(f)`, `turn()` runs what is due
// without blocking, and the timer calls of timer_scenarios.h. For memory a class `Idle`, `Idle(n)`:
// n loops not started.
#pragma once

#include "timer_scenarios.h"

#include <deque>

namespace bench {

/// Row group 7: run under callgrind with two lengths, the difference is the price.
template <class Driven>
void instructionsOfPosts(uint64_t count) {
  Driven loop;
  Lane lane;
  while (lane.posted < count) {
    for (int i = 0; i < 64; ++i)
      loop.post([plane = &lane, stamp = int64_t{0}] { plane->ran(stamp); });
    lane.posted += 64;
    while (!lane.caughtUp()) loop.turn();
  }
}

/// The same for a schedule with its cancel, next to 1000 timers that stay.
template <class Driven>
void instructionsOfTimers(uint64_t count) {
  Driven loop;
  Random random(42);
  uint64_t fired = 0;
  const auto arm = [&](typename Driven::Timer& timer) {
    const std::chrono::nanoseconds delay(100'000'000'000 + random.below(59'000'000'000));
    loop.arm(timer, delay, [pfired = &fired] { ++*pfired; });
  };
  std::vector<typename Driven::Timer> standing(1000);
  std::vector<typename Driven::Timer> timers(64);
  for (auto& timer : standing) arm(timer);
  loop.turn();
  for (uint64_t done = 0; done < count; done += 64) {
    for (auto& timer : timers) arm(timer);
    for (auto& timer : timers) loop.cancel(timer);
    loop.turn();
  }
  for (auto& timer : standing) loop.drop(timer);
  loop.turn();
}

/// Row group 8: resident bytes per loop, never used.
template <class Idle>
void memoryUnstarted(size_t count, const char* row) {
  raiseFileLimit();
  { Idle warm(1); }
  const int64_t before = residentBytes();
  Idle loops(count);
  emit(row, static_cast<double>(residentBytes() - before) / static_cast<double>(count));
}

/// Row group 8: resident bytes per loop that ran one task on a thread of its own and sleeps.
template <class Loop>
void memoryStarted(size_t count) {
  raiseFileLimit();
  {
    Loop warm(core(kLoopCore));
    callInLoop(warm, [] {});
  }
  const int64_t before = residentBytes();
  std::deque<std::unique_ptr<Loop>> loops;
  for (size_t i = 0; i < count; ++i) {
    loops.push_back(std::make_unique<Loop>(core(kLoopCore)));
    callInLoop(*loops.back(), [] {});
  }
  emit("started_bytes", static_cast<double>(residentBytes() - before) / static_cast<double>(count));
}

}  // namespace bench
