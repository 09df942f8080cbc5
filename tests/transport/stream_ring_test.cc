// SPDX-License-Identifier: Apache-2.0
// TCP streams on io_uring: which way bytes go, what that costs, and what a full ring does to them.
#include "support/fault_script.h"
#include "support/loop_test.h"
#include "transport/stream_ring_fixture.h"

#include <millrace/channel/channel_metrics.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::echoing;
using test::FaultScript;
using test::Held;
using test::pattern;
using test::recording;
using test::same;
using test::succeeds;

/// As ReceiveBuffers::kFewest, which is hidden in the engine.
constexpr std::size_t kFewest = 16;

class StreamRing : public test::StreamRingTest {};

// --- which way ---

TEST_P(StreamRing, SmallMessagesNeedNoCallsOfTheirOwn) {
  constexpr int kMessages = 100;
  auto [channel, peer] = link(echoing());
  ASSERT_TRUE(pingPong(peer, 10));
  settle();
  const FaultScript script;
  const std::uint64_t turns = loop().metrics().turns;

  EXPECT_TRUE(pingPong(peer, kMessages));

  const std::uint64_t enters = script.count("io_uring_enter");
  const std::uint64_t turned = loop().metrics().turns - turns;
  for (const char* call :
       {"recv", "send", "recvmsg", "sendmsg", "readv", "writev", "fcntl", "ioctl"}) {
    EXPECT_EQ(script.count(call), 0U) << call;
  }
  if (GetParam().name == "UsualRing") {
    EXPECT_LE(enters, turned + 10) << "one call per turn";
    EXPECT_LE(enters, 2 * kMessages + 10U);
  }
  EXPECT_TRUE(isOnRing(channel));
}

TEST_P(StreamRing, BulkLeavesTheRingInOrderAndSmallMessagesComeBack) {
  auto [channel, peer] = link(echoing());
  ASSERT_TRUE(pingPong(peer, 3));
  EXPECT_TRUE(isOnRing(channel));
  const std::string bulk = pattern(4 << 20);
  const test::FaultScript calls;

  std::thread sender([&peer = peer, &bulk] { peer.send(bulk); });
  EXPECT_TRUE(same(peer.receive(bulk.size()), bulk));
  sender.join();
  EXPECT_GT(calls.count("recv"), 0U);  // which the ring does not need

  EXPECT_TRUE(pingPong(peer, 40));
  EXPECT_TRUE(isOnRing(channel));
}

TEST_P(StreamRing, GoesToAndFroAsOftenAsThePeerLikes) {
  auto [channel, peer] = link(echoing());
  for (unsigned round = 0; round < 20; ++round) {
    const std::string bulk = pattern(200'000, round);
    std::thread sender([&peer = peer, &bulk] { peer.send(bulk); });
    const std::string got = peer.receive(bulk.size());
    sender.join();
    ASSERT_TRUE(same(got, bulk)) << "round " << round;
    ASSERT_TRUE(pingPong(peer, 20)) << "round " << round;
  }
}

// Whoever reads by hand is not read for.
TEST_P(StreamRing, IsNotForChannelsThatReadByHand) {
  auto [channel, peer] = link(recording(log_), noAutoRead);
  peer.send("unwanted");
  settle();

  EXPECT_FALSE(isOnRing(channel));
  EXPECT_EQ(log_->byteCount(), 0U);
  channel->read();
  EXPECT_TRUE(log_->awaitBytes(8));
}

TEST_P(StreamRing, StopsReadingWhenItIsTold) {
  auto [channel, peer] = link(recording(log_));
  std::string sent;
  for (int round = 0; round < 50; ++round) {
    const std::string text = "message " + std::to_string(round);
    peer.send(text);
    inLoop([ch = channel] { ch->setAutoRead(false); });
    const std::size_t stopped = log_->byteCount();
    peer.send(text);
    settle();
    EXPECT_EQ(log_->byteCount(), stopped) << "it reads on";
    inLoop([ch = channel] { ch->setAutoRead(true); });
    sent += text + text;
    ASSERT_TRUE(log_->awaitBytes(sent.size())) << "round " << round;
  }
  EXPECT_TRUE(same(log_->bytes(), sent));
}

// What came meanwhile is read later, and is a read like others: handlers hear when it is over.
TEST_P(StreamRing, TellsTheEndOfAReadThatHadToWait) {
  struct Pauses : test::EchoHandler {
    void channelRead(Context& ctx, Message&& msg) override {
      EchoHandler::channelRead(ctx, std::move(msg));
      if (std::exchange(hasPaused, true)) return;
      ctx.channel().setAutoRead(false);
      ctx.channel().loop().execute([ch = ChannelPtr(&ctx.channel())] { ch->setAutoRead(true); });
    }
    bool hasPaused = false;
  };
  for (unsigned round = 0; round < 10; ++round) {
    auto [channel, peer] = link([](Channel& ch) { ch.pipeline().emplaceLast<Pauses>(); });
    const std::string message = pattern(5000, round);  // more than one block of the ring
    {
      const Held held(loop());
      peer.send(message);
    }
    ASSERT_TRUE(same(peer.receive(message.size()), message)) << round;
    EXPECT_TRUE(pingPong(peer, 3));
  }
}

TEST_P(StreamRing, MayLeaveItsLoopAndComeBack) {
  auto [channel, peer] = link(recording(log_));
  std::string sent;
  for (int round = 0; round < 50; ++round) {
    const std::string text = "message " + std::to_string(round);
    peer.send(text);
    ASSERT_TRUE(succeeds(channel->deregister()));
    peer.send(text);
    ASSERT_TRUE(succeeds(registerChannel(loop(), channel)));
    sent += text + text;
    ASSERT_TRUE(log_->awaitBytes(sent.size())) << "round " << round;
  }
  EXPECT_TRUE(same(log_->bytes(), sent));
  EXPECT_EQ(log_->count("active"), 1U);
}

// A handler may ask for input in the very burst after which the ring would be considered.
TEST_P(StreamRing, MayBeEnteredInTheMiddleOfABurst) {
  struct ReadsByHand : ChannelHandler {
    void read(Context& ctx) override { ctx.read(); }
    void channelRead(Context& ctx, Message&& msg) override {
      ctx.write(std::move(msg));
      if (++messages != 30) return;
      Channel& channel = ctx.channel();
      ctx.flush();
      channel.pipeline().emplaceLast<test::EchoHandler>();
      channel.pipeline().remove(*this);
      channel.setAutoRead(false);
      channel.setAutoRead(true);
    }
    void channelReadComplete(Context& ctx) override { ctx.flush(); }
    int messages = 0;
  };
  auto [channel, peer] = link([](Channel& ch) { ch.pipeline().emplaceLast<ReadsByHand>(); });
  ASSERT_TRUE(pingPong(peer, 29));
  EXPECT_FALSE(isOnRing(channel));

  EXPECT_TRUE(pingPong(peer, 40));

  EXPECT_TRUE(isOnRing(channel));
}

// Between two completions of one channel others have their turn, and may stop its reading: what it has read is
// complete all the same. A proxy waits for that.
TEST_P(StreamRing, TellsTheEndOfABurstThatAnotherChannelStopped) {
  struct Relay : ChannelHandler {
    explicit Relay(ChannelPtr to) : other(std::move(to)) {}
    void channelRead(Context&, Message&& msg) override { other->write(std::move(msg)); }
    void channelReadComplete(Context&) override { other->flush(); }
    ChannelPtr other;
  };
  struct Stops : ChannelHandler {
    void channelWritabilityChanged(Context& ctx) override {
      other->setAutoRead(ctx.channel().isWritable());
    }
    ChannelPtr other;
  };
  constexpr std::size_t kSize = 6000;  // two blocks
  auto [to, reader] =
      link([](Channel& ch) { ch.pipeline().emplaceLast<Stops>(); },
           [](Channel& ch) {
             const WaterMarks marks{.low = 1, .high = 1000};
             EXPECT_TRUE(ch.applyOption(options::waterMarks, OptionValue(marks)).ok());
           });
  auto [from, writer] =
      link([other = to](Channel& ch) { ch.pipeline().emplaceLast<Relay>(other); });
  inLoop([&, other = from, stopped = to] { stopped->pipeline().get<Stops>()->other = other; });
  for (unsigned round = 1; round < 20; ++round) {
    {
      const Held held(loop());
      writer.send(pattern(kSize, round));
    }
    ASSERT_TRUE(same(reader.receive(kSize), pattern(kSize, round))) << round;
  }
  inLoop([stopped = to] { stopped->pipeline().get<Stops>()->other = nullptr; });
}

// F72: the ring is there, but the kernel has no memory for its buffers
TEST_P(StreamRing, WithoutBuffersGoesByReadiness) {
  static_cast<void>(group());
  settle();
  FaultScript script;
  script.failAll("io_uring_register", ENOMEM);

  auto [channel, peer] = link(echoing());

  EXPECT_TRUE(pingPong(peer, 40));
  EXPECT_FALSE(isOnRing(channel));
}

// --- what waits in the ring ---

// Must show 5: connections that say nothing cost no receive buffer
TEST_P(StreamRing, IdleConnectionsHoldNoBlocks) {
  std::vector<Link> all;
  for (int i = 0; i < 1000; ++i) all.push_back(link(echoing()));
  settle();

  EXPECT_EQ(waitingBlocks(), kFewest);
  EXPECT_EQ(usedBlocks(), 0);
  EXPECT_TRUE(pingPong(all[500].peer, 1));
  EXPECT_EQ(waitingBlocks(), kFewest);
}

// F69: more messages at once than blocks
TEST_P(StreamRing, FindsMoreBlocksWhenManySendAtOnce) {
  std::vector<Link> all;
  for (int i = 0; i < 200; ++i) all.push_back(link(echoing()));
  settle();
  ASSERT_EQ(waitingBlocks(), kFewest);
  const std::string message = pattern(1000);
  {
    const Held held(loop());
    for (const Link& each : all) each.peer.send(message);
  }

  for (Link& each : all) EXPECT_TRUE(same(each.peer.receive(message.size()), message));
  EXPECT_GT(waitingBlocks(), kFewest);
  EXPECT_TRUE(test::eventually([&] { return usedBlocks() == 0; }));
}

// F67 F68 F70: with a queue of two, everything overflows all the time
TEST_P(StreamRing, LosesNothingWhenTheRingIsFull) {
  constexpr int kLinks = 100;
  std::vector<Link> all;
  for (int i = 0; i < kLinks; ++i) all.push_back(link(echoing()));
  for (unsigned round = 0; round < 30; ++round) {
    const std::string message = pattern(10 + 50 * round, round);
    {
      const Held held(loop());
      for (const Link& each : all) each.peer.send(message);
    }
    for (Link& each : all) ASSERT_TRUE(same(each.peer.receive(message.size()), message));
  }
}

// F69: handlers that keep what they got do not starve the others
TEST_P(StreamRing, HandlersMayKeepTheirBytes) {
  struct Keeps : ChannelHandler {
    explicit Keeps(std::vector<Message>& all) : kept(all) {}
    void channelRead(Context& ctx, Message&& msg) override {
      kept.push_back(std::move(msg));
      ctx.writeAndFlush(ByteBuf::of("ok"));
    }
    std::vector<Message>& kept;
  };
  std::vector<Message> kept;
  auto [channel, peer] = link([&](Channel& ch) { ch.pipeline().emplaceLast<Keeps>(kept); });

  for (std::size_t i = 0; i < 20 * kFewest; ++i) {
    peer.send("x");
    ASSERT_EQ(peer.receive(2), "ok");
  }

  EXPECT_EQ(inLoop([&] { return kept.size(); }), 20 * kFewest);
  inLoop([&] { kept.clear(); });
  EXPECT_TRUE(test::eventually([&] { return usedBlocks() == 0; }));
}

// --- back-pressure ---

// F24: what the ring has and the kernel has not taken counts as pending
TEST_P(StreamRing, BytesOnTheirWayCountAsPending) {
  auto [channel, peer] = link(
      [this](Channel& ch) {
        recording(log_)(ch);
        ch.pipeline().emplaceLast<test::EchoHandler>();
      },
      narrow, 4096);
  const std::string message = pattern(3000);
  std::string sent;

  // The peer does not read: one answer after the other, until the kernel is full and the marks reached.
  while (inLoop([&, ch = channel] { return ch->isWritable(); })) {
    ASSERT_LT(sent.size(), 8U << 20) << "the marks do nothing";
    peer.send(message);
    sent += message;
    ASSERT_TRUE(log_->awaitBytes(sent.size()));
    inLoop([&, ch = channel] {
      const std::uint64_t taken = channelMetrics(loop()).bytesWritten;
      EXPECT_GE(ch->pendingBytes() + taken, sent.size());
    });
  }
  EXPECT_GT(pendingBytes(channel), ChannelSettings().waterMarks.low);

  EXPECT_TRUE(same(peer.receive(sent.size()), sent));
  EXPECT_TRUE(test::eventually([&, ch = channel] { return pendingBytes(ch) == 0; }));
  EXPECT_TRUE(channel->isWritable());
  EXPECT_TRUE(pingPong(peer, 40));
}

// F24: one message that waits in the ring alone
TEST_P(StreamRing, ASingleMessageOnItsWayCountsAsPending) {
  auto [channel, peer] = link(echoing(), narrow, 4096);
  const std::string message = pattern(3000);
  std::string sent;

  // Until one stays: those before it only wait for the next turn, which may be late.
  const auto goes = [this, ch = channel] {
    if (test::eventually([&] { return pendingBytes(ch) == 0; }, 100ms)) return true;
    for (int i = 0; i < 5; ++i) settle();
    return pendingBytes(ch) == 0;
  };
  while (goes()) {
    ASSERT_LT(sent.size(), 8U << 20);
    peer.send(message);
    sent += message;
    ASSERT_TRUE(test::eventually([&] { return channelMetrics(loop()).bytesRead == sent.size(); }));
  }

  EXPECT_GE(pendingBytes(channel), message.size());
  EXPECT_LT(pendingBytes(channel), 3 * 4096U) << "one block and what it costs, not more";
  EXPECT_TRUE(same(peer.receive(sent.size()), sent));
  EXPECT_TRUE(test::eventually([&, ch = channel] { return pendingBytes(ch) == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Rings, StreamRing, testing::ValuesIn(test::ringRows()), test::netRowName);

}  // namespace
}  // namespace millrace
