// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/drain.h"

#include "channel/loop_channels.h"

#include <millrace/base/log.h>

#include <algorithm>
#include <utility>

namespace millrace::internal {

Drain::Drain(EventLoop& loop) : promise_(loop), future_(promise_.future()) {
  promise_.setUncancellable();  // several may wait for it
}

// Called where the last listening channel was closed: connections that it gave to other loops are in
// their queues before what is posted here.
void Drain::begin(const std::vector<Ref<EventLoop>>& loops,
                  const std::vector<ChannelPtr>& listeners) {
  {
    std::lock_guard lock(mutex_);
    left_ = loops.size() + 1;
  }
  for (const Ref<EventLoop>& loop : loops) {
    // A loop that has never run has no channel, and nobody is left to give it one.
    const bool taken = loop->state() != EventLoop::State::notStarted &&
                       loop->executeOwn([self = shared_from_this(), loop, listeners] {
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
  if (mine.empty()) return;
  {
    std::lock_guard lock(mutex_);
    report_.connections += mine.size();
    left_ += mine.size();
    open_.insert(open_.end(), mine.begin(), mine.end());
    loops_.emplace_back(&loop);
  }
  for (const ChannelPtr& channel : mine) {
    LoopChannels::linger(*channel).addListener([self = shared_from_this()] { self->oneDone(); });
  }
  watchTime(loop);
}

// Each loop minds its own channels: another one may end before.
void Drain::limit(Duration timeout) {
  if (future_.isDone()) return;
  std::vector<Ref<EventLoop>> loops;
  {
    std::lock_guard lock(mutex_);
    const auto& loop = static_cast<EventLoop&>(future_.executor());
    const std::int64_t end = saturatingAdd(loop.clock().nanos(), timeout.count());
    if (end >= end_) return;
    end_ = end;
    loops = loops_;
  }
  for (const Ref<EventLoop>& loop : loops) {
    loop->executeOwn([self = shared_from_this(), loop] { self->watchTime(*loop); });
  }
}

void Drain::watchTime(EventLoop& loop) {
  std::int64_t end = 0;
  {
    std::lock_guard lock(mutex_);
    end = end_;
  }
  const std::int64_t left = end - loop.clock().nanos();
  if (left <= 0) return cutOn(loop);
  ScheduledFuture timer =
      LoopChannels::of(loop).after(Duration(left), [weak = weak_from_this(), &loop] {
        if (const std::shared_ptr<Drain> self = weak.lock()) self->cutOn(loop);
      });
  std::lock_guard lock(mutex_);
  if (timer.valid()) timers_.push_back(std::move(timer));
}

void Drain::cutOn(EventLoop& loop) {
  std::vector<ChannelPtr> rest;
  {
    std::lock_guard lock(mutex_);
    for (const ChannelPtr& each : open_) {
      if (&each->loop() == &loop) rest.push_back(each);
    }
  }
  for (const ChannelPtr& channel : rest) {
    if (!channel->isOpen()) continue;
    {
      // First: the last one to close completes the report.
      std::lock_guard lock(mutex_);
      ++report_.cut;
      report_.bytesCut += LoopChannels::unwritten(*channel);
    }
    LoopChannels::cut(*channel,
                      Error(Errc::timedOut, "drain", "the time to close gracefully was up"));
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
  if (report.cut != 0) {
    log(LogLevel::warn, "bootstrap", "drain: the time was up for ", report.cut, " of ",
        report.connections, " connections, which had ", report.bytesCut, " bytes to get");
  }
  promise_.trySuccess(report);
}

}  // namespace millrace::internal
