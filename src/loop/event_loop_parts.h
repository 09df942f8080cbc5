// SPDX-License-Identifier: Apache-2.0
// The parts that an EventLoop is made of, and what they do together. Private to the layer.
//
// event_loop.cc        the calls of the public class
// event_loop_post.cc   how tasks and timers come in (any thread)
// event_loop_turn.cc   one turn (loop thread)
// event_loop_end.cc    start of the thread, shutdown, end
// event_loop_watch.cc  descriptors, signals
#pragma once

#include "loop/life_cycle.h"
#include "loop/post_stream.h"

#include <millrace/base/atomic.h>
#include <millrace/base/attribute_map.h>
#include <millrace/base/clock.h>
#include <millrace/base/manual_clock.h>
#include <millrace/concurrent/inbox.h>
#include <millrace/concurrent/timer_queue.h>
#include <millrace/concurrent/wakeup_word.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/loop_attachment.h>
#include <millrace/loop/loop_options.h>
#include <millrace/loop/metrics.h>
#include <millrace/sys/thread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace millrace {

class Watchdog;

/// Figures of one loop, written by it alone.
struct LoopFigures {
  internal::Counter turns, timers, lateTimers, ioEvents, sleeps, premature, rebuilds, failures,
      busyNanos;
  internal::Counter wakeups;
  std::atomic<std::uint64_t> stalls{0};  // written by the watchdog
  internal::Histogram turnTime, taskDelay, timerLateness;
};

struct TailTask::State {
  enum class Phase { waiting, taken };
  Atomic<Phase> phase{Phase::waiting};
  Task task;
  bool claim() noexcept {
    return phase.exchange(Phase::taken, std::memory_order_acq_rel) == Phase::waiting;
  }
};

struct EventLoop::Parts final : IoLoop, ClockListener {
  using State = EventLoop::State;
  enum class Wake { now, lazily };
  enum class IfNoThread { raise, tell };  // what a post does when the loop cannot be started

  Parts(EventLoop& loop, const LoopOptions::Values& options, std::string loopName, int loopIndex,
        bool byHand);
  ~Parts();

  // --- IoLoop ---
  std::string_view name() const noexcept override { return loopName; }
  const Clock& clock() const noexcept override { return *time; }
  void callbackFailed(const std::type_info& what) noexcept override;
  // --- ClockListener: a ManualClock moved (any thread) ---
  void clockMoved() noexcept override;

  // --- event_loop_post.cc, any thread ---
  bool post(Task& task, Wake wake, IfNoThread then);
  bool postOwn(Task& task);
  bool postFromOutside(Task& task, Wake wake, IfNoThread then, std::uintptr_t kind);
  void postInLoop(Task& task, std::uintptr_t kind);
  bool pushFramework(TaskNode& node);
  void pushProbe();
  void takeBack(TaskNode& node, Task& task, std::uintptr_t kind) noexcept;
  void easeOff() const noexcept;
  void wakeIfAsleep() noexcept {
    if (__builtin_expect(in.word.mustWake(), 0)) wake();
  }
  void wake() noexcept;
  bool reserve() noexcept;
  void unreserve() noexcept {
    if (options.maxPendingTasks != 0) reserved.fetch_sub(1, std::memory_order_relaxed);
  }
  Result<void> startIfNeeded(TaskNode& own);
  bool arm(TimerNode& timer);
  ScheduledFuture scheduleTimer(const char* call, Duration delay, Duration period,
                                TimerNode::Repeat repeat, Task&& task);
  void reject(Task&& task);
  void checkNotForked(const char* call) const;
  bool isForked() const noexcept;

  // --- event_loop_turn.cc, loop thread ---
  std::size_t turn(Deadline limit);
  int ioPhase(Deadline limit);
  void runTurn(Deadline limit);
  bool hasTasks() const noexcept override;
  WaitOutcome waitForIo(Deadline until);
  int blockUntil(Deadline limit);
  std::optional<int> spinForWork(Deadline timer, Deadline limit);
  bool noteWaitEnd(bool early);
  void noteBegin(const std::type_info* what) noexcept {
    running.store(what, std::memory_order_relaxed);
    progress.store(progress.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void noteTaken(std::size_t users) noexcept {
    usersTaken.store(usersTaken.load(std::memory_order_relaxed) + users, std::memory_order_relaxed);
  }
  /// Takes from the inbox and counts what came. `takes` is odd meanwhile, so that pendingTasks()
  /// never misses tasks that are between the two counts.
  template <class Take>
  Inbox::Taken takeCounted(Take&& take) noexcept {
    const std::uint32_t before = takes.load(std::memory_order_relaxed);
    takes.store(before + 1, std::memory_order_relaxed);  // seen before the take, which releases
    Inbox::Taken taken = take();
    noteTaken(taken.userTasks);
    takes.store(before + 2, std::memory_order_release);
    return taken;
  }
  std::size_t pendingTasks() const noexcept;
  bool othersWait() const noexcept;
  void runBatch();
  Result<void> rebuild();
  void rebuildAndTell(const char* reason);
  void failedTurn(Deadline limit);
  void takeInbox();
  void runTasks(std::int64_t ioNanos, bool hadIo);
  void runNode(TaskNode* node);
  void runOwnNode(TaskNode* node);
  void runTimer(TimerNode& timer);
  void runTail();
  void runUserTask(TaskNode* node, const char* what);
  void runHook(Task& task, const char* what);
  void taskFailed(Task& task, const char* what) noexcept;
  std::size_t registrations() const noexcept;  // any thread
  void closeAll(CloseMode mode);
  std::int64_t now() noexcept { return time->nanos(); }

  // --- event_loop_dump.cc, loop thread ---
  std::string describeInLoop() const;

  // --- event_loop_end.cc ---
  Result<void> makeThread();
  void threadBody();
  void tuneThread() const;
  void beginRunning();
  void drive();
  void requestStop();
  void beginShutdown();
  bool confirmShutdown();
  Deadline shutdownWakeup() const noexcept;
  void endInLoop();
  void runHooks();
  void runAllLeft();
  void endUnstarted();
  void endAbandoned();
  void terminate();
  void joinThread() noexcept;
  void wrongDriver() const;

  // --- constant after construction: each post reads of it, so nothing that changes lies beside it
  // (`running` of the base class changes with each task) ---
  alignas(64) EventLoop& self;
  const LoopOptions::Values options;
  const std::string loopName;
  const int index;
  const bool byHand;
  Clock* const time;
  const bool real;  // time is the machine's: deadlines may become kernel timeouts
  const std::uint64_t forkGeneration;
  std::unique_ptr<SelectStrategy> strategy;  // null: the default
  std::shared_ptr<Watchdog> watchdog;        // shared by the loops of a group; null: none
  std::unique_ptr<IoHandler> io;             // others: wakeup(), type(), registrations() only

  // --- shared: what every post touches ---
  struct alignas(64) {
    Inbox inbox;
    WakeupWord word;
    /// The loop took more than it runs in a few microseconds. Producers then ease off a little: at
    /// full speed they are as fast as it is, so that it would stay behind and every task late.
    Atomic<bool> behind{false};
  } in;
  alignas(64) LifeCycle<State> life;
  Atomic<std::int64_t> reserved{0};  // user tasks that count against the capacity, if limited
  Atomic<std::int64_t> wakeRequestedAt{0};  // when the last paid wakeup was asked for
  Atomic<std::uint32_t> outsideTimers{0};   // every 1024th wakes, so that the inbox does not swell
  Atomic<bool> stopRequested{false};
  Atomic<bool> tickQueued{false};
  Atomic<std::int64_t> quietNanos{0};
  Atomic<std::int64_t> timeoutNanos{0};
  Atomic<int> ioRatio{50};
  Atomic<std::int64_t> kernelThread{0};
  Atomic<std::uint64_t> driver{0};     // the thread that drives a hand-driven loop
  Atomic<std::uint32_t> pauseWord{0};  // 1 ends a pause after a failed turn
  Atomic<EventLoopGroup*> group{nullptr};
  std::mutex hookMutex;
  std::vector<std::pair<std::uint64_t, Task>> hooks;  // guarded by hookMutex
  std::vector<Task> beforeHooks;                      // guarded by hookMutex
  std::uint64_t nextHook = 1;                         // guarded by hookMutex
  bool hooksClosed = false;                           // guarded by hookMutex
  bool beforeClosed = false;                          // guarded by hookMutex
  std::mutex threadMutex;
  Thread thread;                                                    // guarded by threadMutex
  std::function<void(const Result<ShutdownReport>&)> onTerminated;  // the group's; called once
  std::function<void(EventLoop&)> onIdle;  // the group's: the last channel has gone
  Promise<ShutdownReport> terminated;
  Future<ShutdownReport> terminatedFuture;
  TaskNode stopNode;
  TaskNode tickNode;

  // --- what other threads may look at while the loop works ---
  LoopFigures figures;
  alignas(64) Atomic<std::uint64_t> progress{0};  // tasks begun; the watchdog sees it stand still
  Atomic<std::uint32_t> takes{0};                 // see takeCounted()
  Atomic<std::uint64_t> usersTaken{0};            // user tasks that came to runList and tail
  Atomic<std::uint64_t> othersBegun{0};           // timers and hooks begun
  Atomic<std::int64_t> turnBegan{0};              // real nanoseconds; 0 while it waits
  std::atomic<std::size_t> aboveCount{0};         // what the layer above has registered
  AttachmentFigures aboveFigures;

  AttributeMap attributes;  // of others; has a lock of its own

  // --- loop thread only ---
  std::unique_ptr<LoopAttachment> upper;  // what the layer above keeps here
  TimerQueue timers;
  TaskChain runList;
  TaskChain tail;
  NodeReturn used;  // nodes that have run
  NodeCache* cache = nullptr;
  bool closed = false;  // in-loop posts are rejected, too
  bool engineAttached = false;
  bool begunByHand = false;  // run() was called, and not too late
  bool ownsThread = false;   // the thread is ours: its locals go before the end is told
  int premature = 0;
  std::size_t events = 0;  // of the current turn
  bool gathered = false;   // tasks are expected in the inbox
  PostStream stream;
  bool waitBlocked = false;    // the last wait was a sleep
  bool wokenByPost = false;    // and was ended by a wakeup that was paid for
  bool waitWasEarly = false;   // and returned before its time with nothing to show
  std::int64_t waitEnded = 0;  // clock readings of the current turn
  std::int64_t turnEnded = 0;
  std::int64_t lastExecution = 0;
  std::int64_t shutdownBegan = 0;
  bool shutdownBegun = false;
  std::string engineFailure;  // why the current turn fails, if it is the engine
  ShutdownReport report;
  Error bodyFailure;
};

/// Counts forks: a loop of another generation belongs to the parent process.
extern std::atomic<std::uint64_t> forkGenerations;
inline std::uint64_t currentForkGeneration() noexcept {
  return forkGenerations.load(std::memory_order_relaxed);
}
/// From now on forks are counted.
void watchForForks() noexcept;
/// True once exit() has begun.
bool isExiting() noexcept;
/// From now on exit() is noticed.
void watchForExit() noexcept;

}  // namespace millrace
