// SPDX-License-Identifier: Apache-2.0
// ReceivePredictor: how large the next receive buffer should be, from what came before.
//
// Grows at once when a buffer was filled, and shrinks by half when two bursts in a row left more
// than three quarters unused. Four bytes per channel; sizes are powers of two within the bounds.
#pragma once

#include <millrace/channel/channel_option.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace millrace {

/// A value; belongs to one channel.
class ReceivePredictor {
 public:
  ReceivePredictor() noexcept = default;

  /// Begins anew within these bounds: powers of two that are not below `min` and 64, nor above `max`.
  void begin(const ReceiveSizes& sizes) noexcept {
    min_ = static_cast<std::uint8_t>(std::bit_width(std::max<std::size_t>(sizes.min, 64) - 1));
    max_ = static_cast<std::uint8_t>(std::bit_width(sizes.max) - 1);
    if (max_ < min_) max_ = min_;
    const auto initial =
        static_cast<int>(std::bit_width(std::max<std::size_t>(sizes.initial, 2) - 1));
    exponent_ = static_cast<std::uint8_t>(std::clamp<int>(initial, min_, max_));
    small_ = 0;
  }
  /// The size for the next read: two to the power of exponent().
  std::size_t guess() const noexcept { return std::size_t{1} << exponent_; }
  int exponent() const noexcept { return exponent_; }
  /// A read filled its buffer.
  void filled() noexcept {
    exponent_ = static_cast<std::uint8_t>(std::min<int>(exponent_ + kGrow, max_));
    small_ = 0;
  }
  /// A burst of reads brought `total` bytes; the last buffer had room for `room`.
  void burstEnded(std::size_t total, std::size_t room) noexcept {
    if (__builtin_expect(total < room / 4, 0)) return shrink();
    small_ = 0;
  }

 private:
  static constexpr int kGrow = 2;  // steps of two: four times as large

  void shrink() noexcept {
    if (++small_ < 2) return;
    small_ = 0;
    if (exponent_ > min_) --exponent_;
  }

  std::uint8_t exponent_ = 11;
  std::uint8_t min_ = 6;
  std::uint8_t max_ = 19;
  std::uint8_t small_ = 0;  // bursts in a row that were small
};

}  // namespace millrace
