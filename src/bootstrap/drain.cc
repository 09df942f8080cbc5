// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/drain.h"

#include "channel/loop_channels.h"

#include <algorithm>
#include <utility>

namespace millrace::internal {

// Called where the last listening channel was closed: connections that it gave to other loops are in
// their queues before what is posted here.
void Drain::begin(const std::vector<Ref<EventLoop>>& loops,
                  const std::vector<ChannelPtr>& listeners) {
  {
    std::lock_guard lock(mutex_);
    left_ = loops.size() + 1;
  }
  for (const Ref<EventLoop>& loop : loops) {
    const bool taken = loop->executeOwn([self = shared_from_this(), loop, listeners] {
      self->closeOn(*loop, listeners);
      self->oneDone();
    });
    if (!taken) oneDone();  // it has ended, and its channels with it
  }
  oneDone();
}

void Drain::closeOn(EventLoop& loop, const std::vector<ChannelPtr>& listeners) {
  std::vector<ChannelPtr> mine;
  for (Channel* channel : LoopChannels::of(loop).all()) {
    const bool ours =
        std::find(listeners.begin(), listeners.end(), channel->parent()) != listeners.end();
    if (ours && channel->isOpen()) mine.emplace_back(channel);
  }
  bool late = false;
  {
    std::lock_guard lock(mutex_);
    report_.connections += mine.size();
    left_ += mine.size();
    open_.insert(open_.end(), mine.begin(), mine.end());
    late = timeUp_;
  }
  for (const ChannelPtr& channel : mine) {
    channel->closeGracefully().addListener([self = shared_from_this()] { self->oneDone(); });
  }
  if (late) cutRest();
}

void Drain::limit(Duration timeout) {
  Executor& executor = future_.executor();
  // The promise belongs to a loop: its timers serve.
  auto& loop = static_cast<EventLoop&>(executor);
  if (future_.isDone()) return;
  ScheduledFuture timer;
  try {
    timer = loop.schedule(timeout, [weak = weak_from_this()] {
      if (const std::shared_ptr<Drain> self = weak.lock()) self->cutRest();
    });
  } catch (const RejectedExecution&) {
    return;  // the loop has ended: so have its channels, and other loops have their own timeouts
  }
  std::lock_guard lock(mutex_);
  timers_.push_back(std::move(timer));
}

void Drain::cutRest() {
  std::vector<ChannelPtr> rest;
  {
    std::lock_guard lock(mutex_);
    timeUp_ = true;
    rest = open_;
  }
  for (const ChannelPtr& channel : rest) {
    if (!channel->isOpen()) continue;
    channel->loop().executeOwn([self = shared_from_this(), channel] {
      if (!channel->isOpen()) return;
      {
        std::lock_guard lock(self->mutex_);
        ++self->report_.cut;
      }
      const std::size_t bytes = LoopChannels::cut(
          *channel, Error(Errc::timedOut, "drain", "the time to close gracefully was up"));
      std::lock_guard lock(self->mutex_);
      self->report_.bytesCut += bytes;
    });
  }
}

void Drain::oneDone() {
  std::vector<ScheduledFuture> timers;
  DrainReport report;
  {
    std::lock_guard lock(mutex_);
    if (--left_ != 0) return;
    timers.swap(timers_);
    open_.clear();
    report = report_;
  }
  for (const ScheduledFuture& timer : timers) timer.cancel();
  promise_.trySuccess(report);
}

}  // namespace millrace::internal
