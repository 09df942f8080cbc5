// SPDX-License-Identifier: Apache-2.0
// LoopMetrics: what a loop has done so far. Always on; reading stops nobody.
//
// Each figure has one writer, the loop, and is read from any thread with relaxed loads: a snapshot
// is a set of recent values, not one instant.
#pragma once

#include <millrace/base/export.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace millrace {

/// Counts of values in log-linear buckets: four per power of two, so a value is known to 25 %.
struct HistogramSnapshot {
  static constexpr std::size_t kBuckets = 160;
  std::array<std::uint64_t, kBuckets> counts{};
  std::uint64_t total = 0;
  std::uint64_t max = 0;

  /// The upper bound of the bucket in which the `fraction` (0 to 1) of values lies; 0 if empty.
  MILLRACE_API std::uint64_t percentile(double fraction) const noexcept;
  /// Adds the counts of another one, as if both were one histogram.
  MILLRACE_API HistogramSnapshot& operator+=(const HistogramSnapshot& other) noexcept;

  /// Where `value` is counted.
  static constexpr std::size_t bucketOf(std::uint64_t value) noexcept {
    if (value < 4) return static_cast<std::size_t>(value);
    const int exponent = static_cast<int>(std::bit_width(value)) - 1;
    const std::size_t bucket = static_cast<std::size_t>(exponent - 1) * 4 +
                               static_cast<std::size_t>((value >> (exponent - 2)) & 3);
    return bucket < kBuckets ? bucket : kBuckets - 1;
  }
  /// The largest value that falls into `bucket`.
  MILLRACE_API static std::uint64_t upperBound(std::size_t bucket) noexcept;
};

/// A snapshot of one loop, or the sum of several. Times in nanoseconds.
struct LoopMetrics {
  std::uint64_t turns = 0;             ///< rounds of the loop
  std::uint64_t tasks = 0;             ///< tasks run, timers and tail tasks included
  std::uint64_t timers = 0;            ///< scheduled tasks run
  std::uint64_t lateTimers = 0;        ///< of these more than 1 ms late
  std::uint64_t ioEvents = 0;          ///< events dispatched
  std::uint64_t sleeps = 0;            ///< times the loop blocked
  std::uint64_t wakeups = 0;           ///< sleeps ended by a post that made a system call
  std::uint64_t prematureReturns = 0;  ///< sleeps that ended early for no reason
  std::uint64_t rebuilds = 0;          ///< selectors made anew
  std::uint64_t failures = 0;          ///< tasks and callbacks that threw, and failed turns
  std::uint64_t stalls = 0;            ///< reports of the watchdog
  std::uint64_t busyNanos = 0;         ///< time spent in I/O and tasks
  std::uint64_t pendingTasks = 0;      ///< tasks waiting right now
  std::uint64_t registrations = 0;     ///< descriptors and channels right now
  HistogramSnapshot turnTime;          ///< from the end of the wait to the end of the turn
  HistogramSnapshot taskDelay;         ///< from post to run, sampled
  HistogramSnapshot timerLateness;     ///< from the deadline to the run

  /// Adds the figures of another loop.
  MILLRACE_API LoopMetrics& operator+=(const LoopMetrics& other) noexcept;
};

namespace internal {

/// A counter with one writer.
class Counter {
 public:
  void add(std::uint64_t n = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// A histogram with one writer.
class Histogram {
 public:
  void record(std::int64_t value) noexcept {
    const std::uint64_t v = value < 0 ? 0 : static_cast<std::uint64_t>(value);
    counts_[HistogramSnapshot::bucketOf(v)].add();
    if (v > max_.get()) max_.set(v);
  }
  MILLRACE_API HistogramSnapshot snapshot() const noexcept;

 private:
  std::array<Counter, HistogramSnapshot::kBuckets> counts_;
  Counter max_;
};

}  // namespace internal

}  // namespace millrace
