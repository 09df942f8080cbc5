// SPDX-License-Identifier: Apache-2.0
// Executor: anything that runs tasks. The lowest common denominator of loops, groups and pools.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/task.h>

#include <utility>

namespace millrace {

/// Runs tasks, at some time, on some thread. Every call: any thread.
class MILLRACE_API Executor {
 public:
  /// Runs `task` once. Throws std::invalid_argument for an empty task. A task that cannot be taken
  /// goes to the rejection handler, which by default throws RejectedExecution; the task is then
  /// destroyed on the caller's thread, as if it had never been given.
  virtual void execute(Task task) = 0;
  /// The same, but false instead of a rejection, or if no thread can be made to run it. Never calls
  /// the rejection handler.
  virtual bool tryExecute(Task task) = 0;
  /// True if the calling thread is running a task or callback of this executor right now.
  virtual bool inEventLoop() const noexcept { return false; }
  /// True if a future of this executor cannot complete while the calling thread waits for it.
  virtual bool waitsForItself() const noexcept { return inEventLoop(); }

  /// Keeps the executor alive for a promise. Nothing to do for executors that live for ever.
  virtual void retain() const noexcept {}
  /// Ends what retain() began.
  virtual void release() const noexcept {}
  /// For the library: where the callbacks of a promise made on this executor run. A group gives one
  /// of its loops.
  virtual Executor& forPromise() noexcept { return *this; }
  /// For the library: as tryExecute(), but loops take it even if they are full. It must not fail
  /// for another reason than the end: unwatching, or a future's callbacks, cannot be refused.
  virtual bool executeOwn(Task task) { return tryExecute(std::move(task)); }

 protected:
  Executor() noexcept = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;
};

namespace internal {
/// The executor whose task or callback this thread runs, or null. Set for the length of a turn.
/// Initial-exec: one instruction instead of a call, also in the shared library.
[[gnu::tls_model(
    "initial-exec")]] MILLRACE_API extern constinit thread_local const Executor* tlsCurrentExecutor;
}  // namespace internal

/// Runs each task at once on the caller's thread; a task given while another one runs waits for its
/// turn on that thread, so that chains of tasks do not grow the stack. Lives for ever.
MILLRACE_API Executor& immediateExecutor() noexcept;

}  // namespace millrace
