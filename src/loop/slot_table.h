// SPDX-License-Identifier: Apache-2.0
// SlotTable: values that are known by their place, and places that are used again. One thread.
//
// What tells a place's owners apart (a generation, a sequence) is part of the value, which stays as it
// was left when its place is given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

template <class T>
class SlotTable {
 public:
  /// `nobodys`: places that are never taken.
  explicit SlotTable(std::size_t nobodys = 0) : slots_(nobodys) {}

  /// A place that nobody has. References to values are valid until the next call.
  std::uint32_t take() {
    if (free_.empty()) {
      slots_.emplace_back();
      return static_cast<std::uint32_t>(slots_.size() - 1);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }
  void give(std::uint32_t place) { free_.push_back(place); }

  T& operator[](std::size_t place) noexcept { return slots_[place]; }
  const T& operator[](std::size_t place) const noexcept { return slots_[place]; }
  std::uint32_t placeOf(const T& slot) const noexcept {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  /// Of all places, free ones included.
  std::size_t size() const noexcept { return slots_.size(); }
  auto begin() noexcept { return slots_.begin(); }
  auto end() noexcept { return slots_.end(); }
  auto begin() const noexcept { return slots_.begin(); }
  auto end() const noexcept { return slots_.end(); }

 private:
  std::vector<T> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace millrace
