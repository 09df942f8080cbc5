// SPDX-License-Identifier: Apache-2.0
// LoopOptions: how the loops of a group are made. Setters check at once and can be chained:
//
//   EventLoopGroup workers(LoopOptions().loops(4).name("http").io(io::epoll()).ioRatio(70));
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/concurrent/chooser.h>
#include <millrace/concurrent/executor.h>
#include <millrace/concurrent/rejection.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/select_strategy.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace millrace {

/// Runs a loop's body, from its start to its end, on a thread of its own. Throws if it cannot.
using LoopThreadFactory = std::function<void(const std::string& name, Task body)>;

/// A value; groups and loops copy what they need.
class MILLRACE_API LoopOptions {
 public:
  LoopOptions();

  /// How many loops; 0 is the default: MILLRACE_EVENT_LOOP_THREADS, else twice the processors this
  /// process may use. Throws std::invalid_argument for a negative number.
  LoopOptions& loops(int count);
  /// Threads are named mr-<name>-<index>; the default is the group's number.
  LoopOptions& name(std::string value);
  /// The engine. Throws std::invalid_argument for an empty factory.
  LoopOptions& io(IoFactory factory);
  /// The share of a turn's time for I/O against tasks, 1 to 100 percent, default 50; 100 sets tasks
  /// no time limit. Throws std::invalid_argument outside of that.
  LoopOptions& ioRatio(int percent);
  /// The most user tasks that may wait in a loop; default without limit, never below 16.
  LoopOptions& maxPendingTasks(std::size_t count);
  /// What happens to tasks that a loop cannot take; default rejectByThrowing(). Throws
  /// std::invalid_argument for an empty handler.
  LoopOptions& rejection(RejectionHandler handler);
  /// Makes the strategy of each loop; default: block if there are no tasks. Throws
  /// std::invalid_argument for an empty factory.
  LoopOptions& strategy(SelectStrategyFactory factory);
  /// Which loop a group takes next; default roundRobin(). Throws std::invalid_argument for an empty
  /// factory.
  LoopOptions& chooser(ChooserFactory factory);
  /// Where the loops get their time from; must outlive them.
  LoopOptions& clock(Clock& value);
  /// Runs each loop as one long task of `value`, which must outlive the loops and have a thread for
  /// each. Instead of threads of their own.
  LoopOptions& executor(Executor& value);
  /// Makes the threads of the loops. Throws std::invalid_argument for an empty factory.
  LoopOptions& threadFactory(LoopThreadFactory factory);
  /// Binds loop i to processor cpus[i % size]. A processor that does not exist is logged, no more.
  LoopOptions& pinTo(std::vector<int> cpus);
  /// The nice value of the threads, -20 to 19; std::invalid_argument outside. That the process may
  /// not set it is logged, no more.
  LoopOptions& priority(int nice);
  /// Looks for work this long before it sleeps: the round trip to another loop costs no wakeup
  /// then, and the processor is busy meanwhile. Default 0.
  LoopOptions& spin(Duration duration);
  /// Blocking waits that return early with nothing before the selector is made anew; default 512,
  /// below 3 never.
  LoopOptions& rebuildThreshold(int count);
  /// How long a loop pauses after its engine failed, so that it does not spin; default 1 s.
  LoopOptions& errorPause(Duration duration);
  /// Reports tasks and callbacks that hold a loop of a group longer than this, with the name of the
  /// function; 0, the default: no watchdog. It sends the blocked thread a real-time signal: a
  /// system call that is never restarted (poll, nanosleep) then fails there with EINTR, once per
  /// stall.
  LoopOptions& watchdog(Duration threshold);

  /// What was set, for those who make loops.
  struct Values {
    int loops = 0;
    std::string name;
    IoFactory io;
    int ioRatio = 50;
    std::size_t maxPendingTasks = 0;  ///< 0: no limit
    RejectionHandler rejection;
    SelectStrategyFactory strategy;  ///< empty: the default, without a call
    ChooserFactory chooser;
    Clock* clock = nullptr;
    Executor* executor = nullptr;
    LoopThreadFactory threadFactory;
    std::vector<int> cpus;
    int nice = 0;
    bool setsNice = false;
    Duration spin{0};
    int rebuildThreshold = 512;
    Duration errorPause = std::chrono::seconds(1);
    Duration watchdog{0};
  };
  const Values& values() const noexcept { return values_; }

 private:
  Values values_;
};

/// The number of loops for 0: see LoopOptions::loops.
MILLRACE_API int defaultLoopCount();

}  // namespace millrace
