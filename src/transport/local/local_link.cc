// SPDX-License-Identifier: Apache-2.0
#include "transport/local/local_link.h"

#include "transport/local/local_channel.h"

#include <millrace/loop/event_loop.h>

#include <utility>

namespace millrace {

std::size_t LocalLink::costOf(const Message& msg) noexcept {
  const ByteBuf* bytes = msg.as<ByteBuf>();
  return sizeof(Message) + (bytes == nullptr ? 0 : bytes->pinnedBytes());
}

std::shared_ptr<LocalLink> LocalLink::serverEnd(std::shared_ptr<LocalLink> link) {
  LocalLink* same = link.get();
  return {same, [link = std::move(link)](LocalLink*) { link->detach(Side::server); }};
}

void LocalLink::notify(const ChannelPtr& channel) {
  if (!channel) return;
  channel->loop().executeOwn([channel] { static_cast<LocalChannel&>(*channel).peerMoved(); });
}

void LocalLink::attach(Side side, ChannelPtr channel) {
  std::lock_guard lock(mutex_);
  ends_[index(side)].channel = std::move(channel);
}

void LocalLink::endOutput(Side side) noexcept {
  ChannelPtr peer;
  {
    std::lock_guard lock(mutex_);
    End& to = ends_[index(other(side))];
    if (std::exchange(to.inputEnded, true)) return;
    peer = to.channel;
  }
  notify(peer);
}

void LocalLink::detach(Side side) noexcept {
  std::deque<Message> unread;
  ChannelPtr mine;
  ChannelPtr peer;
  {
    std::lock_guard lock(mutex_);
    End& end = ends_[index(side)];
    End& to = ends_[index(other(side))];
    if (std::exchange(end.gone, true)) return;
    mine = std::move(end.channel);
    end.channel = nullptr;
    unread.swap(end.input);
    end.bytes = 0;
    to.inputEnded = true;
    peer = to.channel;
  }
  notify(peer);
}

LocalLink::Push LocalLink::push(Side from, Message& msg) {
  ChannelPtr reader;
  {
    std::lock_guard lock(mutex_);
    End& to = ends_[index(other(from))];
    if (to.gone) return Push::gone;
    if (to.bytes >= kMostBytes) {
      to.writerWaits = true;
      return Push::full;
    }
    to.bytes += costOf(msg);
    const bool wasEmpty = to.input.empty();
    to.input.push_back(std::move(msg));
    if (wasEmpty) reader = to.channel;
  }
  notify(reader);
  return Push::taken;
}

LocalLink::Pulled LocalLink::pull(Side to) {
  Pulled pulled;
  ChannelPtr writer;
  {
    std::lock_guard lock(mutex_);
    End& end = ends_[index(to)];
    if (end.input.empty()) {
      pulled.ended = end.inputEnded;
      return pulled;
    }
    end.bytes -= costOf(end.input.front());
    pulled.msg.emplace(std::move(end.input.front()));
    end.input.pop_front();
    if (end.writerWaits && end.bytes < kMostBytes / 2) {
      end.writerWaits = false;
      writer = ends_[index(other(to))].channel;
    }
  }
  notify(writer);
  return pulled;
}

bool LocalLink::hasInput(Side to) const {
  std::lock_guard lock(mutex_);
  const End& end = ends_[index(to)];
  return !end.input.empty() || end.inputEnded;
}

}  // namespace millrace
