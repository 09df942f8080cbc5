// SPDX-License-Identifier: Apache-2.0
// EventExecutor: an executor with futures, timers and a graceful end. Loops are one, and so are
// groups.
//
// Every call: any thread. A task must not block: everything else on its thread waits for it.
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/concurrent/executor.h>
#include <millrace/concurrent/future.h>
#include <millrace/concurrent/scheduled_future.h>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace millrace {

/// What a graceful end had to cut short. All zero: nothing was lost.
struct ShutdownReport {
  std::size_t timersCancelled = 0;
  std::size_t watchesClosed = 0;         ///< descriptors still watched when the loop ended
  std::size_t channelsCut = 0;           ///< channels closed by force at the timeout
  std::size_t bytesCut = 0;              ///< what those had not yet written
  std::size_t tasksRunAfterTimeout = 0;  ///< accepted tasks that ran although time was up
  bool timedOut = false;                 ///< the timeout ended the quiet period

  ShutdownReport& operator+=(const ShutdownReport& other) noexcept;
};

namespace internal {

/// What all submitted tasks have in common: runs `work` if it may, and gives what it throws to `fail`.
MILLRACE_API void runSubmitted(bool mayRun, void* work, void (*run)(void*),
                               void (*fail)(void*, Error&&));

/// A task that runs `fn` and gives `done` its result, unless `done` was cancelled before its turn.
template <class R, class F>
auto completing(Promise<R> done, F&& fn) {
  struct Work {
    std::decay_t<F> call;
    Promise<R> done;

    static void run(void* self) {
      auto& work = *static_cast<Work*>(self);
      if constexpr (std::is_void_v<R>) {
        work.call();
        work.done.trySuccess();
      } else {
        work.done.trySuccess(work.call());
      }
    }
    static void fail(void* self, Error&& why) {
      static_cast<Work*>(self)->done.tryFailure(std::move(why));
    }
  };
  return [work = Work{std::forward<F>(fn), std::move(done)}]() mutable {
    runSubmitted(work.done.setUncancellable(), &work, &Work::run, &Work::fail);
  };
}

}  // namespace internal

class MILLRACE_API EventExecutor : public Executor {
 public:
  /// The executor that does the work: a loop gives itself, a group the next of its loops.
  virtual EventExecutor& next() = 0;

  /// How much it has to do, for choosers that look: pending tasks plus registrations.
  virtual std::size_t load() const noexcept = 0;

  /// As execute(), but does not wake a sleeping loop: the task waits for the next natural wakeup.
  virtual void lazyExecute(Task task) = 0;

  /// Runs `fn` and gives its result, or what it throws, to the future. Rejection as for execute().
  /// A future cancelled before its turn keeps `fn` from running.
  template <class F, class R = std::invoke_result_t<std::decay_t<F>&>>
  [[nodiscard]] Future<R> submit(F&& fn);

  /// Runs `task` once, `delay` from now; a negative delay is now. Throws std::invalid_argument for
  /// an empty task, RejectedExecution once the executor is shut down.
  virtual ScheduledFuture schedule(Duration delay, Task task) = 0;
  /// Runs `task` after `initial`, then every `period` counted from the planned moments: runs that
  /// are late catch up. Stops when cancelled or when it throws. Throws std::invalid_argument for a
  /// negative `initial` or a `period` that is not positive.
  virtual ScheduledFuture scheduleAtFixedRate(Duration initial, Duration period, Task task) = 0;
  /// The same, but each run begins `delay` after the end of the one before.
  virtual ScheduledFuture scheduleWithFixedDelay(Duration initial, Duration delay, Task task) = 0;

  /// True from shutdownGracefully() on. Tasks are still taken.
  virtual bool isShuttingDown() const noexcept = 0;
  /// True once no task is taken any more.
  virtual bool isShutdown() const noexcept = 0;
  /// True once every task has run, every descriptor is closed and the thread's locals are gone.
  virtual bool isTerminated() const noexcept = 0;
  /// Ends it: runs what is queued, still takes tasks until none came for `quiet`, at most for
  /// `timeout`. A second call can lengthen both, not shorten them. Gives terminationFuture().
  /// Throws std::invalid_argument for negative periods or a timeout below the quiet period.
  virtual Future<ShutdownReport> shutdownGracefully(
      Duration quiet = Duration::zero(), Duration timeout = std::chrono::seconds(15)) = 0;
  /// Completes when terminated, on the global executor. The same future every time.
  virtual Future<ShutdownReport> terminationFuture() const = 0;

  /// As tryExecute(), but leaves a refused task with the caller. For rejection handlers.
  virtual bool offer(Task& task) = 0;

  /// Waits for the end; false if `until` comes first. Throws BlockingOperation on its own thread.
  bool awaitTermination(Deadline until) const;
};

template <class F, class R>
Future<R> EventExecutor::submit(F&& fn) {
  EventExecutor& worker = next();
  Promise<R> promise(worker);
  Future<R> future = promise.future();
  worker.execute(internal::completing(std::move(promise), std::forward<F>(fn)));
  return future;
}

}  // namespace millrace
