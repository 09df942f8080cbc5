// SPDX-License-Identifier: Apache-2.0
// Time: Duration, Clock and Deadline. (For tests: ManualClock, manual_clock.h.)
//
// Time is monotonic and counted in nanoseconds; the wall clock may jump as it likes. Arithmetic
// saturates: a delay of the largest Duration never comes, it does not wrap around into the past.
#pragma once

#include <millrace/base/export.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

namespace millrace {

using Duration = std::chrono::nanoseconds;

/// Adds without overflow: the nearest representable value instead.
constexpr std::int64_t saturatingAdd(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? std::numeric_limits<std::int64_t>::max()
               : std::numeric_limits<std::int64_t>::min();
}

class ClockListener;  // manual_clock.h

/// Where a loop gets its time from. Any thread.
class MILLRACE_API Clock {
 public:
  /// The machine's monotonic clock.
  static Clock& real() noexcept;

  Clock() noexcept = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  /// Nanoseconds since some fixed moment; never goes back.
  virtual std::int64_t nanos() const noexcept = 0;
  /// False for clocks that tests move by hand: their deadlines never become kernel timeouts.
  virtual bool isReal() const noexcept { return false; }
  /// From now on `listener` hears of every move. Does nothing on a clock that moves by itself.
  virtual void addListener(ClockListener&) noexcept {}
  /// No call to `listener` is under way or follows once this has returned.
  virtual void removeListener(ClockListener&) noexcept {}
};

/// A moment on a clock, or never. A value.
class Deadline {
 public:
  /// A moment that does not come.
  static constexpr Deadline never() noexcept {
    return Deadline(std::numeric_limits<std::int64_t>::max());
  }
  /// A moment that has passed on every clock.
  static constexpr Deadline past() noexcept {
    return Deadline(std::numeric_limits<std::int64_t>::min());
  }
  static constexpr Deadline at(std::int64_t nanos) noexcept { return Deadline(nanos); }
  /// `delay` from now; a negative delay is now.
  static Deadline after(Duration delay, const Clock& clock = Clock::real()) noexcept {
    const std::int64_t step = delay.count() < 0 ? 0 : delay.count();
    return Deadline(saturatingAdd(clock.nanos(), step));
  }

  constexpr bool isNever() const noexcept { return *this == never(); }
  constexpr std::int64_t nanos() const noexcept { return nanos_; }
  constexpr bool isDue(std::int64_t now) const noexcept { return !isNever() && nanos_ <= now; }
  /// Time left, 0 when due, the largest Duration for never.
  constexpr Duration left(std::int64_t now) const noexcept {
    if (isNever()) return Duration::max();
    if (nanos_ <= now) return Duration::zero();
    std::int64_t rest = 0;
    if (__builtin_sub_overflow(nanos_, now, &rest)) return Duration::max();
    return Duration(rest);
  }
  friend constexpr auto operator<=>(const Deadline&, const Deadline&) noexcept = default;

 private:
  explicit constexpr Deadline(std::int64_t nanos) noexcept : nanos_(nanos) {}
  std::int64_t nanos_;
};

}  // namespace millrace
