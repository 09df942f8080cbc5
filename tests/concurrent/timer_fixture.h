// SPDX-License-Identifier: Apache-2.0
// A TimerQueue on a clock moved by hand, with the test's thread as its loop's thread.
#pragma once

#include "support/executors.h"

#include <millrace/base/manual_clock.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/concurrent/timer_queue.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

namespace millrace::test {

class TimerFixture : public testing::Test {
 public:
  using Repeat = TimerNode::Repeat;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  /// Makes a timer and arms it.
  ScheduledFuture schedule(std::int64_t deadline, Task task, std::int64_t period = 0,
                           Repeat repeat = Repeat::no) {
    Ref<TimerNode> timer = queue->make(deadline, period, repeat, std::move(task));
    queue->add(*timer);
    return ScheduledFuture::adopt(*timer.release());
  }
  ScheduledFuture atFixedRate(std::int64_t first, std::int64_t period, Task task) {
    return schedule(first, std::move(task), period, Repeat::atFixedRate);
  }
  ScheduledFuture withFixedDelay(std::int64_t first, std::int64_t delay, Task task) {
    return schedule(first, std::move(task), delay, Repeat::withFixedDelay);
  }
  /// One turn: runs what is due now; returns how many ran.
  std::size_t runDue() {
    std::size_t ran = 0;
    TaskChain due = queue->takeDue(clock.nanos());
    while (TaskNode* node = due.popFront()) {
      if (queue->run(TimerNode::of(*node), clock)) ++ran;
    }
    return ran;
  }
  std::size_t runAt(std::int64_t now) {
    clock.advance(Duration(now - clock.nanos()));
    return runDue();
  }
  /// Runs `fn` as if on another thread than the loop's.
  template <class F>
  auto elsewhere(F&& fn) {
    const Executor* loop = std::exchange(internal::tlsCurrentExecutor, nullptr);
    struct Back {
      const Executor* loop;
      ~Back() { internal::tlsCurrentExecutor = loop; }
    } back{loop};
    return fn();
  }

  QueueExecutor owner;
  ManualClock clock;
  std::unique_ptr<TimerQueue> queue = std::make_unique<TimerQueue>(owner);

 private:
  TurnGuard turn_{owner};
};

}  // namespace millrace::test
