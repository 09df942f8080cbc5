// SPDX-License-Identifier: Apache-2.0
#include "concurrent/thread_pool_core.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <unistd.h>
#include <utility>

namespace millrace {

ThreadPool::Core::Core(Settings settings)
    : settings_(std::move(settings)),
      process_(::getpid()),
      done_(globalExecutor()),
      terminated_(done_.future()) {
  if (!settings_.clock->isReal()) settings_.clock->addListener(*this);
}

// --- Tasks ---

void ThreadPool::Core::execute(Task task) {
  Error failure;
  switch (take(task, failure)) {
    case Answer::taken:
      return;
    case Answer::full:
      throw RejectedExecution(
          "execute(): rejected, " + std::to_string(settings_.capacity) +
          " tasks wait in the pool \"" + settings_.name +
          "\", as many as its capacity allows; raise capacity() or threads() of "
          "ThreadPoolOptions, or use tryExecute() and give it less");
    case Answer::stopped:
      throw RejectedExecution(
          "execute(): rejected, the pool \"" + settings_.name +
          "\" is shut down and takes no more tasks; use tryExecute() where that "
          "may happen");
    case Answer::noThread:
      throw Exception(std::move(failure));
  }
}

bool ThreadPool::Core::tryExecute(Task task) {
  Error failure;
  return take(task, failure) == Answer::taken;
}

ThreadPool::Core::Answer ThreadPool::Core::take(Task& task, Error& failure) {
  if (!task) throw std::invalid_argument("execute(): the task is empty; give it a callable");
  Lock lock(mutex_);
  if (phase_ == Phase::shuttingDown) endIfTime(settings_.clock->nanos());
  if (phase_ >= Phase::shutdown) return Answer::stopped;
  if (queue_.size() >= settings_.capacity) return Answer::full;
  if (phase_ == Phase::shuttingDown) lastWork_ = settings_.clock->nanos();
  queue_.push_back(std::move(task));
  failure = startThreadIfNeeded();
  if (failure && alive_ == 0) {
    task = std::move(queue_.back());
    queue_.pop_back();
    return Answer::noThread;
  }
  const bool tell = failure && !std::exchange(complained_, true);
  const std::size_t left = alive_;
  changed_.notify_one();
  lock.unlock();
  if (tell) {
    log(LogLevel::warn, "concurrent", "the pool \"", settings_.name, "\" goes on with ", left,
        " of ", settings_.threads, " threads: ", failure.message());
  }
  return Answer::taken;
}

// Threads without a task take one each, those that are just starting included.
Error ThreadPool::Core::startThreadIfNeeded() {
  if (queue_.size() <= alive_ - busy_ || alive_ >= settings_.threads) return {};
  std::string name = "mr-" + settings_.name + "-" + std::to_string(threads_.size() + 1);
  Result<Thread> started = startThread(name, [core = Ref<Core>(this), name] { core->work(name); });
  if (!started) return started.error();
  threads_.push_back(std::move(started).value());
  ++alive_;
  complained_ = false;
  return {};
}

void ThreadPool::Core::work(const std::string& name) {
  setLogThread(name.c_str());
  internal::tlsCurrentExecutor = this;
  Lock lock(mutex_);
  while (awaitTask(lock)) runNext(lock);
  const bool last = --alive_ == 0;
  lock.unlock();
  internal::tlsCurrentExecutor = nullptr;
  setLogThread("");
  // Not here: this thread has to be joined, too.
  if (last) globalExecutor().execute([core = Ref<Core>(this)] { core->finish(); });
}

bool ThreadPool::Core::awaitTask(Lock& lock) {
  for (;;) {
    if (!queue_.empty()) return true;
    if (phase_ == Phase::shuttingDown) endIfTime(settings_.clock->nanos());
    if (phase_ >= Phase::shutdown) return false;
    waitForChange(lock);
  }
}

void ThreadPool::Core::runNext(Lock& lock) {
  Task task = std::move(queue_.front());
  queue_.pop_front();
  ++busy_;
  if (phase_ == Phase::shuttingDown) endIfTime(settings_.clock->nanos());
  if (phase_ >= Phase::shutdown) ++report_.tasksRunAfterTimeout;
  lock.unlock();
  try {
    task();
  } catch (const std::exception& e) {
    log(LogLevel::warn, "concurrent", "a task of a thread pool threw: ", e.what());
  } catch (...) {
    log(LogLevel::warn, "concurrent", "a task of a thread pool threw");
  }
  task.reset();
  lock.lock();
  --busy_;
  if (phase_ == Phase::shuttingDown) lastWork_ = settings_.clock->nanos();
}

// --- Life cycle ---

void ThreadPool::Core::shutdownGracefully(Duration quiet, Duration timeout) {
  Lock lock(mutex_);
  if (phase_ >= Phase::shutdown) return;
  if (phase_ == Phase::open) {
    phase_ = Phase::shuttingDown;
    begin_ = lastWork_ = settings_.clock->nanos();
  }
  quiet_ = std::max(quiet_, quiet);
  timeout_ = std::max(timeout_, timeout);
  changed_.notify_all();
  if (alive_ != 0) return;
  // Nobody is there to wait for the end of the quiet period. If nobody can be made, it ends now.
  if (quiet_.count() > 0) {
    queue_.emplace_back([] {});
    const Error failure = startThreadIfNeeded();
    if (!failure) return;
    queue_.clear();
  }
  phase_ = Phase::shutdown;
  lock.unlock();
  finish();
}

// REQUIRES: the phase is shuttingDown, and mutex_ is held.
void ThreadPool::Core::endIfTime(std::int64_t now) noexcept {
  const bool idle = queue_.empty() && busy_ == 0;
  const bool quiet = Deadline::at(saturatingAdd(lastWork_, quiet_.count())).isDue(now);
  const bool late = Deadline::at(saturatingAdd(begin_, timeout_.count())).isDue(now);
  if (!(idle && quiet) && !late) return;
  report_.timedOut = !(idle && quiet);
  phase_ = Phase::shutdown;
  changed_.notify_all();
}

void ThreadPool::Core::waitForChange(Lock& lock) {
  if (phase_ != Phase::shuttingDown || !settings_.clock->isReal()) {
    changed_.wait(lock);  // a clock that is moved by hand tells of its moves
    return;
  }
  std::int64_t until = saturatingAdd(begin_, timeout_.count());
  if (busy_ == 0) until = std::min(until, saturatingAdd(lastWork_, quiet_.count()));
  if (Deadline::at(until).isNever()) {
    changed_.wait(lock);
  } else {
    changed_.wait_until(lock, std::chrono::steady_clock::time_point(Duration(until)));
  }
}

// On the global executor, when no thread is in work() any more. If there is no thread for that
// executor it is the pool's own last thread, which cannot join itself.
void ThreadPool::Core::finish() {
  Lock lock(mutex_);
  std::vector<Thread> threads = std::move(threads_);
  lock.unlock();
  for (Thread& each : threads) {
    if (each.id() == currentThread()) {
      each.detach();
    } else {
      each.join();
    }
  }
  if (!settings_.clock->isReal()) settings_.clock->removeListener(*this);
  lock.lock();
  phase_ = Phase::terminated;
  const ShutdownReport report = report_;
  lock.unlock();
  done_.trySuccess(report);
}

void ThreadPool::Core::clockMoved() noexcept {
  const Lock lock(mutex_);
  changed_.notify_all();
}

// --- Observers ---

bool ThreadPool::Core::isShuttingDown() const noexcept {
  const Lock lock(mutex_);
  return phase_ >= Phase::shuttingDown;
}

bool ThreadPool::Core::isShutdown() noexcept {
  const Lock lock(mutex_);
  if (phase_ == Phase::shuttingDown) endIfTime(settings_.clock->nanos());
  return phase_ >= Phase::shutdown;
}

bool ThreadPool::Core::isTerminated() const noexcept {
  const Lock lock(mutex_);
  return phase_ == Phase::terminated;
}

bool ThreadPool::Core::awaitEnd() const {
  Duration limit{};
  {
    const Lock lock(mutex_);
    limit = timeout_;
  }
  const std::int64_t late = saturatingAdd(limit.count(), 1'000'000'000);
  return terminated_.await(Deadline::after(Duration(late)));
}

bool ThreadPool::Core::isForeignProcess() const noexcept { return process_ != ::getpid(); }

std::size_t ThreadPool::Core::threads() const noexcept {
  const Lock lock(mutex_);
  return alive_;
}

std::size_t ThreadPool::Core::busyThreads() const noexcept {
  const Lock lock(mutex_);
  return busy_;
}

std::size_t ThreadPool::Core::pendingTasks() const noexcept {
  const Lock lock(mutex_);
  return queue_.size();
}

}  // namespace millrace
