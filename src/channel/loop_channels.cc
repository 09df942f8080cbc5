// SPDX-License-Identifier: Apache-2.0
#include "channel/loop_channels.h"

#include <millrace/channel/channel_metrics.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>

#include <algorithm>
#include <utility>

namespace millrace {

LoopChannels& LoopChannels::of(EventLoop& loop) {
  if (LoopAttachment* there = loop.attachment()) return static_cast<LoopChannels&>(*there);
  auto made = std::unique_ptr<LoopChannels>(new LoopChannels(loop));
  LoopChannels& result = *made;
  loop.attach(std::move(made));
  return result;
}

LoopChannels::~LoopChannels() {
  while (dirtyFirst_ != nullptr) {
    Channel* channel = std::exchange(dirtyFirst_, dirtyFirst_->nextDirty_);
    channel->unmark(Channel::kDirty);
    if ((channel->flags_ & Channel::kLeaveWhenClean) != 0) channel->unref();
  }
  while (spare_ != nullptr) delete std::exchange(spare_, spare_->nextSpare);
}

// --- the list of those that have something to do ---

// Those that become dirty meanwhile have their turn next time: two channels that write to each other
// must not keep the loop.
void LoopChannels::afterCallbacks() noexcept {
  Channel* each = std::exchange(dirtyFirst_, nullptr);
  dirtyLast_ = nullptr;
  setHasWork(false);
  while (each != nullptr) {
    Channel* channel = std::exchange(each, each->nextDirty_);
    channel->cleaned();
  }
}

// --- the table ---

void LoopChannels::add(Channel& channel) {
  channel.index_ = static_cast<std::uint32_t>(channels_.size());
  channels_.push_back(&channel);
  setRegistrations(channels_.size());
  count(registered);
}

void LoopChannels::remove(Channel& channel) noexcept {
  Channel* last = channels_.back();
  channels_[channel.index_] = last;
  last->index_ = channel.index_;
  channels_.pop_back();
  setRegistrations(channels_.size());
  count(closed);
  if (channels_.empty()) loop_.becameIdle();
}

void LoopChannels::closeAll(CloseMode mode) {
  // What closes may take others with it, and adds nobody: handlers that open channels now find the
  // loop closed to them, or are closed by the next call.
  std::vector<ChannelPtr> open;
  open.reserve(channels_.size());
  for (Channel* channel : channels_) open.emplace_back(channel);
  for (const ChannelPtr& channel : open) {
    if (mode == CloseMode::linger) {
      channel->lingerWithLoop();
      continue;
    }
    if (!channel->isOpen()) continue;
    ++cut_;
    bytesCut_ += unwritten(*channel);
    cut(*channel, Error(Errc::closed, "shutdown", "the loop's time was up"));
  }
}

// --- timers that outlive the loop's ---

ScheduledFuture LoopChannels::after(Duration delay, Task task) {
  if (!loop_.isShuttingDown()) return loop_.schedule(delay, std::move(task));
  const std::int64_t due = loop_.clock().nanos() + delay.count();
  late_.push_back({due, std::move(task)});
  firstLate_ = std::min(firstLate_, due);
  return {};
}

void LoopChannels::runDue(std::int64_t now) noexcept {
  std::vector<Late> all = std::exchange(late_, {});
  firstLate_ = INT64_MAX;
  for (Late& each : all) {
    if (each.due <= now) {
      each.task();
      continue;
    }
    firstLate_ = std::min(firstLate_, each.due);
    late_.push_back(std::move(each));
  }
}

Future<void> LoopChannels::linger(Channel& channel) {
  channel.lingerInLoop();
  return channel.closeFuture();
}

std::size_t LoopChannels::unwritten(const Channel& channel) noexcept {
  const std::size_t queued = channel.outbound_ == nullptr ? 0 : channel.outbound_->readableBytes();
  return queued + (channel.unsent_ == 0 ? 0 : channel.doCountUnsent());
}

void LoopChannels::cut(Channel& channel, const Error& why) {
  // Fails for what has no such option, and no stream that could look complete.
  if (unwritten(channel) != 0) {
    static_cast<void>(channel.applyOption(options::soLinger, OptionValue(0)));
  }
  channel.closeNow(why);
}

void LoopChannels::addTo(ShutdownReport& report) const {
  report.channelsCut += cut_;
  report.bytesCut += bytesCut_;
}

void LoopChannels::describe(std::vector<std::string>& lines) const {
  for (const Channel* channel : channels_) lines.push_back("channel " + channel->describe());
  const ChannelMetrics now = channelMetrics(loop_);
  lines.push_back("channels: " + std::to_string(now.registered) + " came, " +
                  std::to_string(now.closed) + " closed, " + std::to_string(now.bytesRead) +
                  " bytes read, " + std::to_string(now.bytesWritten) + " written, " +
                  std::to_string(now.droppedMessages) + " messages dropped, " +
                  std::to_string(now.pausedReads) + " reads paused, " + std::to_string(now.copies) +
                  " copies");
}

// --- what is shared ---

iovec* LoopChannels::parts() {
  if (parts_ == nullptr) parts_ = std::make_unique<iovec[]>(kMaxParts);
  return parts_.get();
}

// --- figures ---

ChannelMetrics& ChannelMetrics::operator+=(const ChannelMetrics& other) noexcept {
  registered += other.registered;
  closed += other.closed;
  bytesRead += other.bytesRead;
  bytesWritten += other.bytesWritten;
  droppedMessages += other.droppedMessages;
  pausedReads += other.pausedReads;
  copies += other.copies;
  failedWrites += other.failedWrites;
  acceptPauses += other.acceptPauses;
  truncatedDatagrams += other.truncatedDatagrams;
  return *this;
}

ChannelMetrics channelMetrics(const EventLoop& loop) noexcept {
  const auto get = [&](LoopChannels::Figure figure) { return loop.attachmentFigure(figure); };
  return {get(LoopChannels::registered),   get(LoopChannels::closed),
          get(LoopChannels::bytesRead),    get(LoopChannels::bytesWritten),
          get(LoopChannels::dropped),      get(LoopChannels::pausedReads),
          get(LoopChannels::copies),       get(LoopChannels::failedWrites),
          get(LoopChannels::acceptPauses), get(LoopChannels::truncated)};
}

ChannelMetrics channelMetrics(const EventLoopGroup& group) noexcept {
  ChannelMetrics sum;
  for (const EventLoop& loop : group) sum += channelMetrics(loop);
  return sum;
}

}  // namespace millrace
