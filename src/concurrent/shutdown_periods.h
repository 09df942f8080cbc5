// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/clock.h>

#include <stdexcept>
#include <string>

namespace millrace {

/// Throws std::invalid_argument unless 0 <= quiet <= timeout.
inline void checkPeriods(Duration quiet, Duration timeout) {
  if (quiet.count() >= 0 && timeout >= quiet) return;
  throw std::invalid_argument(
      "shutdownGracefully(" + std::to_string(quiet.count()) + "ns, " +
      std::to_string(timeout.count()) +
      "ns): neither may be negative, nor the timeout below the quiet period");
}

}  // namespace millrace
