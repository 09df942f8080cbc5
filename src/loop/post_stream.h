// SPDX-License-Identifier: Apache-2.0
// PostStream: when a loop should look into its inbox again while posts come in a stream.
//
// Each look takes the line of the inbox's head from the producers, and their next post takes it
// back: 50 to 150 ns on either side. While posts come many at a time the loop leaves a moment between
// two looks, about what a look at the descriptors takes when there are some, so that the price is
// shared by a few dozen tasks. When they stop coming it looks on for as long as a sleep and a wakeup
// cost, so that it does not sleep in the middle of a stream. docs/decisions/0001 has the figures.
//
// Loop thread only. Times are nanoseconds of the real clock.
#pragma once

#include <millrace/base/atomic.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace millrace {

class PostStream {
 public:
  /// So many tasks at a time are a stream.
  static constexpr std::size_t kMany = 8;
  /// Looks are so far apart that about so many tasks gather, within limits.
  static constexpr std::int64_t kBatch = 16;
  static constexpr std::int64_t kLeastNanos = 200;
  static constexpr std::int64_t kMostNanos = 600;
  /// So long after the last look that found something it is over.
  static constexpr std::int64_t kOverNanos = 4000;
  /// With more than this at a time the loop is behind, until a look finds no more than kCaughtUp.
  /// One number for both would be where the queue stays: there both sides are equally fast.
  static constexpr std::size_t kBehind = 48;
  static constexpr std::size_t kCaughtUp = 16;

  /// A look at `moment` found so many tasks. `mayGather`: the loop has nothing else to look at.
  void looked(std::size_t tasks, std::int64_t moment, bool mayGather) noexcept {
    const std::int64_t since = moment - at_;
    found_ = tasks;
    at_ = moment;
    behind_ = tasks > (behind_ ? kCaughtUp : kBehind);
    if (tasks >= kMany) {
      over_ = mayGather ? moment + kOverNanos : 0;
      gap_ = std::clamp(since * kBatch / static_cast<std::int64_t>(tasks), kLeastNanos, kMostNanos);
    } else if (tasks != 0 || moment >= over_) {
      over_ = 0;
    }
  }
  /// False if a look that finds nothing need not be told.
  bool isOn() const noexcept { return over_ != 0 || found_ != 0; }
  bool isBehind() const noexcept { return behind_; }

  /// Before the next look: lets tasks gather. True if there are some, as far as one can tell
  /// without looking. `now()` reads the clock; `isEmpty()` looks.
  template <class Now, class IsEmpty>
  bool gather(std::int64_t moment, Now&& now, IsEmpty&& isEmpty) const {
    if (over_ == 0) return false;
    if (found_ != 0) {
      for (const std::int64_t end = at_ + gap_; moment < end; moment = now()) cpuRelax();
      return true;
    }
    do {
      for (int i = 0; i < 4; ++i) cpuRelax();
      if (!isEmpty()) return true;
    } while (now() < over_);
    return false;
  }

 private:
  std::size_t found_ = 0;  // by the last look
  std::int64_t at_ = 0;    // when that was
  std::int64_t gap_ = kLeastNanos;
  bool behind_ = false;
  std::int64_t over_ = 0;  // not 0: there is a stream, and when it will be over
};

}  // namespace millrace
