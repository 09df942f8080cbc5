// SPDX-License-Identifier: Apache-2.0
// An exchange of more than 2,000 bytes each way through a length-framed pipeline, broken off at every
// byte: by a reset, by the end of the peer's stream, by silence.
#include "channel/loop_channels.h"
#include "support/net.h"

#include <millrace/channel/context.h>

#include <gmock/gmock.h>

#include <algorithm>

namespace millrace {
namespace {

using test::EventLog;
using test::LogPtr;
using test::NetTest;
using test::pattern;
using test::Peer;
using test::succeeds;

constexpr std::size_t kReceive = 256;  // receive buffers are no larger

/// Cuts the stream into frames: two bytes of length, then as many bytes.
struct Frames : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override {
    const ByteBuf bytes = msg.take<ByteBuf>();
    held += bytes.text();
    for (;;) {
      if (held.size() < 2) return;
      const std::size_t size =
          static_cast<std::uint8_t>(held[0]) * 256U + static_cast<std::uint8_t>(held[1]);
      if (held.size() < 2 + size) return;
      ctx.fireChannelRead(ByteBuf::of(std::string_view(held).substr(2, size)));
      held.erase(0, 2 + size);
    }
  }
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
    const ByteBuf body = msg.take<ByteBuf>();
    ByteBuf framed(body.readableBytes() + 2);
    framed.writeShort(static_cast<std::uint32_t>(body.readableBytes()));
    framed.writeBytes(body.text());
    ctx.write(std::move(framed), std::move(done));
  }
  std::string held;
};

/// Answers each frame with itself.
struct Echo : ChannelHandler {
  Echo(LogPtr l, std::size_t& f) : log(std::move(l)), frames(f) {}
  void handlerAdded(Context&) override { log->add("added"); }
  void handlerRemoved(Context&) override { log->add("removed"); }
  void channelActive(Context&) override { log->add("active"); }
  void channelInactive(Context&) override { log->add("inactive"); }
  void channelUnregistered(Context&) override { log->add("unregistered"); }
  void channelRead(Context& ctx, Message&& msg) override {
    ++frames;
    ctx.write(std::move(msg));
  }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
  void exceptionCaught(Context&, const Error&) override { log->add("exception"); }
  LogPtr log;
  std::size_t& frames;
};

std::string framed(std::size_t size, unsigned seed) {
  return std::string{static_cast<char>(size >> 8), static_cast<char>(size & 0xff)} +
         pattern(size, seed);
}

class EveryByte : public NetTest {
 protected:
  enum class Break { reset, end, stall, resetReading, endReading };

  /// Frames of several sizes, one larger than the receive buffer; 2,060 bytes with their lengths.
  static const std::string& exchange() {
    static const std::string all = framed(0, 1) + framed(1, 2) + framed(40, 3) + framed(900, 4) +
                                   framed(7, 5) + framed(100, 6) + framed(1000, 7);
    return all;
  }
  /// How many frames are whole within the first `count` bytes.
  static std::size_t wholeFrames(std::size_t count) {
    std::size_t frames = 0;
    std::size_t at = 0;
    while (at + 2 <= count) {
      const std::size_t size = static_cast<std::uint8_t>(exchange()[at]) * 256U +
                               static_cast<std::uint8_t>(exchange()[at + 1]);
      if (at + 2 + size > count) break;
      at += 2 + size;
      ++frames;
    }
    return frames;
  }
  static std::size_t bytesOfFrames(std::size_t frames) {
    std::size_t at = 0;
    for (; frames != 0; --frames) {
      at += 2 + static_cast<std::uint8_t>(exchange()[at]) * 256U +
            static_cast<std::uint8_t>(exchange()[at + 1]);
    }
    return at;
  }

  void breakAt(std::size_t count, Break how) {
    const LogPtr log = std::make_shared<EventLog>();
    std::size_t frames = 0;  // of the loop
    Link one = link(
        [&](Channel& ch) {
          ch.pipeline().emplaceLast<Frames>();
          ch.pipeline().emplaceLast<Echo>(log, frames);
        },
        [](Channel& ch) {
          const ReceiveSizes sizes{kReceive, kReceive, kReceive};
          EXPECT_TRUE(ch.applyOption(options::receiveSizes, OptionValue(sizes)).ok());
        });
    const bool reading = how == Break::resetReading || how == Break::endReading;
    const std::size_t sent = reading ? exchange().size() : count;
    const std::size_t whole = wholeFrames(sent);
    const std::size_t answered = bytesOfFrames(whole);
    one.peer.send(std::string_view(exchange()).substr(0, sent));
    switch (how) {
      case Break::reset:
        one.peer.reset();
        break;
      case Break::end:
        one.peer.shutdownWrite();
        ASSERT_TRUE(test::same(one.peer.receiveAll(), exchange().substr(0, answered)));
        ASSERT_EQ(one.peer.error(), 0);
        break;
      case Break::resetReading:
        ASSERT_TRUE(test::same(one.peer.receive(count), exchange().substr(0, count)));
        one.peer.reset();
        break;
      case Break::endReading:
        ASSERT_TRUE(test::same(one.peer.receive(count), exchange().substr(0, count)));
        one.peer.close();
        break;
      case Break::stall:
        ASSERT_TRUE(test::same(one.peer.receive(answered), exchange().substr(0, answered)));
        ASSERT_TRUE(one.channel->isOpen());
        static_cast<void>(one.channel->close());
        break;
    }
    ASSERT_TRUE(log->await("removed"));

    std::vector<std::string> events = log->events();
    const auto exceptions = std::erase(events, "exception");
    ASSERT_LE(exceptions, how == Break::end || how == Break::stall ? 0U : 1U);
    ASSERT_EQ(events,
              (std::vector<std::string>{"added", "active", "inactive", "unregistered", "removed"}));
    if (how == Break::reset || reading) {
      ASSERT_LE(frames, whole);
    } else {
      ASSERT_EQ(frames, whole);
    }
  }
  void breakEverywhere(Break how) {
    ASSERT_GE(exchange().size(), 2000U);
    for (std::size_t count = 0; count <= exchange().size(); ++count) {
      SCOPED_TRACE("after " + std::to_string(count) + " bytes");
      breakAt(count, how);
      if (HasFatalFailure()) return;
    }
    settle();
    EXPECT_EQ(inLoop([this] { return LoopChannels::of(loop()).pool().figures().live; }), 0);
    EXPECT_EQ(loop().metrics().registrations, 0U);
  }
};

// Must show 8; F16
TEST_P(EveryByte, MayBeTheLastBeforeAReset) { breakEverywhere(Break::reset); }

// Must show 8; F14
TEST_P(EveryByte, MayBeTheLastBeforeTheEnd) { breakEverywhere(Break::end); }

// Must show 8; F16: in the other direction
TEST_P(EveryByte, OfTheAnswersMayBeTheLastBeforeAReset) { breakEverywhere(Break::resetReading); }
TEST_P(EveryByte, OfTheAnswersMayBeTheLastBeforeTheEnd) { breakEverywhere(Break::endReading); }

// Must show 8
TEST_P(EveryByte, MayBeTheLastForEver) { breakEverywhere(Break::stall); }

INSTANTIATE_TEST_SUITE_P(Engines, EveryByte, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
