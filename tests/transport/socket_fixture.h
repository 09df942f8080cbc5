// SPDX-License-Identifier: Apache-2.0
// What tests of datagram and Unix channels share: a loop driven by hand, so that everything happens
// in the test's own thread, and a handler that writes down what it sees.
#pragma once

#include "support/engines.h"

#include <millrace/base/error.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/channel_events.h>
#include <millrace/channel/channel_handler.h>
#include <millrace/channel/channel_metrics.h>
#include <millrace/channel/channel_option.h>
#include <millrace/channel/context.h>
#include <millrace/channel/datagram.h>
#include <millrace/channel/fd_message.h>
#include <millrace/channel/message.h>
#include <millrace/channel/transport.h>
#include <millrace/sys/socket.h>
#include <millrace/transport/transports.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace millrace::test {

/// Any port.
inline SocketAddress anyLoopback4() { return SocketAddress::loopback4(0); }

/// What came out of a channel.
struct Seen {
  std::vector<std::string> texts;
  std::vector<SocketAddress> peers;  ///< of datagrams
  std::vector<std::size_t> pinned;   ///< memory that the messages keep
  std::vector<FdMessage> withFds;
  std::vector<std::string> errors;
  std::vector<DatagramTruncated> truncated;
  int completes = 0;
  bool inactive = false;
};

class SeeAll final : public ChannelHandler {
 public:
  explicit SeeAll(Seen& seen) : seen_(seen) {}

  void channelRead(Context&, Message&& msg) override {
    if (auto* datagram = msg.as<Datagram>()) {
      seen_.peers.push_back(datagram->peer);
      note(datagram->bytes);
    } else if (auto* bytes = msg.as<ByteBuf>()) {
      note(*bytes);
    } else if (msg.is<FdMessage>()) {
      seen_.withFds.push_back(msg.take<FdMessage>());
    }
    msg.reset();
  }
  void channelReadComplete(Context&) override { ++seen_.completes; }
  void userEventTriggered(Context&, Message&& event) override {
    if (event.is<DatagramTruncated>()) seen_.truncated.push_back(event.take<DatagramTruncated>());
  }
  void exceptionCaught(Context&, const Error& error) override {
    seen_.errors.push_back(error.message());
  }
  void channelInactive(Context&) override { seen_.inactive = true; }

 private:
  void note(const ByteBuf& bytes) {
    seen_.texts.push_back(bytes.toString());
    seen_.pinned.push_back(bytes.pinnedBytes());
  }
  Seen& seen_;
};

/// A suite over engines with one loop that the test drives.
class SocketTest : public EngineTest {
 protected:
  ~SocketTest() override {
    if (!loop_) return;
    loop_->shutdownGracefully();
    while (!loop_->isTerminated()) loop_->run(Deadline::never());
  }

  EventLoop& loop() { return *loop_; }
  const Transport& transport() const { return *transportFor(loop_->ioType(), ChannelKind::tcp4); }

  /// A fresh one, which outlives the channels.
  Seen& see() { return seen_.emplace_back(); }
  /// Turns until the question is answered with yes.
  template <class Q>
  bool turnUntil(Q&& question) {
    return turnLoopUntil(*loop_, question);
  }
  /// Enough turns for whatever is on its way by now.
  void turn(int count = 20) { turnLoop(*loop_, count); }
  /// Its outcome.
  Result<void> done(const Future<void>& future) {
    EXPECT_TRUE(turnUntil([&] { return future.isDone(); }));
    return future.isDone() ? future.result() : Result<void>(Error(Errc::timedOut, "test"));
  }
  /// Registers a channel whose handler writes to `seen`.
  ChannelPtr enter(Result<ChannelPtr> made, Seen& seen) {
    const ChannelPtr channel = std::move(made).orThrow();
    channel->pipeline().emplaceLast<SeeAll>(seen);
    EXPECT_TRUE(done(registerChannel(*loop_, channel)).ok());
    return channel;
  }
  ChannelPtr datagrams(ChannelKind kind, Seen& seen) {
    return enter(transport().newClient(*loop_, kind), seen);
  }
  ChannelPtr bound(const SocketAddress& local, Seen& seen) {
    const ChannelPtr channel = datagrams(kindFor(local, Datagrams::yes).orThrow(), seen);
    const Result<void> bound = done(channel->bind(local));
    EXPECT_TRUE(bound.ok()) << (bound.ok() ? "" : bound.error().message());
    return channel;
  }
  template <class T>
  Result<void> set(const ChannelPtr& channel, const ChannelOption<T>& option,
                   std::type_identity_t<T> value) {
    return done(channel->setOption(option, value));
  }
  static Message to(const SocketAddress& peer, std::string_view text) {
    return Message(Datagram{ByteBuf::of(text), peer});
  }
  static Message to(const ChannelPtr& peer, std::string_view text) {
    return to(peer->localAddress(), text);
  }
  ChannelMetrics metrics() const { return channelMetrics(*loop_); }

 private:
  std::deque<Seen> seen_;
  Ref<EventLoop> loop_ = handDriven();
};

}  // namespace millrace::test
