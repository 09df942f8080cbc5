// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/error.h>
#include <millrace/base/log.h>
#include <millrace/concurrent/future_state.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/sys/futex.h>

#include <limits>
#include <utility>

namespace millrace::internal {

namespace {

/// Callbacks nested deeper than this on one stack are posted instead.
constexpr int kMaxDepth = 8;
thread_local int tlsDepth = 0;

}  // namespace

struct alignas(32) FutureState::Listener {
  explicit Listener(Task task) noexcept : callback(std::move(task)) {}
  Plain<Listener*> next{nullptr};
  Task callback;
};

FutureState::Listener* FutureState::listeners(std::uintptr_t word) noexcept {
  return reinterpret_cast<Listener*>(word & ~kBits);  // NOLINT: a tagged pointer
}

FutureState::~FutureState() {
  for (Listener* each = listeners(word_.load(std::memory_order_acquire)); each != nullptr;) {
    delete std::exchange(each, each->next.read());
  }
  executor_->release();
}

bool FutureState::claimUnless(std::uintptr_t bits) noexcept {
  std::uintptr_t seen = word_.load(std::memory_order_relaxed);
  do {
    if ((seen & bits) != 0) return false;
  } while (!word_.compare_exchange_weak(seen, seen | kClaimed, std::memory_order_acquire,
                                        std::memory_order_relaxed));
  return true;
}

bool FutureState::markUncancellable() noexcept {
  std::uintptr_t seen = word_.load(std::memory_order_relaxed);
  do {
    if ((seen & kClaimed) != 0) return false;
  } while (!word_.compare_exchange_weak(seen, seen | kUncancellable, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  return true;
}

void FutureState::publish() noexcept {
  // Acquire for the listeners' nodes, release for the result.
  const std::uintptr_t before = word_.fetch_or(kDone, std::memory_order_acq_rel);
  if ((before & kWaited) != 0) {
    signal_.store(1, std::memory_order_seq_cst);
    futexWake(signal_, std::numeric_limits<int>::max());
  }
  if (listeners(before) != nullptr) startNotifying();
}

void FutureState::addListener(Task callback) {
  auto* added = new Listener(std::move(callback));
  std::uintptr_t seen = word_.load(std::memory_order_relaxed);
  do {
    added->next.write() = listeners(seen);
  } while (!word_.compare_exchange_weak(seen,
                                        reinterpret_cast<std::uintptr_t>(added) | (seen & kBits),
                                        std::memory_order_acq_rel, std::memory_order_relaxed));
  if ((seen & kDone) != 0) startNotifying();
}

void FutureState::startNotifying() noexcept {
  // Directly where the callbacks belong, unless the stack is deep already.
  if (tlsDepth < kMaxDepth && (executor_->inEventLoop() || executor_ == &immediateExecutor())) {
    ++tlsDepth;
    notify();
    --tlsDepth;
    return;
  }
  auto later = [self = Ref<FutureState>(this)] { self->notify(); };
  // A loop that is gone runs nothing more; its callbacks must not be lost for that.
  if (!executor_->executeOwn(later)) globalExecutor().execute(std::move(later));
}

void FutureState::notify() noexcept {
  std::uintptr_t seen = word_.fetch_or(kNotifying, std::memory_order_acq_rel);
  if ((seen & kNotifying) != 0) return;  // whoever runs them now will find the new ones, too
  Ref<FutureState> alive(this);          // a callback may drop the last handle
  seen |= kNotifying;
  for (;;) {
    if (listeners(seen) == nullptr) {
      // Only together with "nothing is left": a listener added meanwhile makes this fail.
      if (word_.compare_exchange_weak(seen, seen & ~kNotifying, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        return;
      }
      continue;
    }
    Listener* newest = listeners(word_.fetch_and(kBits, std::memory_order_acq_rel));
    Listener* oldest = nullptr;
    while (newest != nullptr) {
      Listener* next = newest->next.read();
      newest->next.write() = oldest;
      oldest = std::exchange(newest, next);
    }
    while (oldest != nullptr) {
      try {
        oldest->callback();
      } catch (const std::exception& e) {
        log(LogLevel::warn, "concurrent", "a listener of a future threw: ", e.what());
      } catch (...) {
        log(LogLevel::warn, "concurrent", "a listener of a future threw");
      }
      delete std::exchange(oldest, oldest->next.read());
    }
    seen = word_.load(std::memory_order_acquire);
  }
}

bool FutureState::await(Deadline until) const {
  if (isDone()) return true;
  if (executor_->waitsForItself()) {
    throw BlockingOperation(
        "waiting for a future on the thread of its own executor would wait for ever: only this "
        "thread can complete it; use addListener() or co_await instead of get(), sync() or "
        "await(), or run() a loop that you drive by hand");
  }
  const std::uintptr_t before = word_.fetch_or(kWaited, std::memory_order_acq_rel);
  if ((before & kDone) != 0) return true;
  while (signal_.load(std::memory_order_acquire) == 0) {
    if (until.isDue(Clock::real().nanos())) return isDone();
    futexWait(signal_, 0, until);
  }
  return true;
}

}  // namespace millrace::internal
