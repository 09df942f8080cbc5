// SPDX-License-Identifier: Apache-2.0
// SelectStrategy: decides at the top of each turn whether the loop blocks, looks or goes round.
#pragma once

#include <functional>
#include <memory>

namespace millrace {

/// One per loop, made by a factory; loop thread only.
class SelectStrategy {
 public:
  static constexpr int kSelect = -1;    ///< block until an event, a task or the next timer
  static constexpr int kContinue = -2;  ///< skip I/O and tasks this time, go back to the top
  static constexpr int kBusyWait = -3;  ///< look without blocking, again and again

  virtual ~SelectStrategy() = default;
  /// One of the constants, or the number of ready events that `selectNow()` gave (it looks at the
  /// I/O without blocking). What it throws counts as a failed turn.
  virtual int decide(const std::function<int()>& selectNow, bool hasTasks) = 0;
};

/// Makes the strategy of one loop; called once for each.
using SelectStrategyFactory = std::function<std::unique_ptr<SelectStrategy>()>;

/// Tasks pending: look; none: block. What a loop does when no factory is given.
inline SelectStrategyFactory defaultSelectStrategy() {
  struct Default final : SelectStrategy {
    int decide(const std::function<int()>& selectNow, bool hasTasks) override {
      return hasTasks ? selectNow() : kSelect;
    }
  };
  return [] { return std::make_unique<Default>(); };
}

/// Never sleeps: lowest latency, one processor per loop.
inline SelectStrategyFactory busyWaitStrategy() {
  struct BusyWait final : SelectStrategy {
    int decide(const std::function<int()>&, bool) override { return kBusyWait; }
  };
  return [] { return std::make_unique<BusyWait>(); };
}

}  // namespace millrace
