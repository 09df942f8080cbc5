// SPDX-License-Identifier: Apache-2.0
// Peers that stop reading: what they may make us hold, and that nobody else notices.
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/channel/channel_metrics.h>
#include <millrace/channel/context.h>

#include <gmock/gmock.h>

#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EventLog;
using test::LogPtr;
using test::NetTest;
using test::pattern;
using test::Peer;
using test::recording;
using test::same;
using test::succeeds;

class BackPressure : public NetTest {
 protected:
  static void small(Channel& channel) {
    EXPECT_TRUE(channel.applyOption(options::sendBuffer, OptionValue(8192)).ok());
    EXPECT_TRUE(channel.applyOption(options::waterMarks, OptionValue(kMarks)).ok());
    EXPECT_TRUE(channel.applyOption(options::receiveSizes, OptionValue(kSizes)).ok());
  }
  /// Sends until nothing more is taken, though the loop has had its turns. Gives how much that was.
  std::size_t stuff(const Peer& peer, const std::string& bytes) {
    std::size_t sent = 0;
    int refusals = 0;
    while (refusals < 20 && sent < bytes.size()) {
      const std::size_t more = peer.sendSome(std::string_view(bytes).substr(sent));
      sent += more;
      refusals = more == 0 ? refusals + 1 : 0;
      settle();
    }
    return sent;
  }

  static constexpr WaterMarks kMarks{16 * 1024, 32 * 1024};
  static constexpr ReceiveSizes kSizes{64, 2048, 4096};  // a message is no larger
  const LogPtr log_ = std::make_shared<EventLog>();
};

/// Notes the most that its channel ever held.
struct Gauge : ChannelHandler {
  explicit Gauge(std::atomic<std::size_t>& m) : most(m) {}
  void channelRead(Context& ctx, Message&& msg) override {
    ctx.fireChannelRead(std::move(msg));
    most = std::max(most.load(), ctx.channel().pendingBytes());
  }
  std::atomic<std::size_t>& most;
};

// F24, must show 5: the blueprint's echo handler and a peer that does not read
TEST_P(BackPressure, BoundsWhatAnEchoHandlerHolds) {
  std::atomic<std::size_t> most{0};
  Link slow = link(
      [&](Channel& ch) {
        ch.pipeline().emplaceLast<Gauge>(most);
        ch.pipeline().emplaceLast<test::EchoHandler>();
      },
      small, 4096);
  Link calm = link(test::echoing());
  const std::string bytes = pattern(16 << 20);

  const std::size_t sent = stuff(slow.peer, bytes);
  ASSERT_LT(sent, bytes.size());

  // The high mark and one message: its block, and what an entry costs.
  EXPECT_LE(most, kMarks.high + kSizes.max + 512);
  EXPECT_FALSE(slow.channel->isWritable());
  EXPECT_GE(channelMetrics(loop()).pausedReads, 1U);
  for (int i = 0; i < 50; ++i) {
    calm.peer.send("ping");
    EXPECT_EQ(calm.peer.receive(4), "ping");
  }
  const std::uint64_t turns = loop().metrics().turns;
  loop().schedule(30ms, [] {}).future().sync();
  EXPECT_LE(loop().metrics().turns - turns, 5U) << "the loop spins";

  // It goes on where it stopped, and everything arrives.
  std::thread rest([&] { slow.peer.send(std::string_view(bytes).substr(sent)); });
  EXPECT_TRUE(same(slow.peer.receive(bytes.size()), bytes));
  rest.join();
  EXPECT_LE(most, kMarks.high + kSizes.max + 512);
}

// F24: with the default marks and sizes
TEST_P(BackPressure, BoundsItByDefault) {
  std::atomic<std::size_t> most{0};
  Link slow = link(
      [&](Channel& ch) {
        ch.pipeline().emplaceLast<Gauge>(most);
        ch.pipeline().emplaceLast<test::EchoHandler>();
      },
      {}, 4096);
  const std::string bytes = pattern(24 << 20);

  const std::size_t sent = stuff(slow.peer, bytes);

  ASSERT_LT(sent, bytes.size());
  const std::size_t high = ChannelSettings().waterMarks.high;
  const std::size_t message = ChannelSettings().receiveSizes.max;
  EXPECT_LE(most, high + message + 4096);
  slow.peer.close();
}

// F24: switched off, reading goes on
TEST_P(BackPressure, MayBeSwitchedOff) {
  Link slow = link(
      [&](Channel& ch) {
        recording(log_)(ch);
        ch.pipeline().emplaceLast<test::EchoHandler>();
      },
      [](Channel& ch) {
        small(ch);
        EXPECT_TRUE(ch.applyOption(options::pauseReadsWhenUnwritable, OptionValue(false)).ok());
      },
      4096);
  const std::string bytes = pattern(2 << 20);

  slow.peer.send(bytes);

  EXPECT_TRUE(log_->awaitBytes(bytes.size()));
  EXPECT_TRUE(same(slow.peer.receive(bytes.size()), bytes));
}

// F24: the peer ends its stream while reading pauses: seen when it goes on
TEST_P(BackPressure, SeesTheEndBehindThePause) {
  Link slow = link(test::echoing(), small, 4096);
  const std::string bytes = pattern(16 << 20);
  const std::size_t sent = stuff(slow.peer, bytes);
  slow.peer.shutdownWrite();

  // Half closure is not allowed: what the kernel does not take at the end is lost, by design.
  const std::string got = slow.peer.receiveAll();

  EXPECT_TRUE(same(got, std::string_view(bytes).substr(0, got.size())));
  EXPECT_LE(got.size(), sent);
  EXPECT_TRUE(succeeds(slow.channel->closeFuture()));
}

// F62: 20 peers that do not read, and one that works
TEST_P(BackPressure, OfManyLeavesOthersAlone) {
  std::vector<Link> slow;
  for (int i = 0; i < 20; ++i) slow.push_back(link(test::echoing(), small, 4096));
  Link calm = link(test::echoing());
  const std::string bytes = pattern(4 << 20);
  for (const Link& each : slow) {
    while (each.peer.sendSome(bytes) != 0) {
    }
  }

  for (int i = 0; i < 200; ++i) {
    calm.peer.send("ping");
    ASSERT_EQ(calm.peer.receive(4), "ping");
  }
  for (const Link& each : slow) {
    EXPECT_LE(inLoop([&] { return each.channel->pendingBytes(); }), kMarks.high + kSizes.max + 512);
  }
  for (Link& each : slow) each.peer.close();
}

// Must show 5: a peer that sends one byte of a frame keeps no receive buffer
TEST_P(BackPressure, IdleChannelsKeepNoBuffers) {
  std::vector<Link> all;
  for (int i = 0; i < 50; ++i) {
    all.push_back(link([](Channel& ch) { ch.pipeline().emplaceLast<test::EchoHandler>(); }));
  }
  for (Link& each : all) {
    each.peer.send("x");
    EXPECT_EQ(each.peer.receive(1), "x");
  }
  settle();

  for (const Link& each : all) {
    EXPECT_EQ(inLoop([&] { return each.channel->pendingBytes(); }), 0U);
  }
}

// A handler that could only keep what comes lets it wait in the kernel.
TEST_P(BackPressure, ReadsRestWhileAHandlerSaysSo) {
  auto [channel, peer] = link(recording(log_));
  using Pause = Channel::ReadPause;
  inLoop([ch = channel] { ch->changeReadPause(Pause::automatic, Pause::always); });
  peer.send("waits");
  settle();
  EXPECT_EQ(log_->byteCount(), 0u);

  // Somebody else wants to read: whoever could only keep the bytes goes first.
  inLoop([ch = channel] { ch->changeReadPause(Pause::automatic, Pause::never); });
  settle();
  EXPECT_EQ(log_->byteCount(), 0u);
  inLoop([ch = channel] { ch->changeReadPause(Pause::never, Pause::automatic); });

  inLoop([ch = channel] { ch->changeReadPause(Pause::always, Pause::automatic); });
  ASSERT_TRUE(log_->awaitBytes(5));
  EXPECT_EQ(log_->bytes(), "waits");
}

// What is held back may wait for input, as in a handshake.
TEST_P(BackPressure, ReadsGoOnWhileAHandlerSaysSo) {
  auto [channel, peer] = link(recording(log_), small);
  using Pause = Channel::ReadPause;
  inLoop([ch = channel] {
    ch->changeReadPause(Pause::automatic, Pause::never);
    ch->changeReadPause(Pause::automatic, Pause::never);  // two handlers, one in the other
    ch->changeReadPause(Pause::never, Pause::automatic);
    ch->countHeld(1'000'000);
  });
  EXPECT_FALSE(channel->isWritable());
  peer.send("needed");
  ASSERT_TRUE(log_->awaitBytes(6));

  inLoop([ch = channel] { ch->changeReadPause(Pause::never, Pause::automatic); });
  peer.send("not now");
  settle();
  EXPECT_EQ(log_->byteCount(), 6u);
  inLoop([ch = channel] { ch->countHeld(-1'000'000); });
  ASSERT_TRUE(log_->awaitBytes(13));
}

INSTANTIATE_TEST_SUITE_P(Engines, BackPressure, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
