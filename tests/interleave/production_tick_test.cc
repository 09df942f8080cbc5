// SPDX-License-Identifier: Apache-2.0
// A manual clock that moves while its loop goes to sleep: the tick must not be lost.
#include "expect_explored.h"
#include "wakeup_model.h"

#include <millrace/base/manual_clock.h>
#include <millrace/concurrent/inbox.h>
#include <millrace/concurrent/wakeup_word.h>

#include <gtest/gtest.h>

#include <limits>

namespace millrace::explorer {
namespace {

/// What EventLoop::Parts does with a clock that is not real, with a timer due at 2.
struct TickedLoop final : ClockListener {
  ::millrace::Inbox inbox;
  ::millrace::WakeupWord word;
  WakeCounter wake;
  ManualClock clock;
  Atomic<bool> tickQueued{false};
  TaskNode tickNode;
  bool fired = false;

  explicit TickedLoop(bool clearsByStore) {
    tickNode.task = [this, clearsByStore] {
      if (clearsByStore) {
        tickQueued.store(false, std::memory_order_release);
      } else {
        tickQueued.exchange(false, std::memory_order_acq_rel);
      }
    };
    clock.addListener(*this);
  }
  ~TickedLoop() { clock.removeListener(*this); }

  void clockMoved() noexcept override {
    if (tickQueued.exchange(true, std::memory_order_acq_rel)) return;
    if (!inbox.push(&tickNode, TaskNode::framework | TaskNode::borrowed)) return;
    if (word.mustWake()) wake.write();
  }
  void run() {
    while (!fired) {
      TaskChain chain = inbox.takeOpen().chain;
      fired = clock.nanos() >= 2;
      while (TaskNode* node = chain.popFront()) node->task();
      if (fired || !inbox.isEmpty() || clock.nanos() >= 2) continue;
      word.sleep(inbox, 2, [&](bool pending) {
        if (!pending) wake.wait(std::numeric_limits<int64_t>::max());
      });
    }
  }
};

Scenario ticking(bool clearsByStore) {
  return [clearsByStore](Execution& run) {
    auto& s = run.make<TickedLoop>(clearsByStore);
    run.thread("loop", [&s] { s.run(); });
    run.thread("mover", [&s] {
      s.clock.advance(Duration(1));
      s.clock.advance(Duration(1));
    });
    run.finally([&s] { EXPLORE_CHECK(s.fired, "the timer fired"); });
  };
}

TEST(ProductionTick, AMovedClockWakesItsLoop) {
  expectClean("loop || two moves of the clock", ticking(false));
}

// The order that was wrong once: the store waits while the loop reads the old time.
TEST(ProductionTick, ClearingTheFlagByAStoreLosesAMove) {
  const Result result = explore(Options(), ticking(true));
  EXPECT_EQ(result.failure, Failure::kDeadlock) << result.summary();
}

}  // namespace
}  // namespace millrace::explorer
