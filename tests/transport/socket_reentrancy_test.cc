// SPDX-License-Identifier: Apache-2.0
// Calls that come at an awkward moment: from the listener of a write that is being made, within the
// event that a message came with, or while the channel has left its loop.
#include "support/fault_script.h"
#include "support/net.h"

#include <millrace/base/attribute_map.h>
#include <millrace/channel/context.h>
#include <millrace/sys/calls.h>

#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace millrace {
namespace {

using test::EventLog;
using test::FaultScript;
using test::LogPtr;
using test::NetTest;
using test::recording;
using test::succeeds;

class SocketReentrancy : public NetTest {
 protected:
  /// `count` messages of one byte, flushed in one task; `then` is called when the last is written.
  void sendMany(Channel& channel, int count, std::function<void()> then) {
    inLoop([&] {
      for (int i = 1; i < count; ++i) channel.write(ByteBuf::of("x"));
      Promise<void> last(loop());
      last.future().addListener([then = std::move(then)] { then(); });
      channel.write(ByteBuf::of("y"), std::move(last));
      channel.flush();
    });
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// More messages than a buffer that is kept for later has room for.
TEST_P(SocketReentrancy, TheListenerOfTheLastWriteMayEndTheOutput) {
  for (const int count : {1, 3, 200}) {
    SCOPED_TRACE(count);
    auto [channel, peer] = link(recording(log_));
    Channel& ours = *channel;

    sendMany(ours, count, [&ours] { ours.shutdownOutput(); });

    EXPECT_EQ(peer.receiveAll().size(), static_cast<std::size_t>(count));
    EXPECT_EQ(peer.error(), 0);
  }
}

TEST_P(SocketReentrancy, TheListenerOfTheLastWriteMayCloseAndWriteElsewhere) {
  for (const int count : {1, 3, 200}) {
    SCOPED_TRACE(count);
    auto [first, firstPeer] = link(recording(log_));
    auto [second, secondPeer] = link(recording(log_));
    Channel& one = *first;
    Channel& other = *second;

    sendMany(one, count, [&] {
      one.closeGracefully();
      other.writeAndFlush(ByteBuf::of("for the other"));
    });

    EXPECT_EQ(firstPeer.receiveAll().size(), static_cast<std::size_t>(count));
    EXPECT_EQ(firstPeer.error(), 0);
    EXPECT_EQ(secondPeer.receive(13), "for the other");
    firstPeer.close();
  }
}

// The message waits for the end of its event when the mark is crossed by something else.
TEST_P(SocketReentrancy, HandlersAreToldOfAMarkCrossedBesideAMessageInItsEvent) {
  struct Holds : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override {
      ctx.write(std::move(msg));
      ctx.flush();
      ctx.channel().countHeld(200'000);
      EXPECT_FALSE(ctx.channel().isWritable());
    }
  };
  auto [channel, peer] = link([this](Channel& each) {
    each.pipeline().emplaceLast<Holds>();
    recording(log_)(each);
  });

  peer.send("hello");
  EXPECT_EQ(peer.receive(5), "hello");
  ASSERT_TRUE(log_->await("unwritable"));
  inLoop([&ours = *channel] { ours.countHeld(-200'000); });

  ASSERT_TRUE(log_->await("writable"));
  peer.send("again");
  EXPECT_EQ(peer.receive(5), "again");
  inLoop([&ours = *channel] { ours.countHeld(-200'000); });
}

TEST_P(SocketReentrancy, WhatIsFlushedAwayFromTheLoopGoesWhenItIsBack) {
  auto [channel, peer] = link(recording(log_));
  ASSERT_TRUE(succeeds(channel->deregister()));

  const Future<void> sent = channel->send(ByteBuf::of("later"));
  settle();
  EXPECT_FALSE(sent.isDone());
  ASSERT_TRUE(succeeds(registerChannel(loop(), channel)));

  EXPECT_TRUE(succeeds(sent));
  EXPECT_EQ(peer.receive(5), "later");
}

TEST_P(SocketReentrancy, AReadThatWasAskedForSurvivesLeavingTheLoop) {
  auto [channel, peer] = link(recording(log_), [](Channel& each) { each.setAutoRead(false); });
  channel->read();
  ASSERT_TRUE(succeeds(channel->deregister()));
  peer.send("hello");
  ASSERT_TRUE(succeeds(registerChannel(loop(), channel)));

  EXPECT_TRUE(log_->awaitBytes(5));
}

TEST_P(SocketReentrancy, LeavingAndComingBackInOneTaskLeaksNothing) {
  const AttributeKey<std::shared_ptr<int>> key("alive");
  auto alive = std::make_shared<int>(1);
  {
    auto [channel, peer] = link(recording(log_));
    inLoop([&, &ours = channel] {
      ours->attributes().set(key, alive);
      ours->writeAndFlush(ByteBuf::of("x"));
      ours->deregister();
      registerChannel(loop(), ours);
      ours->close();
    });
    ASSERT_TRUE(log_->await("removed"));
  }
  for (int i = 0; i < 100 && alive.use_count() > 1; ++i) settle();
  EXPECT_EQ(alive.use_count(), 1);
}

TEST_P(SocketReentrancy, ADeregisteredChannelIsClosedIfItsLoopIsGone) {
  auto [channel, peer] = link(recording(log_));
  ASSERT_TRUE(succeeds(channel->deregister()));
  channel->write(ByteBuf::of("never flushed"));
  settle();
  EventLoop& old = loop();
  const Ref<EventLoop> kept(&old);
  endGroup();

  EXPECT_FALSE(succeeds(registerChannel(old, channel)));

  EXPECT_FALSE(channel->isOpen());
  EXPECT_EQ(peer.receiveAll(), "");
}

TEST_P(SocketReentrancy, PausingReadsMayBeChangedWhileTheChannelIsNotWritable) {
  auto [channel, peer] = link(recording(log_));
  inLoop([&ours = *channel] { ours.countHeld(200'000); });
  peer.send("waits");
  settle();
  EXPECT_EQ(log_->byteCount(), 0U);

  ASSERT_TRUE(succeeds(channel->setOption(options::pauseReadsWhenUnwritable, false)));
  ASSERT_TRUE(log_->awaitBytes(5));
  ASSERT_TRUE(succeeds(channel->setOption(options::pauseReadsWhenUnwritable, true)));
  peer.send("waits too");
  settle();
  EXPECT_EQ(log_->byteCount(), 5U);
  inLoop([&ours = *channel] { ours.countHeld(-200'000); });

  EXPECT_TRUE(log_->awaitBytes(14));
}

TEST_P(SocketReentrancy, EventsAreNotFiredFromAnotherThread) {
  auto [channel, peer] = link(recording(log_));
  ChannelPipeline& pipeline = channel->pipeline();

  EXPECT_THROW(pipeline.fireChannelRead(Message(1)), std::logic_error);
  EXPECT_THROW(pipeline.fireUserEventTriggered(Message(1)), std::logic_error);
  EXPECT_THROW(pipeline.fireExceptionCaught(Error(Errc::closed, "x")), std::logic_error);
}

TEST_P(SocketReentrancy, ClosingAChannelWhoseLoopIsGoneSucceeds) {
  auto [channel, peer] = link(recording(log_));
  endGroup();

  EXPECT_FALSE(channel->isOpen());
  EXPECT_TRUE(succeeds(channel->close()));
  EXPECT_TRUE(succeeds(channel->closeGracefully()));
}

TEST_P(SocketReentrancy, NobodyCancelsTheFutureOfAClose) {
  auto [channel, peer] = link(recording(log_));

  EXPECT_FALSE(channel->closeFuture().cancel());

  EXPECT_FALSE(channel->closeFuture().isDone());
  channel->close();
  EXPECT_TRUE(succeeds(channel->closeFuture()));
}

// F81: the kernel gives the connection up, idle or not
TEST_P(SocketReentrancy, AConnectionThatTimesOutIsClosedWithThatCause) {
  if (isByRing()) return;  // nobody calls recv(): see stream_ring_fault_test.cc
  auto [channel, peer] = link(recording(log_));
  FaultScript script;
  script.fail("recv", 1, ETIMEDOUT);

  peer.send("x");

  ASSERT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("exception"), 1U);
  EXPECT_EQ(inLoop([&ours = *channel] { return ours.closeCause().errnoValue(); }), ETIMEDOUT);
}

// F84: something between us and the kernel lies about what was read
TEST_P(SocketReentrancy, AReadOfMoreThanWasAskedForIsCut) {
  if (isByRing()) return;  // nobody calls recv(): see stream_ring_fault_test.cc
  auto [channel, peer] = link(recording(log_));
  static std::atomic<int> lies{0};
  static Calls lying = calls();
  lying.recv = [](int fd, void* to, std::size_t size, int flags) -> std::ptrdiff_t {
    const std::ptrdiff_t got = ::recv(fd, to, size, flags);
    if (got <= 0 || lies.exchange(0) == 0) return got;
    std::memset(to, 'x', size);
    return static_cast<std::ptrdiff_t>(size + 1000);
  };
  lies = 1;
  const Calls* before = replaceCalls(&lying);

  peer.send("hello");
  const bool came = log_->await("readComplete");
  replaceCalls(before);

  ASSERT_TRUE(came);
  EXPECT_EQ(log_->byteCount() % 64, 0U);  // the whole buffer, and no more
  EXPECT_LE(log_->byteCount(), 65536U);
}

// The smallest buffer has 64 bytes, whatever is asked for.
TEST_P(SocketReentrancy, TinyReceiveSizesAreRaised) {
  for (const ReceiveSizes sizes : {ReceiveSizes{1, 1, 64}, {1, 2, 100}, {16, 16, 64}}) {
    auto [channel, peer] = link(test::echoing(), [&](Channel& each) {
      EXPECT_TRUE(each.applyOption(options::receiveSizes, OptionValue(sizes)).ok());
    });
    const std::string text = test::pattern(1000);
    peer.send(text);
    EXPECT_EQ(peer.receive(1000), text);
    for (int i = 0; i < 20; ++i) {
      peer.send("x");
      EXPECT_EQ(peer.receive(1), "x");
    }
  }
}

// Blueprint 4: a burst of slow reads does not keep its answers back.
TEST_P(SocketReentrancy, ALongBurstSendsWhatWasFlushedInIt) {
  struct Slow : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override {
      const std::int64_t end = Clock::real().nanos() + 250'000;
      while (Clock::real().nanos() < end) {
      }
      ctx.writeAndFlush(std::move(msg));
    }
  };
  auto [channel, peer] = link(
      [](Channel& each) { each.pipeline().emplaceLast<Slow>(); },
      [](Channel& each) {
        EXPECT_TRUE(
            each.applyOption(options::receiveSizes, OptionValue(ReceiveSizes{64, 64, 64})).ok());
        each.setAutoRead(false);
      });
  peer.send(test::pattern(64 * 10));
  const FaultScript calls;
  channel->setAutoRead(true);

  EXPECT_TRUE(test::same(peer.receive(64 * 10), test::pattern(64 * 10)));
  EXPECT_GE(calls.count("send") + calls.count("sendmsg") + calls.count("writev"), 4U);
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketReentrancy, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
