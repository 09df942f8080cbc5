// SPDX-License-Identifier: Apache-2.0
// WakeupWord: decides who must wake a sleeping loop, so that nothing is lost and nobody wakes
// twice.
//
// One word holds AWAKE or the deadline until which the loop sleeps. The argument that no wakeup is
// lost stands in docs/design/wakeup.md; tests/interleave explores this very source. The points P2,
// L1, L2 and L3 are named there. No order here may be weakened.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/concurrent/inbox.h>

#include <cstdint>
#include <limits>

namespace millrace {

class WakeupWord {
 public:
  static constexpr std::int64_t kAwake = -1;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  /// After a push: true if the caller must now call the engine's wakeup(). Any thread. (P2)
  bool mustWake() noexcept {
    return word_.load(std::memory_order_seq_cst) != kAwake &&
           word_.exchange(kAwake, std::memory_order_seq_cst) != kAwake;
  }
  /// The same for a timer due at `deadline`: one that is not earlier than the loop's own next
  /// deadline needs nobody. Any thread.
  bool mustWakeFor(std::int64_t deadline) noexcept {
    const std::int64_t until = word_.load(std::memory_order_seq_cst);
    return until != kAwake && deadline < until &&
           word_.exchange(kAwake, std::memory_order_seq_cst) != kAwake;
  }

  /// Sleeps until `until`: announces it, looks into the inbox once more, waits, and counts a wakeup
  /// that was paid for. `wait(bool pending)` must not block when pending is true. Loop thread.
  template <class Wait>
  void sleep(const Inbox& inbox, std::int64_t until, Wait&& wait) {
    word_.exchange(until, std::memory_order_seq_cst);  // L1
    const bool pending = !inbox.isEmpty();             // L2
    struct Awake {                                     // L3, also if wait throws
      WakeupWord& self;
      ~Awake() {
        if (self.word_.exchange(kAwake, std::memory_order_seq_cst) == kAwake) ++self.paid_;
      }
    } awake{*this};
    wait(pending);
  }

  /// Wakeups that producers have decided to make, all of which arrive sooner or later. Loop thread.
  std::uint64_t paid() const noexcept { return paid_; }

 private:
  Atomic<std::int64_t> word_{kAwake};
  std::uint64_t paid_ = 0;
};

}  // namespace millrace
