// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/error.h>
#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/sys/thread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>
#include <utility>

namespace millrace {

namespace {

thread_local bool tlsInGlobal = false;

class GlobalExecutor final : public Executor {
 public:
  static GlobalExecutor& get() {
    static GlobalExecutor& executor = *makeFirst();
    return executor;
  }

  void execute(Task task) override {
    if (!task) throw std::invalid_argument("execute(): the task is empty; give it a callable");
    std::unique_lock lock(mutex_);
    queue_.push_back(std::move(task));
    if (running_) return;
    running_ = true;
    process_.store(::getpid(), std::memory_order_relaxed);
    Result<Thread> started = startThread("mr-global", [this] { runOnThread(); });
    if (started) {
      last_ = std::exchange(thread_, std::move(started).value());
      return;
    }
    lock.unlock();
    log(LogLevel::warn, "concurrent",
        "the global executor works on a caller's thread: ", started.error().message());
    run();
  }

  bool tryExecute(Task task) override {
    execute(std::move(task));
    return true;
  }

  bool inEventLoop() const noexcept override { return tlsInGlobal; }

  void awaitIdle() {
    if (tlsInGlobal) {
      throw BlockingOperation(
          "awaitGlobalExecutor() in a task of the global executor would wait for ever: it waits "
          "for that very task; call it from another thread");
    }
    std::unique_lock lock(mutex_);
    for (;;) {
      idle_.wait(lock, [this] { return !running_ && !joining_; });
      if (!thread_.joinable()) return;
      joining_ = true;
      Thread ended = std::move(thread_);
      lock.unlock();
      ended.join();
      lock.lock();
      joining_ = false;
      idle_.notify_all();
    }
  }

 private:
  GlobalExecutor() = default;

  static GlobalExecutor* makeFirst() {
    auto* made = new GlobalExecutor;
    std::atexit(&GlobalExecutor::joinAtExit);
    ::pthread_atfork(nullptr, nullptr, &GlobalExecutor::beginAnewInChild);
    return made;
  }

  // The thread stayed in the parent, and who knows who held the lock: nothing of it can be used or
  // destroyed. What was queued is the parent's to run.
  static void beginAnewInChild() {
    GlobalExecutor& self = get();
    ::new (static_cast<void*>(&self)) GlobalExecutor;
    tlsInGlobal = false;
  }

  // A thread that has just done its last work is joined, so that it does not look like a leak. One
  // that is still at work gets a moment and is then left to the exit, as are those of a forked
  // child's parent.
  static void joinAtExit() {
    GlobalExecutor& self = get();
    if (tlsInGlobal || self.process_.load(std::memory_order_relaxed) != ::getpid()) return;
    std::unique_lock lock(self.mutex_);
    const auto isIdle = [&self] { return !self.running_ && !self.joining_; };
    if (!self.idle_.wait_for(lock, std::chrono::milliseconds(100), isIdle)) return;
    Thread ended = std::move(self.thread_);
    lock.unlock();
    if (ended.joinable()) ended.join();
  }

  // Each thread joins the one before it. That one has left run() for good, but its thread-locals
  // may still be going, and they may post here: nobody may hold the lock, or be kept, meanwhile.
  void runOnThread() {
    std::unique_lock lock(mutex_);
    Thread before = std::move(last_);
    lock.unlock();
    if (before.joinable()) before.join();
    run();
  }

  void run() {
    const bool outer = std::exchange(tlsInGlobal, true);
    std::unique_lock lock(mutex_);
    while (!queue_.empty()) {
      Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      try {
        task();
      } catch (const std::exception& e) {
        log(LogLevel::warn, "concurrent", "a task of the global executor threw: ", e.what());
      } catch (...) {
        log(LogLevel::warn, "concurrent", "a task of the global executor threw");
      }
      task.reset();
      lock.lock();
    }
    running_ = false;
    tlsInGlobal = outer;
    idle_.notify_all();
  }

  std::atomic<pid_t> process_{0};  // in which the thread was made
  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<Task> queue_;  // guarded by mutex_
  bool running_ = false;    // guarded by mutex_: somebody is in run(), or about to be
  bool joining_ = false;    // guarded by mutex_: somebody in awaitIdle() waits for a thread to end
  Thread thread_;           // guarded by mutex_: the one at work, or the last that was
  Thread last_;             // guarded by mutex_: the one before, until thread_ has taken it
};

}  // namespace

Executor& globalExecutor() noexcept { return GlobalExecutor::get(); }

void awaitGlobalExecutor() { GlobalExecutor::get().awaitIdle(); }

}  // namespace millrace
