// SPDX-License-Identifier: Apache-2.0
// Time limits in the kernel's form.
#pragma once

#include <cstdint>
#include <ctime>

namespace millrace {

/// REQUIRES: nanos >= 0
inline timespec toTimespec(std::int64_t nanos) noexcept {
  timespec out{};
  out.tv_sec = static_cast<std::time_t>(nanos / 1'000'000'000);
  out.tv_nsec = static_cast<long>(nanos % 1'000'000'000);
  return out;
}

}  // namespace millrace
