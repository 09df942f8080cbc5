// SPDX-License-Identifier: Apache-2.0
// ManualClock: time that a test moves by hand. Loops that live by it are woken when it moves.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/base/intrusive_list.h>

#include <cstdint>

namespace millrace {

/// Told when a ManualClock moves. `clockMoved` runs on the thread that moved it.
class ClockListener : public ListLink {
 public:
  virtual void clockMoved() noexcept = 0;

 protected:
  ~ClockListener() = default;
};

/// A clock that stands still until it is moved; loops that sleep on it are woken by `advance`.
class MILLRACE_API ManualClock final : public Clock {
 public:
  explicit ManualClock(std::int64_t start = 0) noexcept : now_(start) {}

  std::int64_t nanos() const noexcept override { return now_.load(std::memory_order_acquire); }
  /// Moves time forward and wakes the loops that live by this clock. Throws std::invalid_argument
  /// for a negative step.
  void advance(Duration step);

  void addListener(ClockListener& listener) noexcept override;
  void removeListener(ClockListener& listener) noexcept override;

 private:
  Atomic<std::int64_t> now_;
  Mutex mutex_;
  IntrusiveList<ClockListener> listeners_;  // guarded by mutex_
};

}  // namespace millrace
