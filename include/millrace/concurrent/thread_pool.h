// SPDX-License-Identifier: Apache-2.0
// ThreadPool: threads for work that blocks or computes for long and so must not run on a loop.
//
//   ThreadPool pool(ThreadPoolOptions().threads(4).name("files"));
//   pool.submit([path] { return readWhole(path); }, loop).addListener([](const auto& r) { ... });
//
// Threads: every call from any thread. Tasks begin in the order they were given and run side by
// side, so they end in any order. Ownership: the pool owns its threads; its destructor shuts it
// down gracefully. Promises made on the pool itself must be gone before it (checked); those of
// submit() need not be.
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/concurrent/event_executor.h>
#include <millrace/concurrent/executor.h>
#include <millrace/concurrent/future.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace millrace {

/// How a pool is made. Setters check at once and can be chained.
class MILLRACE_API ThreadPoolOptions {
 public:
  ThreadPoolOptions();

  /// The most threads it may have; 0 is the default: twice the processors this process may use.
  /// Throws std::invalid_argument for a negative number.
  ThreadPoolOptions& threads(int count);
  /// Threads are named mr-<name>-<index>; the default is "pool" and the pool's number.
  ThreadPoolOptions& name(std::string value);
  /// The most tasks that may wait for a thread, those that run not counted; 0 is the default: 256
  /// for each thread.
  ThreadPoolOptions& capacity(std::size_t tasks);
  /// What the quiet period and the timeout of the shutdown are measured on; must outlive the pool's
  /// end.
  ThreadPoolOptions& clock(Clock& value);

 private:
  friend class ThreadPool;
  int threads_ = 0;
  std::string name_;
  std::size_t capacity_ = 0;
  Clock* clock_;
};

class MILLRACE_API ThreadPool final : public Executor {
 public:
  /// A pool of up to `threads` threads. Makes none yet: they start one by one, when there is work
  /// and no idle thread.
  explicit ThreadPool(int threads = 0);
  explicit ThreadPool(const ThreadPoolOptions& options);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  /// Shuts down gracefully, unless that was done, and waits until the timeout and one second more;
  /// then it logs an error and lets stuck threads go. Does not wait on one of its own threads,
  /// inside a loop's turn, on the thread of the global executor, and in a forked child.
  ~ThreadPool() override;

  /// Runs `task` on a thread of the pool. Throws std::invalid_argument for an empty task,
  /// RejectedExecution if the queue is full or the pool is shut down, Exception if the pool has no
  /// thread and none can be made. The task was not accepted then. A failure to make a further
  /// thread is logged and survived. What a task throws is logged.
  void execute(Task task) override;
  /// The same, but false where execute() throws for another reason than an empty task.
  bool tryExecute(Task task) override;

  /// Runs `fn` and gives its result, or what it throws, to the future, whose callbacks run on
  /// `notifyOn`: by default on the thread of the pool that ran it, or on the one that adds them
  /// later. Throws as execute() does. A future cancelled before its turn keeps `fn` from running.
  template <class F, class R = std::invoke_result_t<std::decay_t<F>&>>
  [[nodiscard]] Future<R> submit(F&& fn, Executor& notifyOn = immediateExecutor()) {
    Promise<R> promise(notifyOn);
    Future<R> future = promise.future();
    execute(internal::completing(std::move(promise), std::forward<F>(fn)));
    return future;
  }

  /// True on the pool's threads.
  bool inEventLoop() const noexcept override;

  /// Ends it: runs what is queued, still takes tasks until all have run and none came for `quiet`,
  /// at most for `timeout`; then rejects new ones, runs those it has and joins its threads. A pool
  /// without threads and with no quiet period ends on the caller's thread. A second call can
  /// lengthen both periods, not shorten them. Gives terminationFuture(). Throws
  /// std::invalid_argument for negative periods or a timeout below the quiet period.
  Future<ShutdownReport> shutdownGracefully(Duration quiet = Duration::zero(),
                                            Duration timeout = std::chrono::seconds(15));
  /// True from shutdownGracefully() on. Tasks are still taken.
  bool isShuttingDown() const noexcept;
  /// True once no task is taken any more.
  bool isShutdown() const noexcept;
  /// True once every task has run and the threads are gone.
  bool isTerminated() const noexcept;
  /// Completes when terminated, on the global executor. The same future every time.
  Future<ShutdownReport> terminationFuture() const;
  /// Waits for the end; false if `until` comes first. Throws BlockingOperation on its own threads.
  bool awaitTermination(Deadline until) const;

  /// Threads that it has at the moment.
  int threads() const noexcept;
  /// Those of them that run a task.
  int busyThreads() const noexcept;
  /// Tasks that wait for a thread at the moment.
  std::size_t pendingTasks() const noexcept;
  /// The most tasks that may wait.
  std::size_t capacity() const noexcept;
  /// The name its threads carry: mr-<name>-<index>.
  const std::string& name() const noexcept;

  void retain() const noexcept override;
  void release() const noexcept override;

 private:
  class Core;
  Ref<Core> core_;  // shared with its threads, which may outlive the pool
  mutable Atomic<std::size_t> promises_{0};
};

}  // namespace millrace
