// SPDX-License-Identifier: Apache-2.0
// Changes what a peer sends on its way to the end under test; see tls_play.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace millrace::fuzz {

/// Each change: kind, distance to the last one (2 bytes), value.
class Editor {
 public:
  explicit Editor(std::span<const std::uint8_t> script) : script_(script) { next(); }

  /// What becomes of `bytes`, the next ones of the stream.
  std::string edit(std::string_view bytes) {
    std::string out;
    for (char each : bytes) {
      if (isEnded_) break;
      bool isKept = skip_ == 0;
      if (!isKept) --skip_;
      for (int many = 0; hasChange_ && distance_ == 0 && many < 64; ++many) {
        isKept = change(each, out) && isKept;
        next();
      }
      if (hasChange_ && distance_ != 0) --distance_;
      if (isKept) add(each, out);
    }
    return out;
  }
  bool hasChanged() const { return hasChanged_; }
  /// True once, where the stream ends before its time.
  bool takeEnd() { return isEnded_ && !std::exchange(isEndTold_, true); }

 private:
  void next() {
    hasChange_ = script_.size() >= 4;
    if (!hasChange_) return;
    kind_ = script_[0];
    distance_ = static_cast<std::size_t>(script_[1] << 8 | script_[2]);
    value_ = script_[3];
    script_ = script_.subspan(4);
  }
  void add(char byte, std::string& out) {
    out += byte;
    last_ += byte;
    if (last_.size() > 512) last_.erase(0, 256);
  }
  void add(std::string_view bytes, std::string& out) {
    for (const char each : std::string(bytes)) add(each, out);
  }

  /// True if the byte itself stays.
  bool change(char& byte, std::string& out) {
    const std::size_t count = std::size_t{value_} + 1;
    switch (kind_ % 8) {
      case 0:  // flip
        hasChanged_ = hasChanged_ || value_ != 0;
        byte = static_cast<char>(byte ^ static_cast<char>(value_));
        return true;
      case 1:  // cut
        hasChanged_ = true;
        skip_ = value_;
        return false;
      case 2:  // repeat
        hasChanged_ = true;
        add(std::string_view(last_).substr(last_.size() - std::min(count, last_.size())), out);
        return true;
      case 3:  // insert
        hasChanged_ = true;
        add(static_cast<char>(value_), out);
        return true;
      case 4:  // a whole record in the clear
        hasChanged_ = true;
        add(std::string_view("\x15\x03\x03\x00\x02\x01", 6), out);
        add(static_cast<char>(value_), out);
        return true;
      case 5:  // insert a run
        hasChanged_ = true;
        add(std::string(count, '\0'), out);
        return true;
      case 6:  // the end
        hasChanged_ = true;
        isEnded_ = true;
        return false;
      default:  // nothing, but distances may be longer than two bytes can say
        return true;
    }
  }

  std::span<const std::uint8_t> script_;
  std::string last_;  // what was sent lately
  std::size_t distance_ = 0;
  std::size_t skip_ = 0;
  std::uint8_t kind_ = 0;
  std::uint8_t value_ = 0;
  bool hasChange_ = false;
  bool hasChanged_ = false;
  bool isEnded_ = false;
  bool isEndTold_ = false;
};

}  // namespace millrace::fuzz
