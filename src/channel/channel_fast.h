// SPDX-License-Identifier: Apache-2.0
// The few functions that every message runs through, to be inlined where it does. Loop thread.
//
// The usual event: one message comes, its handler writes one message, and flushes. Such a message
// does not enter the OutboundBuffer: it waits in a place of the loop until the event ends (EventScope)
// and goes to the kernel from there. Everything else spills it into the OutboundBuffer first.
#pragma once

#include "base/pin.h"
#include "channel/context_invoke.h"
#include "channel/loop_channels.h"

#include <millrace/channel/channel.h>

#include <utility>

namespace millrace {

inline void Channel::makeDirty() noexcept {
  if ((flags_ & (kDirty | kDirtyHere)) != 0 || !isRegistered()) return;
  // Who is the first in his own event needs no list.
  if ((flags_ & kInEvent) != 0 && !local_->hasWork()) {
    flags_ |= kDirtyHere;
    return;
  }
  flags_ |= kDirty;
  local_->makeDirty(*this);
}

inline void Channel::spill() noexcept {
  flags_ &= ~kMayWriteSolo;
  if (local_ != nullptr && local_->soloOwner == this) spillNow();
}

inline void Channel::writeInLoop(Message&& msg) {
  if (__builtin_expect((flags_ & kMayWriteSolo) != 0, 1)) {
    LoopChannels& local = *local_;
    if (__builtin_expect(local.soloOwner == nullptr && !local.hasWork() && msg.isByteBuf() &&
                             msg.byteBuf().capacity() < settings_->waterMarks.high,
                         1)) {
      local.soloOwner = this;
      local.solo.takeInto(msg);
      flags_ = (flags_ & ~kMayWriteSolo) | kDirtyHere;
      return;
    }
  }
  writeSlowly(msg);
}

inline void Channel::writeInLoop(Message&& msg, Promise<void>&& done) {
  if (!done.valid()) return writeInLoop(std::move(msg));
  writeSlowly(msg, done);
}

inline void Channel::flushInLoop() {
  if (__builtin_expect((flags_ & kDirtyHere) != 0 && outbound_ == nullptr, 1)) {
    flags_ |= kFlushWanted;
    return;
  }
  flushSlowly();
}

// Everything is as usual: what handlers write may wait in the loop's place.
inline bool Channel::isUsual() const noexcept {
  constexpr auto kSeesRead = static_cast<EventMask>(Event::read);
  constexpr std::uint32_t kGood = kOpen | kRegistered | kActive | kWritableBit | kAutoRead;
  constexpr std::uint32_t kBad = kPaused | kInputEnded | kOutputEnded | kEndOutputAfterFlush |
                                 kDirty | kDirtyHere | kInFlush | kFullKernel | kConnecting;
  return (flags_ & (kBad | kReadWanted)) == kReadWanted &&
         (state_.load(std::memory_order_relaxed) & kGood) == kGood && outbound_ == nullptr &&
         (pipeline_.events_ & kSeesRead) == 0;
}

template <class Transport, bool (Transport::*Write)(ByteBuf&) noexcept>
class Channel::EventScope {
 public:
  explicit EventScope(Transport& channel) noexcept : channel_(channel) {
    Channel& base = channel_;
    ++base.depth_;
    base.flags_ |= kInEvent;
  }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;
  [[gnu::always_inline]] ~EventScope() {
    Channel& base = channel_;
    base.flags_ &= ~(kInEvent | kMayWriteSolo);
    if (__builtin_expect((base.flags_ & kDirtyHere) != 0, 1)) writeAfterEvent();
    if (--base.depth_ == 0 && __builtin_expect(base.mustSettle_, 0)) base.settle();
  }

 private:
  [[gnu::always_inline]] void writeAfterEvent() noexcept {
    Channel& base = channel_;
    LoopChannels& local = *base.local_;
    base.flags_ &= ~kDirtyHere;
    if (__builtin_expect(local.soloOwner == &base && (base.flags_ & kFlushWanted) != 0, 1)) {
      if (__builtin_expect((channel_.*Write)(local.solo.bytes()), 1)) {
        base.flags_ &= ~kFlushWanted;
        local.soloOwner = nullptr;
        local.solo.drop(local.pool().core());
        return;
      }
    }
    base.writeAfterEvent();
  }

  Transport& channel_;
};

template <class F>
auto Channel::whileOpen(F&& look) const {
  if (inLoop()) return isOpen() ? look() : decltype(look())();
  return internal::lookWhileOpen(state_, kOpen, kPinned, look);
}

inline Context* ChannelPipeline::firstFor(Event event) const noexcept {
  const auto bit = static_cast<EventMask>(event);
  Context* each = first_;
  while (each != nullptr && (each->mask_ & bit) == 0) each = each->next_;
  return each;
}

inline Context* ChannelPipeline::lastFor(Event event) const noexcept {
  const auto bit = static_cast<EventMask>(event);
  Context* each = last_;
  while (each != nullptr && (each->mask_ & bit) == 0) each = each->previous_;
  return each;
}

inline void ChannelPipeline::passRead(Message&& msg) noexcept {
  if (Context* next = firstFor(Event::channelRead)) {
    next->invoke([&](ChannelHandler& handler) { handler.channelRead(*next, std::move(msg)); });
  }
  if (__builtin_expect(static_cast<bool>(msg), 0)) channel_.dropped(msg);
}

inline void ChannelPipeline::passReadComplete() noexcept {
  if (Context* next = firstFor(Event::channelReadComplete)) {
    next->invoke([&](ChannelHandler& handler) { handler.channelReadComplete(*next); });
  }
}

}  // namespace millrace
