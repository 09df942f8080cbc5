// SPDX-License-Identifier: Apache-2.0
// ScheduledFuture: the handle of a scheduled task.
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/concurrent/future.h>

#include <utility>

namespace millrace {

class TimerNode;

/// Copies share one timer; dropping it changes nothing. One word. Any thread.
class MILLRACE_API ScheduledFuture {
 public:
  ScheduledFuture() noexcept = default;
  ScheduledFuture(const ScheduledFuture& other) noexcept;
  ScheduledFuture(ScheduledFuture&& other) noexcept
      : timer_(std::exchange(other.timer_, nullptr)) {}
  ScheduledFuture& operator=(ScheduledFuture other) noexcept {
    std::swap(timer_, other.timer_);
    return *this;
  }
  ~ScheduledFuture() {
    if (timer_ != nullptr) drop();
  }
  /// Takes over one reference to `timer`. For executors.
  static ScheduledFuture adopt(TimerNode& timer) noexcept {
    ScheduledFuture handle;
    handle.timer_ = &timer;
    return handle;
  }

  /// False for a default-constructed handle, on which nothing else may be called.
  bool valid() const noexcept { return timer_ != nullptr; }
  /// True if the task will never start (again). False if it has run, was cancelled before, or runs
  /// right now for the only time.
  bool cancel() const noexcept;
  bool isCancelled() const noexcept;
  /// True if it has run for the last time, or was cancelled.
  bool isDone() const noexcept;
  /// When it runs (next), on the loop's clock.
  Deadline deadline() const noexcept;
  /// Time left until then, 0 if it is due.
  Duration delay(const Clock& clock = Clock::real()) const noexcept {
    return deadline().left(clock.nanos());
  }
  /// A future of its end: success after a single run, failure if the task threw, cancelled. A
  /// repeating task ends by the last two only. Not allocated before the first call. Its listeners
  /// run on the loop. REQUIRES: the loop is alive, as for every call on a loop.
  Future<void> future() const;

 private:
  void drop() noexcept;

  TimerNode* timer_ = nullptr;  // counted
};

}  // namespace millrace
