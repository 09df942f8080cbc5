// SPDX-License-Identifier: Apache-2.0
// Watchdog: tells of tasks and callbacks that hold a loop longer than they should, and where they
// are.
//
// One per group, if its options ask for it. Its thread exists while one of the group's loops has a
// thread: the first to begin starts it, the last to end joins it.
// Ownership: shared by the group and its loops. It looks only at loops that are under guard.
#pragma once

#include "loop/stack_capture.h"
#include "loop/stall_detector.h"

#include <millrace/base/atomic.h>
#include <millrace/base/clock.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/thread.h>

#include <csignal>
#include <cstdint>
#include <mutex>
#include <string>
#include <typeinfo>
#include <vector>

namespace millrace {

class Watchdog {
 public:
  /// Loops that stand still for longer than `threshold` are reported. Starts no thread yet.
  Watchdog(const std::string& group, Duration threshold);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// Puts the loop that the calling thread drives under guard while it lives.
  class Guard {
   public:
    /// `dog` may be null.
    Guard(Watchdog* dog, EventLoop& loop);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard();

   private:
    Watchdog* const dog_;
    EventLoop& loop_;
    sigset_t maskBefore_;
  };

  /// Ends the thread for good, also if loops are still under guard. Any thread.
  void stop() noexcept;

 private:
  struct Watched {
    EventLoop* loop;
    std::int64_t thread;  // the kernel's number
    StallDetector detector;
  };
  struct Stall {
    std::string loop;
    Duration stoodStill;
    const std::type_info* what;
    bool isOver;  // before its stack could be read
    std::vector<std::uintptr_t> frames;
  };

  void add(EventLoop& loop);
  void remove(EventLoop& loop) noexcept;
  void joinThread(Thread ended) noexcept;
  void run(std::uint64_t generation);
  std::int64_t look(std::vector<Stall>& stalls);
  Stall examine(const Watched& watched, Duration stoodStill);
  static LoopPulse pulseOf(const EventLoop& loop) noexcept;
  static const std::type_info* runningOf(const EventLoop& loop) noexcept;
  static void report(const Stall& stall);

  const std::string name_;
  const Duration threshold_;
  StackCapture stacks_;
  Atomic<std::uint32_t> bell_{0};  // rings when the thread should look at its orders
  std::mutex mutex_;
  std::vector<Watched> watched_;  // guarded by mutex_
  std::uint64_t generation_ = 0;  // guarded by mutex_: of the thread that may run; others end
  bool stopped_ = false;          // guarded by mutex_
  Thread thread_;                 // guarded by mutex_
};

}  // namespace millrace
