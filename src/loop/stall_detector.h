// SPDX-License-Identifier: Apache-2.0
// StallDetector: decides by what is seen of a loop, now and then, whether it stands still for too
// long.
#pragma once

#include <millrace/base/clock.h>

#include <cstdint>
#include <optional>

namespace millrace {

/// What moves whenever a loop does something.
struct LoopPulse {
  std::int64_t turnBegan = 0;   ///< 0: it waits for work
  std::uint64_t tasks = 0;      ///< begun so far
  std::uint64_t callbacks = 0;  ///< begun so far
  friend bool operator==(const LoopPulse&, const LoopPulse&) = default;
};

/// One per loop. Never cries wolf: a stall is told only when the same pulse was seen twice, in a
/// turn, further apart than the threshold. Each stall is told once.
class StallDetector {
 public:
  explicit StallDetector(Duration threshold) noexcept : threshold_(threshold.count()) {}

  /// What was seen at `now`. Gives how long the loop has stood still, once per stall.
  std::optional<Duration> see(const LoopPulse& pulse, std::int64_t now) noexcept {
    if (pulse.turnBegan == 0 || pulse != last_) {
      last_ = pulse;
      since_ = now;
      told_ = false;
      return std::nullopt;
    }
    if (told_ || now - since_ <= threshold_) return std::nullopt;
    told_ = true;
    return Duration(now - since_);
  }

  /// The next moment at which see() can tell something new about what it saw last.
  Deadline nextPossible() const noexcept {
    if (told_ || last_.turnBegan == 0) return Deadline::never();
    return Deadline::at(saturatingAdd(saturatingAdd(since_, threshold_), 1));
  }
  const LoopPulse& last() const noexcept { return last_; }

 private:
  std::int64_t threshold_;
  LoopPulse last_;
  std::int64_t since_ = 0;  // when it was seen first
  bool told_ = false;
};

}  // namespace millrace
