// SPDX-License-Identifier: Apache-2.0
//
// Timers: the price of schedule and cancel with a million armed, and how late they fire.
//
// A peer's `Loop` brings a handle type `Timer` (default constructible) and, for its own thread
// only, `arm(Timer&, delay, f)`, which allocates what the peer needs, `cancel(Timer&)` and
// `drop(Timer&)`, which both free it; `drop` is for what is left over and is not timed.
#pragma once

#include "post_scenarios.h"

#include <chrono>
#include <cstring>
#include <numeric>
#include <sys/mman.h>

namespace bench {

/// Row group 5. Times run on from phase to phase, so that nothing a peer puts off escapes: what it
/// leaves behind by scheduling is paid in the cancel phase, and that one ends with a task posted
/// after the last cancel.
template <class Loop>
struct TimerPhases {
  Loop& loop;
  std::vector<typename Loop::Timer> timers;
  std::vector<std::chrono::nanoseconds> delays;
  std::vector<uint32_t> order;
  size_t cancelled;
  uint64_t fired = 0;
  int64_t start = 0, armed = 0, ended = 0;
  std::atomic<bool> done{false};

  TimerPhases(Loop& on, size_t count)
      : loop(on), timers(count), delays(count), order(count), cancelled(count / 10 * 9) {
    Random random(42);
    for (auto& delay : delays)
      delay = std::chrono::nanoseconds(1'000'000'000 + random.below(59'000'000'000));
    std::iota(order.begin(), order.end(), 0U);
    for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }

  void arm() {
    start = threadCpuNs();
    for (size_t i = 0; i < timers.size(); ++i)
      loop.arm(timers[i], delays[i], [count = &fired] { ++*count; });
    armed = threadCpuNs();
    loop.post([phases = this] { phases->cancel(); });
  }
  void cancel() {
    for (size_t i = 0; i < cancelled; ++i) loop.cancel(timers[order[i]]);
    loop.post([phases = this] { phases->end(); });
  }
  void end() {
    ended = threadCpuNs();
    for (size_t i = cancelled; i < timers.size(); ++i) loop.drop(timers[order[i]]);
    done.store(true);
    done.notify_one();
  }
};

/// Uses and gives back memory, so that the kernel has pages at hand which the machine really backs.
/// On a virtual machine the first touch of a page may cost more than all that is measured here, and
/// which peer pays for it is chance.
inline void touchMemory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  munmap(memory, bytes);
}

/// Three small rounds warm up, as the peer on a virtual machine needs it; the fourth counts.
template <class Loop>
void timers(size_t count) {
  Loop loop(core(kLoopCore));
  const auto run = [&loop](TimerPhases<Loop>& phases) {
    loop.post([p = &phases] { p->arm(); });
    phases.done.wait(false);
    callInLoop(loop, [] {});  // what `drop` left to the loop
  };
  for (int round = 0; round < 3; ++round) {
    TimerPhases<Loop> small(loop, count / 4);
    run(small);
  }
  TimerPhases<Loop> phases(loop, count);
  touchMemory(count * 512);
  run(phases);
  const double schedule =
      static_cast<double>(phases.armed - phases.start) / static_cast<double>(count);
  const double cancel =
      static_cast<double>(phases.ended - phases.armed) / static_cast<double>(phases.cancelled);
  emit("schedule_ns", schedule);
  emit("cancel_ns", cancel);
  emit("sum_ns", schedule + cancel);
  emit("fired_meanwhile", static_cast<double>(phases.fired));
}

/// Row group 5: `count` timers due within one second on a loop with nothing else to do. Negative:
/// early.
template <class Loop>
struct Lateness {
  Loop& loop;
  std::vector<typename Loop::Timer> timers;
  std::vector<int64_t> due;
  std::vector<int64_t> late{};
  std::atomic<bool> done{false};

  void arm() {
    Random random(7);
    for (size_t i = 0; i < timers.size(); ++i) {
      const std::chrono::nanoseconds delay(50'000'000 + random.below(1'000'000'000));
      due[i] = nowNs() + delay.count();
      loop.arm(timers[i], delay, [lateness = this, i] { lateness->fired(i); });
    }
  }
  void fired(size_t i) {
    late.push_back(nowNs() - due[i]);
    if (late.size() != timers.size()) return;
    loop.post([lateness = this] { lateness->end(); });
  }
  void end() {
    for (auto& timer : timers) loop.drop(timer);
    done.store(true);
    done.notify_one();
  }
};

template <class Loop>
void lateness(size_t count) {
  Loop loop(core(kLoopCore));
  Lateness<Loop> run{loop, std::vector<typename Loop::Timer>(count), std::vector<int64_t>(count)};
  run.late.reserve(count);
  loop.post([p = &run] { p->arm(); });
  run.done.wait(false);
  callInLoop(loop, [] {});
  emitMicros("late", run.late);
}

}  // namespace bench
