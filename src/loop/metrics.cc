// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/metrics.h>

#include <algorithm>
#include <cmath>

namespace millrace {

std::uint64_t HistogramSnapshot::upperBound(std::size_t bucket) noexcept {
  if (bucket < 4) return bucket;
  const std::size_t exponent = bucket / 4 + 1;
  const std::uint64_t quarter = bucket % 4;
  return ((4 + quarter + 1) << (exponent - 2)) - 1;
}

std::uint64_t HistogramSnapshot::percentile(double fraction) const noexcept {
  if (total == 0) return 0;
  const double clamped = std::clamp(fraction, 0.0, 1.0);
  const auto wanted = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(std::ceil(clamped * static_cast<double>(total))));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += counts[i];
    if (seen >= wanted) return std::min(upperBound(i), max);
  }
  return max;
}

HistogramSnapshot& HistogramSnapshot::operator+=(const HistogramSnapshot& other) noexcept {
  for (std::size_t i = 0; i < kBuckets; ++i) counts[i] += other.counts[i];
  total += other.total;
  max = std::max(max, other.max);
  return *this;
}

LoopMetrics& LoopMetrics::operator+=(const LoopMetrics& other) noexcept {
  turns += other.turns;
  tasks += other.tasks;
  timers += other.timers;
  lateTimers += other.lateTimers;
  ioEvents += other.ioEvents;
  sleeps += other.sleeps;
  wakeups += other.wakeups;
  prematureReturns += other.prematureReturns;
  rebuilds += other.rebuilds;
  failures += other.failures;
  stalls += other.stalls;
  busyNanos += other.busyNanos;
  pendingTasks += other.pendingTasks;
  registrations += other.registrations;
  turnTime += other.turnTime;
  taskDelay += other.taskDelay;
  timerLateness += other.timerLateness;
  return *this;
}

namespace internal {

HistogramSnapshot Histogram::snapshot() const noexcept {
  HistogramSnapshot copy;
  for (std::size_t i = 0; i < HistogramSnapshot::kBuckets; ++i) {
    copy.counts[i] = counts_[i].get();
    copy.total += copy.counts[i];
  }
  copy.max = max_.get();
  return copy;
}

}  // namespace internal

}  // namespace millrace
