// SPDX-License-Identifier: Apache-2.0
// Executors for tests: one driven by hand, one with a real thread, and an EventExecutor made of the
// first. All are marked as the thread's current executor while they run a task, as loops are.
#pragma once

#include <millrace/concurrent/event_executor.h>
#include <millrace/concurrent/executor.h>
#include <millrace/concurrent/rejection.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace millrace::test {

/// The calling thread is "on the loop" of `executor` in this scope.
class TurnGuard {
 public:
  explicit TurnGuard(const Executor& executor)
      : outer_(std::exchange(internal::tlsCurrentExecutor, &executor)) {}
  TurnGuard(const TurnGuard&) = delete;
  TurnGuard& operator=(const TurnGuard&) = delete;
  ~TurnGuard() { internal::tlsCurrentExecutor = outer_; }

 private:
  const Executor* outer_;
};

/// Keeps tasks until somebody runs them. Any thread.
class QueueExecutor final : public Executor {
 public:
  QueueExecutor() = default;

  void execute(Task task) override {
    if (!tryExecute(std::move(task))) throw RejectedExecution("QueueExecutor is closed");
  }
  bool tryExecute(Task task) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++posted_;
    queue_.push_back(std::move(task));
    return true;
  }
  bool inEventLoop() const noexcept override { return internal::tlsCurrentExecutor == this; }
  void retain() const noexcept override { users_.fetch_add(1); }
  void release() const noexcept override { users_.fetch_sub(1); }

  /// Runs the oldest task here; false if there is none.
  bool runOne() {
    Task task;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    const TurnGuard turn(*this);
    task();
    return true;
  }
  /// Runs everything here, also what comes meanwhile; returns how many.
  std::size_t run() {
    std::size_t count = 0;
    while (runOne()) ++count;
    return count;
  }
  /// Takes no more tasks, as a loop that has ended.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  /// Tasks given so far.
  std::size_t posted() const {
    const std::lock_guard lock(mutex_);
    return posted_;
  }
  /// Promises that keep it alive.
  int users() const noexcept { return users_.load(); }

 private:
  mutable std::mutex mutex_;
  std::deque<Task> queue_;
  std::size_t posted_ = 0;
  bool closed_ = false;
  mutable std::atomic<int> users_{0};
};

/// Runs tasks in order on a thread of its own; the destructor runs what is left and joins.
class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor() : thread_([this] { work(); }) {}
  ~ThreadExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void execute(Task task) override { static_cast<void>(tryExecute(std::move(task))); }
  bool tryExecute(Task task) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    changed_.notify_one();
    return true;
  }
  bool inEventLoop() const noexcept override { return internal::tlsCurrentExecutor == this; }

 private:
  void work() {
    const TurnGuard turn(*this);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      task.reset();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

/// An EventExecutor without timers: a queue run by hand, with a capacity and a load to set.
class FakeEventExecutor final : public EventExecutor {
 public:
  FakeEventExecutor() : ended_(immediateExecutor()) {}

  void execute(Task task) override {
    if (!task) throw std::invalid_argument("execute(): the task is empty");
    if (!offer(task)) rejection(std::move(task), *this);
  }
  bool tryExecute(Task task) override { return offer(task); }
  bool offer(Task& task) override {
    ++offers;
    if (onOffer) onOffer();
    if (isShutdown_ || waiting_ >= capacity) return false;
    ++waiting_;
    return queue_.tryExecute([this, work = std::move(task)]() mutable {
      --waiting_;
      const TurnGuard turn(*this);
      work();
    });
  }
  void lazyExecute(Task task) override { execute(std::move(task)); }
  bool inEventLoop() const noexcept override { return internal::tlsCurrentExecutor == this; }
  EventExecutor& next() override { return *this; }
  std::size_t load() const noexcept override { return load_; }

  ScheduledFuture schedule(Duration, Task) override { throw std::logic_error("no timers"); }
  ScheduledFuture scheduleAtFixedRate(Duration, Duration, Task) override {
    throw std::logic_error("no timers");
  }
  ScheduledFuture scheduleWithFixedDelay(Duration, Duration, Task) override {
    throw std::logic_error("no timers");
  }

  bool isShuttingDown() const noexcept override { return isShutdown_; }
  bool isShutdown() const noexcept override { return isShutdown_; }
  bool isTerminated() const noexcept override { return ended_.future().isDone(); }
  Future<ShutdownReport> shutdownGracefully(Duration, Duration) override {
    isShutdown_ = true;
    ended_.trySuccess(ShutdownReport{});
    return ended_.future();
  }
  Future<ShutdownReport> terminationFuture() const override { return ended_.future(); }

  std::size_t run() { return queue_.run(); }
  void setLoad(std::size_t load) noexcept { load_ = load; }

  RejectionHandler rejection = rejectByThrowing();
  std::size_t capacity = static_cast<std::size_t>(-1);
  int offers = 0;
  std::function<void()> onOffer;

 private:
  QueueExecutor queue_;
  std::size_t waiting_ = 0;
  std::size_t load_ = 0;
  bool isShutdown_ = false;
  Promise<ShutdownReport> ended_;
};

}  // namespace millrace::test
