// SPDX-License-Identifier: Apache-2.0
// How connections end: at once, gracefully, with their loop, and in the middle of everything.
#include "support/fault_script.h"
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/channel/context.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EventLog;
using test::FaultScript;
using test::LogPtr;
using test::NetTest;
using test::pattern;
using test::recording;
using test::same;
using test::succeeds;
using testing::ElementsAre;
using testing::HasSubstr;

class SocketClose : public NetTest {
 protected:
  static void noAutoRead(Channel& channel) {
    EXPECT_TRUE(channel.applyOption(options::autoRead, OptionValue(false)).ok());
  }
  static void lingerBriefly(Channel& channel) {
    EXPECT_TRUE(channel.applyOption(options::lingerOnDrain, OptionValue(Duration(50ms))).ok());
  }
  /// Far more time than it needs: who waits for it fails.
  ShutdownReport shutDown() {
    const Future<ShutdownReport> ended = group().shutdownGracefully(0s, 10min);
    if (!succeeds(ended)) {
      ADD_FAILURE() << group().dump();
      group().shutdownGracefully(0s, 10min);
      throw std::runtime_error("the group does not end");
    }
    return ended.get();
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

TEST_P(SocketClose, GracefullyIsGivenUpIfThePeerReadsNothing) {
  auto [channel, peer] = link(recording(log_), lingerBriefly, 4096);
  const Future<void> sent = channel->send(ByteBuf::of(std::string(8'000'000, 'x')));

  EXPECT_TRUE(succeeds(channel->closeGracefully()));

  EXPECT_TRUE(test::failsWith(sent, Errc::timedOut));
  EXPECT_THAT(sent.cause().message(), testing::HasSubstr("lingerOnDrain"));
}

TEST_P(SocketClose, GracefullyWaitsForAPeerThatReadsSlowly) {
  constexpr std::size_t kSize = 8'000'000;
  ManualClock& clock = manualClock();
  auto [channel, peer] = link(
      recording(log_),
      [](Channel& ours) {
        lingerBriefly(ours);
        EXPECT_TRUE(ours.applyOption(options::sendBuffer, OptionValue(65536)).ok());
      },
      4096);
  const Future<void> sent = channel->send(ByteBuf::of(std::string(kSize, 'x')));
  const Future<void> closed = channel->closeGracefully();

  // More than the kernel holds is read each time, and then nearly the whole limit passes.
  std::size_t got = 0;
  for (int i = 0; i < 6; ++i) {
    got += peer.receive(1'000'000).size();
    settle();
    clock.advance(45ms);
    settle();
  }
  EXPECT_FALSE(closed.isDone());
  got += peer.receiveAll().size();

  EXPECT_EQ(got, kSize);
  EXPECT_EQ(peer.error(), 0);
  EXPECT_TRUE(succeeds(sent));
}

// C136: flushed bytes get one last attempt
TEST_P(SocketClose, SendsWhatWasFlushedJustBefore) {
  auto [channel, peer] = link(recording(log_));

  inLoop([&, ch = channel] {
    ch->writeAndFlush(ByteBuf::of("good"));
    ch->writeAndFlush(ByteBuf::of("bye"));
    ch->close();
  });

  EXPECT_EQ(peer.receiveAll(), "goodbye");
  EXPECT_EQ(peer.error(), 0);
}

// C136: and whoever waits for them hears the truth
TEST_P(SocketClose, CompletesWhatTheLastAttemptWrote) {
  auto [channel, peer] = link(recording(log_));

  Future<void> sent;
  inLoop([&, ch = channel] {
    sent = ch->send(ByteBuf::of("goodbye"));
    ch->close();
  });

  EXPECT_TRUE(succeeds(sent));
  EXPECT_EQ(peer.receiveAll(), "goodbye");
}

// F21 F58: what is left fails, in order, before the close is done
TEST_P(SocketClose, FailsWhatIsLeft) {
  auto [channel, peer] = link(recording(log_), {}, 4096);
  std::vector<std::string> order;
  const auto note = [&](const char* what) {
    return [&order, what](const Result<void>& result) {
      order.push_back(what + std::string(result.ok() ? " ok" : " failed"));
    };
  };
  const Future<void> first = channel->send(ByteBuf::of(pattern(8 << 20)));
  const Future<void> second = channel->send(ByteBuf::of("second"));
  settle();
  first.addListener(note("first"));
  second.addListener(note("second"));

  EXPECT_TRUE(succeeds(channel->close().addListener(note("close"))));
  ASSERT_TRUE(log_->await("removed"));
  settle();

  EXPECT_THAT(order, ElementsAre("first failed", "second failed", "close ok"));
  EXPECT_TRUE(test::failsWith(first, Errc::closed));
  EXPECT_EQ(log_->count("exception"), 0U);
}

// F21: writes after the end fail and harm nobody
TEST_P(SocketClose, RefusesWritesAfterwards) {
  auto [channel, peer] = link(recording(log_));
  EXPECT_TRUE(succeeds(channel->close()));

  EXPECT_TRUE(test::failsWith(channel->send(ByteBuf::of("late")), Errc::closed));
  channel->write(ByteBuf::of("nobody waits"));
  channel->flush();
  EXPECT_TRUE(succeeds(channel->close())) << "a second time";
  EXPECT_TRUE(succeeds(channel->closeFuture()));
  EXPECT_FALSE(channel->isWritable());
}

// F21: another thread writes while the channel closes
TEST_P(SocketClose, MayRaceWithWrites) {
  for (int round = 0; round < 20; ++round) {
    auto [channel, peer] = link(test::echoing());
    std::vector<Future<void>> sent;
    std::thread writer([&, ch = channel] {
      for (int i = 0; i < 50; ++i) sent.push_back(ch->send(ByteBuf::of("0123456789")));
    });
    const Future<void> closed = channel->close();
    writer.join();

    EXPECT_TRUE(succeeds(closed));
    std::size_t arrived = 0;
    for (const Future<void>& each : sent) arrived += succeeds(each) ? 10 : 0;
    EXPECT_EQ(peer.receiveAll().size(), arrived);
  }
}

// F57: every callback may close; inactive and unregistered come once, in order
TEST_P(SocketClose, MayComeFromEveryCallback) {
  struct Closes : ChannelHandler {
    explicit Closes(std::string when) : at(std::move(when)) {}
    void handlerAdded(Context& ctx) override { maybe(ctx, "added"); }
    void channelRegistered(Context& ctx) override {
      maybe(ctx, "registered");
      ctx.fireChannelRegistered();
    }
    void channelActive(Context& ctx) override {
      maybe(ctx, "active");
      ctx.fireChannelActive();
    }
    void channelRead(Context& ctx, Message&& msg) override {
      maybe(ctx, "read");
      ctx.fireChannelRead(std::move(msg));
    }
    void channelReadComplete(Context& ctx) override {
      maybe(ctx, "readComplete");
      ctx.fireChannelReadComplete();
    }
    void channelInactive(Context& ctx) override {
      maybe(ctx, "inactive");
      ctx.fireChannelInactive();
    }
    void maybe(Context& ctx, const char* now) const {
      if (at == now) ctx.close();
      if (at == now) ctx.channel().close();
    }
    std::string at;
  };
  for (const char* at : {"added", "registered", "active", "read", "readComplete", "inactive"}) {
    SCOPED_TRACE(at);
    const LogPtr log = std::make_shared<EventLog>();
    test::Pair pair = test::makePair(isTcp());
    const ChannelPtr channel = adopt(std::move(pair.ours));
    recording(log)(*channel);
    channel->pipeline().emplaceLast<Closes>(at);
    pair.peer.send("x");
    static_cast<void>(registerChannel(loop(), channel));
    if (std::string_view(at) == "inactive") channel->close();

    ASSERT_TRUE(log->await("removed"));
    settle();
    const std::vector<std::string> events = log->events();
    EXPECT_EQ(log->count("registered"), 1U);
    EXPECT_LE(log->count("active"), 1U);
    EXPECT_EQ(log->count("inactive"), log->count("active"));
    EXPECT_EQ(log->count("unregistered"), 1U);
    EXPECT_EQ(events.back(), "removed");
    EXPECT_EQ(events[events.size() - 2], "unregistered");
  }
}

// F57: from the listener of a close, and of a write
TEST_P(SocketClose, MayComeFromListeners) {
  auto [channel, peer] = link(recording(log_));
  inLoop([&, ch = channel] {
    ch->closeFuture().addListener([ch] { ch->close(); });
    ch->send(ByteBuf::of("one")).addListener([ch] { ch->close(); });
    ch->send(ByteBuf::of("two"));
  });

  EXPECT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("inactive"), 1U);
  EXPECT_THAT(peer.receiveAll(), HasSubstr("one"));
}

// F13: somebody else closed the descriptor, and its number belongs to another file now
TEST_P(SocketClose, SparesADescriptorThatIsNotItsOwnAnyMore) {
  for (const bool reused : {false, true}) {
    SCOPED_TRACE(reused);
    const LogPtr log = std::make_shared<EventLog>();
    test::Pair pair = test::makePair(isTcp());
    const int number = pair.ours.get();
    const ChannelPtr channel = adopt(std::move(pair.ours));
    recording(log)(*channel);
    EXPECT_TRUE(succeeds(registerChannel(loop(), channel)));
    Fd other;
    inLoop([&] {
      if (!reused) {
        ::close(number);
        return;
      }
      const Fd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
      ASSERT_EQ(::dup2(file.get(), number), number);
      other = Fd(number);
    });

    EXPECT_FALSE(succeeds(channel->send(ByteBuf::of("x"))));
    ASSERT_TRUE(log->await("removed"));
    if (!reused) continue;
    EXPECT_GE(::fcntl(number, F_GETFD), 0) << "the other file was closed";
  }
}

// --- gracefully ---

// F51: what nobody read does not turn the end into a reset
TEST_P(SocketClose, GracefullyLosesNothingToUnreadInput) {
  auto [channel, peer] = link(recording(log_), noAutoRead);
  const std::string answer = pattern(4 << 20);
  peer.send(pattern(10'000, 2));
  const Future<void> sent = channel->send(ByteBuf::of(answer));

  const Future<void> closed = channel->closeGracefully();

  EXPECT_TRUE(same(peer.receiveAll(), answer));
  EXPECT_EQ(peer.error(), 0);
  peer.close();
  EXPECT_TRUE(succeeds(sent));
  EXPECT_TRUE(succeeds(closed));
  EXPECT_EQ(log_->count("read"), 0U);
}

// F51: a peer that ends its stream while the answer is still on its way gets all of it
TEST_P(SocketClose, GracefullyOutlivesThePeersEnd) {
  auto [channel, peer] = link(recording(log_), {}, 4096);
  const std::string answer = pattern(8 << 20);
  const Future<void> sent = channel->send(ByteBuf::of(answer));
  settle();
  ASSERT_FALSE(sent.isDone());

  const Future<void> closed = channel->closeGracefully();
  settle();
  peer.send("more");
  peer.shutdownWrite();
  settle();

  EXPECT_TRUE(same(peer.receiveAll(), answer));
  EXPECT_EQ(peer.error(), 0);
  EXPECT_TRUE(succeeds(sent));
  EXPECT_TRUE(succeeds(closed));
}

// F51: a peer that reads only when it has sent everything does not stand against us
TEST_P(SocketClose, GracefullyDiscardsWhileItWrites) {
  auto [channel, peer] = link(recording(log_), noAutoRead, 4096);
  const std::string answer = pattern(8 << 20);
  const Future<void> sent = channel->send(ByteBuf::of(answer));
  settle();
  ASSERT_FALSE(sent.isDone());

  const Future<void> closed = channel->closeGracefully();
  peer.send(pattern(16 << 20, 2));

  EXPECT_TRUE(same(peer.receiveAll(), answer));
  EXPECT_EQ(peer.error(), 0);
  peer.close();
  EXPECT_TRUE(succeeds(closed));
}

// F51: the output was ended before
TEST_P(SocketClose, GracefullyAfterTheOutputHasEnded) {
  auto [channel, peer] = link(recording(log_), lingerBriefly);
  EXPECT_TRUE(succeeds(channel->shutdownOutput()));

  const Future<void> closed = channel->closeGracefully();

  EXPECT_EQ(peer.receiveAll(), "");
  EXPECT_TRUE(succeeds(closed));
  EXPECT_TRUE(log_->await("removed"));
}

// F51: a peer that never ends its stream is waited for no longer than the option says
TEST_P(SocketClose, GracefullyWaitsForAWhileOnly) {
  auto [channel, peer] = link(recording(log_), lingerBriefly);

  EXPECT_TRUE(succeeds(channel->closeGracefully()));

  EXPECT_EQ(peer.receiveAll(), "");
  EXPECT_EQ(peer.error(), 0);
  EXPECT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("inactive"), 1U);
}

// --- with the loop ---

// F51: the same holds when the loop ends
TEST_P(SocketClose, WithTheLoopWaitsForAWhileOnly) {
  auto [channel, peer] = link(recording(log_), lingerBriefly);

  const ShutdownReport report = shutDown();

  EXPECT_FALSE(report.timedOut);
  EXPECT_EQ(report.channelsCut, 0U);
  EXPECT_EQ(peer.receiveAll(), "");
  EXPECT_EQ(peer.error(), 0);
  EXPECT_EQ(log_->count("removed"), 1U);
}

// F51: and for those that had begun to linger before
TEST_P(SocketClose, WithTheLoopEndsWhatLingersAlready) {
  auto [channel, peer] = link(recording(log_), [](Channel& ch) {
    EXPECT_TRUE(ch.applyOption(options::lingerOnDrain, OptionValue(Duration(200ms))).ok());
  });
  static_cast<void>(channel->closeGracefully());
  settle();

  EXPECT_FALSE(shutDown().timedOut);

  EXPECT_EQ(log_->count("removed"), 1U);
}

// F9 F51: the peer hung up while nobody read
TEST_P(SocketClose, WithTheLoopFindsPeersThatAreGone) {
  auto [channel, peer] = link(recording(log_), noAutoRead);
  peer.close();
  settle();

  EXPECT_FALSE(shutDown().timedOut);

  EXPECT_EQ(log_->count("removed"), 1U);
}

// F22 F51: the kernel had no memory for a write just before
TEST_P(SocketClose, WithTheLoopTriesAgainWhatTheKernelHadNoMemoryFor) {
  if (isByRing()) return;  // nobody calls send(): see stream_ring_fault_test.cc
  auto [channel, peer] = link(recording(log_));
  FaultScript script;
  script.fail("send", 1, ENOBUFS, 2);
  Future<void> sent;
  inLoop([&, ch = channel] {
    sent = ch->send(ByteBuf::of("answer"));
    group().shutdownGracefully(0s, 10min);
  });

  EXPECT_EQ(peer.receiveAll(), "answer");
  peer.close();
  EXPECT_TRUE(succeeds(sent));
  EXPECT_FALSE(shutDown().timedOut);
}

// F51: peers that never read: everything ends at the timeout
TEST_P(SocketClose, WithTheLoopCutsWhatIsNotDoneInTime) {
  constexpr std::size_t kCount = 20;
  const std::string bytes = pattern(1 << 20);
  std::vector<Link> links;
  std::vector<Future<void>> sent;
  const auto small = [](Channel& ch) {
    EXPECT_TRUE(ch.applyOption(options::sendBuffer, OptionValue(8192)).ok());
  };
  for (std::size_t i = 0; i < kCount; ++i) links.push_back(link(recording(log_), small, 4096));
  for (const Link& each : links) sent.push_back(each.channel->send(ByteBuf::of(bytes)));
  settle();

  const ShutdownReport report = group().shutdownGracefully(0s, 200ms).get();

  EXPECT_TRUE(report.timedOut);
  const auto cut = static_cast<std::size_t>(std::count_if(
      sent.begin(), sent.end(), [](const Future<void>& each) { return !each.isSuccess(); }));
  EXPECT_GT(cut, 0U);
  EXPECT_EQ(report.channelsCut, kCount);
  EXPECT_GT(report.bytesCut, 0U);
  EXPECT_LE(report.bytesCut, kCount * bytes.size());
  EXPECT_EQ(log_->count("inactive"), kCount);
  EXPECT_EQ(log_->count("removed"), kCount);
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketClose, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
