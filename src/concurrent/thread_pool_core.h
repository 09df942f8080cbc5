// SPDX-License-Identifier: Apache-2.0
// ThreadPool::Core: queue, threads and life cycle of a pool. It lives until its last thread has
// gone, which may be after the ThreadPool (stuck tasks, a pool that dies on a thread of its own).
#pragma once

#include <millrace/base/manual_clock.h>
#include <millrace/base/ref.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/sys/thread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <vector>

namespace millrace {

/// It is the executor that its threads are in, as far as inEventLoop() is concerned.
class ThreadPool::Core final : public Executor,
                               public RefCounted<ThreadPool::Core>,
                               private ClockListener {
 public:
  struct Settings {
    std::size_t threads;
    std::string name;
    std::size_t capacity;
    Clock* clock;
  };
  explicit Core(Settings settings);
  ~Core() override = default;

  void execute(Task task) override;
  bool tryExecute(Task task) override;
  bool inEventLoop() const noexcept override { return internal::tlsCurrentExecutor == this; }

  void shutdownGracefully(Duration quiet, Duration timeout);
  bool isShuttingDown() const noexcept;
  bool isShutdown() noexcept;
  bool isTerminated() const noexcept;
  const Future<ShutdownReport>& terminationFuture() const noexcept { return terminated_; }
  /// For the destructor: waits as long as it has to.
  bool awaitEnd() const;
  bool isForeignProcess() const noexcept;

  std::size_t threads() const noexcept;
  std::size_t busyThreads() const noexcept;
  std::size_t pendingTasks() const noexcept;
  std::size_t capacity() const noexcept { return settings_.capacity; }
  const std::string& name() const noexcept { return settings_.name; }

 private:
  enum class Phase { open, shuttingDown, shutdown, terminated };
  enum class Answer { taken, full, stopped, noThread };

  // REQUIRES for those with `lock`: it is locked, and so it is when they return.
  using Lock = std::unique_lock<std::mutex>;

  Answer take(Task& task, Error& failure);
  Error startThreadIfNeeded();
  void work(const std::string& name);
  bool awaitTask(Lock& lock);
  void runNext(Lock& lock);
  void endIfTime(std::int64_t now) noexcept;
  void waitForChange(Lock& lock);
  void finish();
  void clockMoved() noexcept override;

  const Settings settings_;
  const pid_t process_;
  const Promise<ShutdownReport> done_;
  const Future<ShutdownReport> terminated_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::deque<Task> queue_;
  std::vector<Thread> threads_;
  std::size_t alive_ = 0;  // of threads_, those that have not left work()
  std::size_t busy_ = 0;   // of those, the ones with a task
  bool complained_ = false;
  Phase phase_ = Phase::open;
  std::int64_t begin_ = 0;  // of the shutdown
  std::int64_t lastWork_ = 0;
  Duration quiet_{0};
  Duration timeout_{0};
  ShutdownReport report_;
};

}  // namespace millrace
