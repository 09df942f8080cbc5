// SPDX-License-Identifier: Apache-2.0
// EventLoop: one thread that runs tasks, timers and I/O callbacks, one after the other.
//
// Threads: any thread may call anything here except where a line says "loop thread". Callbacks run
// on the loop's thread, never two at a time. Ownership: a group owns its loops; handles
// (Ref<EventLoop>), watches and promises keep the object alive, but not running. One of these must
// last until a call is over: a task may drop the others while execute() returns. The thread starts
// with the first task and ends with shutdownGracefully().
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/ref.h>
#include <millrace/concurrent/event_executor.h>
#include <millrace/loop/watch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace millrace {

class AttributeMap;
class EventLoopGroup;
class IoHandler;
class LoopAttachment;
class LoopOptions;
struct IoType;
struct LoopMetrics;

/// A task that runs at the end of a turn; see EventLoop::executeAfterEventLoopIteration.
class TailTask {
 public:
  /// True if it had not run yet and now never will. Any thread.
  MILLRACE_API bool remove() const noexcept;

 private:
  friend class EventLoop;
  struct State;
  std::shared_ptr<State> state_;  // shared by this handle and the queued task
};

/// One thread, one queue, one selector; see the top of this file and docs/guide/loops.md.
class MILLRACE_API EventLoop final : public EventExecutor, public RefCounted<EventLoop> {
 public:
  /// Where a loop is in its life. Suspension is reserved for later.
  enum class State {
    notStarted,
    started,
    suspending,
    suspended,
    shuttingDown,
    shutdown,
    terminated
  };

  /// A loop without a thread: whoever calls run() or runNow() drives it. The first thread that does
  /// so is its owner. Shut it down in the end: futures of tasks that still wait, futures of
  /// timers and dumps hold on to it. Throws Exception if the engine cannot be made.
  static Ref<EventLoop> handDriven(const LoopOptions& options);
  static Ref<EventLoop> handDriven();

  /// The loop whose turn the calling thread is in, or null.
  static EventLoop* current() noexcept;

  // --- tasks ---
  EventLoop& next() noexcept override { return *this; }
  void execute(Task task) override;
  bool tryExecute(Task task) override;
  bool executeOwn(Task task) override;
  /// Inside its turns, and on the whole thread that drives it by hand.
  bool waitsForItself() const noexcept override;
  bool offer(Task& task) override;
  void lazyExecute(Task task) override;
  ScheduledFuture schedule(Duration delay, Task task) override;
  ScheduledFuture scheduleAtFixedRate(Duration initial, Duration period, Task task) override;
  ScheduledFuture scheduleWithFixedDelay(Duration initial, Duration delay, Task task) override;
  /// Runs `task` at the end of the current turn (or the next one, when called from outside or by a
  /// tail task). Wakes a sleeping loop, but does not start one. Rejected as by execute().
  TailTask executeAfterEventLoopIteration(Task task);
  /// User tasks that wait to run, tail tasks included.
  std::size_t pendingTasks() const noexcept;
  std::size_t load() const noexcept override;

  // --- descriptors and signals ---
  /// Calls `callback` whenever `fd` is ready for one of `events` (sys/events.h). The descriptor
  /// stays yours and must stay open until the watch ends. Throws std::invalid_argument if `fd` is
  /// not open, the callback is empty or there is nothing to wait for; the future fails if the
  /// engine refuses. On the loop thread the future is done at once.
  Future<Watch> watch(int fd, std::uint32_t events, WatchCallback callback,
                      Trigger trigger = Trigger::level, WatchEnd onEnd = {});
  /// Calls `callback` when the process gets `signal`. Blocks the signal for the calling thread and
  /// those it makes from now on: call it early in main(). Throws std::invalid_argument for a bad
  /// number, std::logic_error if the signal has a callback already.
  Future<Watch> onSignal(int signal, std::function<void(int)> callback);

  // --- whose thread ---
  bool inEventLoop() const noexcept override { return internal::tlsCurrentExecutor == this; }
  /// Throws std::logic_error naming the loop unless inEventLoop().
  void assertInEventLoop() const;
  /// The group that made it; null for a hand-driven loop and once the group is gone.
  EventLoopGroup* parent() const noexcept;
  /// "mr-<group>-<index>".
  const std::string& name() const noexcept;
  /// The kernel's number of the thread that drives it; 0 before the start and after the end.
  std::int64_t threadId() const noexcept;
  /// Where it gets its time from.
  Clock& clock() const noexcept;
  /// Values that others hang on it; they go when the loop has shut down, on its thread.
  AttributeMap& attributes() const noexcept;

  // --- driving by hand ---
  /// One turn that waits for work until `until` at the most. Returns how many tasks and events it
  /// ran. Throws std::logic_error on a second thread or on a loop that has its own thread.
  std::size_t run(Deadline until);
  /// One turn that does not wait.
  std::size_t runNow() { return run(Deadline::past()); }

  // --- settings ---
  /// The share of a turn's time for I/O, in percent; see LoopOptions::ioRatio.
  int ioRatio() const noexcept;
  /// Throws std::invalid_argument outside of 1 to 100.
  void setIoRatio(int percent);
  /// The engine it runs on, such as io::epollType.
  const IoType& ioType() const noexcept;
  /// Makes the engine's selector anew; everything registered moves over.
  void rebuildSelector();

  // --- the end ---
  /// Where it is in its life; only moves forward.
  State state() const noexcept;
  bool isShuttingDown() const noexcept override;
  bool isShutdown() const noexcept override { return state() >= State::shutdown; }
  bool isTerminated() const noexcept override { return state() == State::terminated; }
  Future<ShutdownReport> shutdownGracefully(Duration quiet = Duration::zero(),
                                            Duration timeout = std::chrono::seconds(15)) override;
  Future<ShutdownReport> terminationFuture() const override;
  /// Runs when the loop begins to shut down, before anything is closed. False if it is too late.
  bool beforeShutdown(Task task);
  /// Runs at the very end, after the last task; in the order of addition, each once, even if one
  /// throws. Gives a number for removeShutdownHook, 0 if it is too late.
  std::uint64_t addShutdownHook(Task hook);
  /// True if the hook had not run yet and now never will.
  bool removeShutdownHook(std::uint64_t id);

  // --- looking at it ---
  /// What it has done so far. Stops nobody.
  LoopMetrics metrics() const;
  /// State, figures, timers and watches in words. Asks the loop, for 100 ms at the most; a loop
  /// that does not answer is described from outside, with what it has been running and for how
  /// long.
  std::string dump() const;

  // --- for the layers above; loop thread ---
  /// The engine.
  IoHandler& io() const noexcept;
  /// What the channel layer keeps here; null until attach(), and after the shutdown.
  LoopAttachment* attachment() const noexcept;
  void attach(std::unique_ptr<LoopAttachment> attachment);
  /// The last channel has gone: a loop that is there for one channel only becomes free when the
  /// tasks that wait have run.
  void becameIdle();
  /// Counters of the attachment, one after the other. Any thread.
  std::uint64_t attachmentFigure(std::size_t index) const noexcept;

  void retain() const noexcept override { ref(); }
  void release() const noexcept override { unref(); }

 private:
  friend class RefCounted<EventLoop>;
  friend class EventLoopGroup;
  friend class Watch;
  friend class Watchdog;
  struct Parts;

  EventLoop(const LoopOptions& options, std::string name, int index, bool handDriven);
  ~EventLoop() override;

  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace
