// SPDX-License-Identifier: Apache-2.0
#include "concurrent/shutdown_periods.h"
#include "concurrent/thread_pool_core.h"

#include <millrace/base/check.h>
#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/concurrent/thread_pool.h>

#include <stdexcept>

namespace millrace {

namespace {

constexpr std::size_t kWaitingPerThread = 256;

Atomic<std::uint64_t> lastPoolNumber{0};

}  // namespace

ThreadPoolOptions::ThreadPoolOptions() : clock_(&Clock::real()) {}

ThreadPoolOptions& ThreadPoolOptions::threads(int count) {
  if (count < 0) {
    throw std::invalid_argument("ThreadPoolOptions::threads(" + std::to_string(count) +
                                "): must not be negative; 0 is the default number");
  }
  threads_ = count;
  return *this;
}

ThreadPoolOptions& ThreadPoolOptions::name(std::string value) {
  name_ = std::move(value);
  return *this;
}

ThreadPoolOptions& ThreadPoolOptions::capacity(std::size_t tasks) {
  capacity_ = tasks;
  return *this;
}

ThreadPoolOptions& ThreadPoolOptions::clock(Clock& value) {
  clock_ = &value;
  return *this;
}

ThreadPool::ThreadPool(int threads) : ThreadPool(ThreadPoolOptions().threads(threads)) {}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) {
  const int threads = options.threads_ != 0 ? options.threads_ : 2 * availableCpus();
  const auto most = static_cast<std::size_t>(threads);
  const std::uint64_t number = lastPoolNumber.fetch_add(1, std::memory_order_relaxed) + 1;
  core_ = makeRef<Core>(Core::Settings{
      most, options.name_.empty() ? "pool" + std::to_string(number) : options.name_,
      options.capacity_ != 0 ? options.capacity_ : most * kWaitingPerThread, options.clock_});
}

ThreadPool::~ThreadPool() {
  if (core_->isForeignProcess()) {
    // Its threads, and who knows which locks, stayed behind in the parent: only forget it.
    static_cast<void>(core_.release());
    return;
  }
  if (!core_->isShuttingDown())
    core_->shutdownGracefully(Duration::zero(), std::chrono::seconds(15));
  const bool mayWait = internal::tlsCurrentExecutor == nullptr && !core_->inEventLoop() &&
                       !globalExecutor().inEventLoop();
  if (mayWait && !core_->awaitEnd()) {
    log(LogLevel::error, "concurrent", "the pool \"", core_->name(),
        "\" dies before its tasks: ", core_->threads(), " threads (mr-", core_->name(),
        "-…) are stuck and ", core_->pendingTasks(), " tasks wait; they are left alone");
  }
  MR_CHECK(promises_.load(std::memory_order_acquire) == 0,
           "a Promise or Future made on a ThreadPool outlived it; use submit(), or drop it before");
}

void ThreadPool::execute(Task task) { core_->execute(std::move(task)); }

bool ThreadPool::tryExecute(Task task) { return core_->tryExecute(std::move(task)); }

bool ThreadPool::inEventLoop() const noexcept { return core_->inEventLoop(); }

Future<ShutdownReport> ThreadPool::shutdownGracefully(Duration quiet, Duration timeout) {
  checkPeriods(quiet, timeout);
  core_->shutdownGracefully(quiet, timeout);
  return core_->terminationFuture();
}

bool ThreadPool::isShuttingDown() const noexcept { return core_->isShuttingDown(); }

bool ThreadPool::isShutdown() const noexcept { return core_->isShutdown(); }

bool ThreadPool::isTerminated() const noexcept { return core_->isTerminated(); }

Future<ShutdownReport> ThreadPool::terminationFuture() const { return core_->terminationFuture(); }

bool ThreadPool::awaitTermination(Deadline until) const {
  if (inEventLoop()) {
    throw BlockingOperation(
        "awaitTermination() on a thread of the pool would wait for ever: the thread cannot end "
        "while "
        "it waits for its end; call it from another thread or use terminationFuture()");
  }
  return core_->terminationFuture().await(until);
}

int ThreadPool::threads() const noexcept { return static_cast<int>(core_->threads()); }

int ThreadPool::busyThreads() const noexcept { return static_cast<int>(core_->busyThreads()); }

std::size_t ThreadPool::pendingTasks() const noexcept { return core_->pendingTasks(); }

std::size_t ThreadPool::capacity() const noexcept { return core_->capacity(); }

const std::string& ThreadPool::name() const noexcept { return core_->name(); }

void ThreadPool::retain() const noexcept { promises_.fetch_add(1, std::memory_order_relaxed); }

void ThreadPool::release() const noexcept { promises_.fetch_sub(1, std::memory_order_acq_rel); }

}  // namespace millrace
