// SPDX-License-Identifier: Apache-2.0
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/concurrent/timer_queue.h>

namespace millrace {

ScheduledFuture::ScheduledFuture(const ScheduledFuture& other) noexcept : timer_(other.timer_) {
  if (timer_ != nullptr) timer_->ref();
}

bool ScheduledFuture::cancel() const noexcept { return timer_ != nullptr && timer_->cancel(); }

bool ScheduledFuture::isCancelled() const noexcept {
  return timer_->state() == TimerNode::State::cancelled;
}

bool ScheduledFuture::isDone() const noexcept {
  const auto state = timer_->state();
  return state == TimerNode::State::done || state == TimerNode::State::cancelled;
}

Deadline ScheduledFuture::deadline() const noexcept { return Deadline::at(timer_->deadline()); }

Future<void> ScheduledFuture::future() const { return timer_->future(); }

void ScheduledFuture::drop() noexcept { timer_->unref(); }

}  // namespace millrace
