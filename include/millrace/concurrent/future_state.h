// SPDX-License-Identifier: Apache-2.0
// FutureState: what a Promise and its Futures share. Not for users; see future.h.
//
// One word holds the state bits and the stack of listeners, so completion and registration meet in
// a single atomic and none of them can miss the other:
//
//   word = listener* | claimed | done | uncancellable | waited | notifying
//
// - claimed: somebody has won the right to write the result; done: the result may be read.
// - whoever pushes a listener and sees `done` starts the notification; whoever sets `done` and sees
//   listeners does too. `notifying` lets one of them run at a time: it can only be taken off
//   together with the observation that no listener is left, so none is forgotten and order is kept.
// - waited: a thread sleeps on `signal_`, the one who sets `done` wakes it.
//
// tests/interleave explores completion against listeners, cancel and waiting.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/base/ref.h>
#include <millrace/base/task.h>
#include <millrace/concurrent/executor.h>

#include <cstdint>

namespace millrace::internal {

class MILLRACE_API FutureState : public RefCounted<FutureState> {
 public:
  explicit FutureState(Executor& executor) noexcept : executor_(&executor.forPromise()) {
    executor_->retain();
  }
  virtual ~FutureState();

  bool isDone() const noexcept { return (word_.load(std::memory_order_acquire) & kDone) != 0; }
  bool isUncancellable() const noexcept {
    return (word_.load(std::memory_order_acquire) & kUncancellable) != 0;
  }

  /// Wins the right to write the result, at most once. Followed by publish().
  bool claim() noexcept { return claimUnless(kClaimed); }
  bool claimForCancel() noexcept { return claimUnless(kClaimed | kUncancellable); }
  /// False if it is done or being completed already.
  bool markUncancellable() noexcept;
  /// The result is written: wakes waiters and starts the listeners.
  void publish() noexcept;

  /// Adds a callback; it runs on the executor, in the order of addition, once.
  void addListener(Task callback);
  /// Waits until done or `until`; tells whether it is done. Throws BlockingOperation on the
  /// executor's own thread, before waiting, unless it is done.
  bool await(Deadline until) const;

  Executor& executor() const noexcept { return *executor_; }

 private:
  struct Listener;
  static constexpr std::uintptr_t kDone = 1;
  static constexpr std::uintptr_t kUncancellable = 2;
  static constexpr std::uintptr_t kClaimed = 4;
  static constexpr std::uintptr_t kWaited = 8;
  static constexpr std::uintptr_t kNotifying = 16;
  static constexpr std::uintptr_t kBits = 31;

  static Listener* listeners(std::uintptr_t word) noexcept;
  bool claimUnless(std::uintptr_t bits) noexcept;
  void startNotifying() noexcept;
  void notify() noexcept;

  mutable Atomic<std::uintptr_t> word_{0};
  mutable Atomic<std::uint32_t> signal_{0};
  Executor* const executor_;  // retained
};

}  // namespace millrace::internal
