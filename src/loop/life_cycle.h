// SPDX-License-Identifier: Apache-2.0
// LifeCycle: the state of a loop, and who may make its thread.
//
// Start: a producer pushes its task first, then looks at the state; if the loop has not started it
// makes the thread under the lock. If that fails nobody consumes the inbox, so the holder of the
// lock takes its own task out again, leaves the others in order, and the state stays notStarted:
// the next execute tries again. A loop that never started ends on the thread that asks for it,
// which leaves notStarted under the same lock, so an end and a start never cross. tests/interleave explores this source.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/check.h>
#include <millrace/base/result.h>
#include <millrace/concurrent/inbox.h>

#include <mutex>

namespace millrace {

template <class State>
class LifeCycle {
 public:
  State state() const noexcept { return state_.load(std::memory_order_acquire); }

  /// Moves forward to `next`, which no other thread does for this step. Loop thread.
  void advance(State next) noexcept { state_.store(next, std::memory_order_release); }

  /// The body runs: notStarted -> started, whoever comes first, the starter or the new thread
  /// itself.
  void markStarted() noexcept {
    State expected = State::notStarted;
    state_.compare_exchange_strong(expected, State::started, std::memory_order_acq_rel);
  }

  /// After `own` was pushed (or null: nothing was). Makes the thread by `make()` unless somebody
  /// did. On failure `own` is the caller's again.
  template <class Make>
  Result<void> start(Inbox& inbox, TaskNode* own, Make&& make) {
    std::lock_guard lock(mutex_);
    if (state() != State::notStarted) return {};
    Result<void> made = make();
    if (made) {
      markStarted();
    } else if (own != nullptr) {
      const bool removed = inbox.remove(own);
      MR_CHECK(removed, "a task left the inbox of a loop that has no thread");
    }
    return made;
  }

  /// notStarted -> started for a loop that the caller drives; false if it is ending.
  bool startByHand() noexcept {
    std::lock_guard lock(mutex_);
    markStarted();
    return state() == State::started;
  }

  /// True if the loop never started: the caller now carries out its end.
  bool endUnstarted() noexcept {
    std::lock_guard lock(mutex_);
    if (state() != State::notStarted) return false;
    advance(State::shuttingDown);
    return true;
  }

 private:
  Atomic<State> state_{State::notStarted};
  Mutex mutex_;
};

}  // namespace millrace
