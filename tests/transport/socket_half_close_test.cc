// SPDX-License-Identifier: Apache-2.0
// One direction ends, or the connection breaks, while nobody reads: seen once, and no loop spins.
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/channel/channel_events.h>
#include <millrace/channel/context.h>

#include <gmock/gmock.h>

namespace millrace {
namespace {

using test::EventLog;
using test::LogPtr;
using test::NetTest;
using test::pattern;
using test::recording;
using test::same;
using test::succeeds;
using testing::ElementsAre;
using testing::StartsWith;

class SocketHalfClose : public NetTest {
 protected:
  static void set(Channel& channel, const ChannelOption<bool>& key, bool value) {
    EXPECT_TRUE(channel.applyOption(key, OptionValue(value)).ok());
  }
  static void allow(Channel& channel) { set(channel, options::allowHalfClosure, true); }
  static void noAutoRead(Channel& channel) { set(channel, options::autoRead, false); }
  /// Turns of the loop while nothing happens but one timer.
  std::uint64_t idleTurns() {
    settle();
    const std::uint64_t before = loop().metrics().turns;
    loop().schedule(std::chrono::milliseconds(30), [] {}).future().sync();
    return loop().metrics().turns - before;
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// F14: not allowed, the default
TEST_P(SocketHalfClose, OfThePeerClosesTheChannel) {
  auto [channel, peer] = link(recording(log_));

  peer.send("last");
  peer.shutdownWrite();
  ASSERT_TRUE(log_->await("removed"));

  EXPECT_THAT(log_->events(), ElementsAre("added", "registered", "active", "read 4", "readComplete",
                                          "inactive", "unregistered", "removed"));
  EXPECT_EQ(peer.receiveAll(), "");
  EXPECT_EQ(peer.error(), 0);
}

// F14: what was flushed before the end was seen goes out still
TEST_P(SocketHalfClose, OfThePeerLetsAnswersOut) {
  auto [channel, peer] = link(test::echoing());

  peer.send("question");
  peer.shutdownWrite();

  EXPECT_EQ(peer.receiveAll(), "question");
  EXPECT_EQ(peer.error(), 0);
}

// F14 C138: allowed
TEST_P(SocketHalfClose, IsToldOnceAndWritingGoesOn) {
  auto [channel, peer] = link(recording(log_), allow);

  peer.send("last");
  peer.shutdownWrite();
  ASSERT_TRUE(log_->await("event InputShutdown"));
  EXPECT_LE(idleTurns(), 5U);
  EXPECT_TRUE(channel->isActive());
  EXPECT_TRUE(succeeds(channel->send(ByteBuf::of("answer"))));
  channel->read();
  settle();
  EXPECT_EQ(log_->count("event"), 1U);
  EXPECT_EQ(log_->count("inactive"), 0U);
  EXPECT_TRUE(succeeds(channel->close()));

  EXPECT_EQ(peer.receiveAll(), "answer");
  EXPECT_EQ(peer.error(), 0);
  EXPECT_TRUE(log_->await("inactive"));
}

// F14: both directions end, ours last
TEST_P(SocketHalfClose, OfBothSidesClosesTheChannel) {
  auto [channel, peer] = link(recording(log_), allow);

  peer.shutdownWrite();
  ASSERT_TRUE(log_->await("event InputShutdown"));
  channel->write(ByteBuf::of("bye"));
  channel->flush();
  EXPECT_TRUE(succeeds(channel->shutdownOutput()));

  EXPECT_EQ(peer.receiveAll(), "bye");
  EXPECT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("exception"), 0U);
}

// F14: ours first: reading goes on, writing fails
TEST_P(SocketHalfClose, OfOurSideLeavesReadingOpen) {
  auto [channel, peer] = link(recording(log_));
  const std::string bytes = pattern(1 << 20);
  const Future<void> sent = channel->send(ByteBuf::of(bytes));
  const Future<void> ended = channel->shutdownOutput();

  EXPECT_TRUE(same(peer.receiveAll(), bytes));
  EXPECT_EQ(peer.error(), 0);
  EXPECT_TRUE(succeeds(sent));
  EXPECT_TRUE(succeeds(ended));
  EXPECT_TRUE(succeeds(channel->shutdownOutput())) << "a second time";
  EXPECT_TRUE(test::failsWith(channel->send(ByteBuf::of("late")), Errc::closed));
  peer.send("still");
  ASSERT_TRUE(log_->awaitBytes(5));
  peer.close();
  EXPECT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("exception"), 0U);
}

// F14: a write that was not flushed when the output ends never goes
TEST_P(SocketHalfClose, FailsWhatWasNotFlushed) {
  auto [channel, peer] = link(recording(log_));
  Promise<void> promise(loop());
  const Future<void> waits = promise.future();

  channel->write(ByteBuf::of("kept back"), std::move(promise));
  EXPECT_TRUE(succeeds(channel->shutdownOutput()));

  EXPECT_TRUE(test::failsWith(waits, Errc::closed));
  EXPECT_EQ(peer.receiveAll(), "");
}

// F15: the connection breaks after the peer has ended its stream (TCP)
TEST_P(SocketHalfClose, DetectsABreakAfterTheEndOfInput) {
  if (!isTcp()) return;
  auto [channel, peer] = link(recording(log_), allow);
  peer.shutdownWrite();
  ASSERT_TRUE(log_->await("event InputShutdown"));

  peer.reset();

  ASSERT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("inactive"), 1U);
  EXPECT_LE(idleTurns(), 5U);
}

// F15: the same for the peer's full close on Unix sockets, which is a hang-up
TEST_P(SocketHalfClose, DoesNotSpinAfterAHangUp) {
  auto [channel, peer] = link(recording(log_), allow);
  peer.shutdownWrite();
  ASSERT_TRUE(log_->await("event InputShutdown"));

  peer.close();
  EXPECT_LE(idleTurns(), 5U);

  channel->writeAndFlush(ByteBuf::of("into"));
  channel->writeAndFlush(ByteBuf::of("the void"));
  EXPECT_TRUE(succeeds(channel->close()));
}

// F9: broken while nobody reads and nothing is written
TEST_P(SocketHalfClose, DetectsABreakWhileNobodyReads) {
  auto [channel, peer] = link(recording(log_), noAutoRead);
  EXPECT_TRUE(succeeds(channel->send(ByteBuf::of("unread"))));
  settle();

  if (isTcp()) {
    peer.reset();
  } else {
    peer.close();
  }

  ASSERT_TRUE(log_->await("removed"));
  EXPECT_THAT(log_->events(),
              ElementsAre("added", "registered", "active", StartsWith("exception read"), "inactive",
                          "unregistered", "removed"));
  EXPECT_LE(idleTurns(), 5U);
}

// F9: a hang-up while nobody reads costs no CPU, and is seen by the next read()
TEST_P(SocketHalfClose, LeavesAHangUpToTheNextRead) {
  auto [channel, peer] = link(recording(log_), noAutoRead);
  peer.send("abc");
  peer.close();
  EXPECT_LE(idleTurns(), 5U);
  EXPECT_EQ(log_->count("inactive"), 0U);

  channel->setAutoRead(true);

  ASSERT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->bytes(), "abc");
  EXPECT_EQ(log_->count("exception"), 0U);
}

// F9 F24: a hang-up while reading pauses because the peer did not read
TEST_P(SocketHalfClose, EndsWritesThatWaitWhenThePeerIsGone) {
  auto [channel, peer] = link(recording(log_), {}, 4096);
  const Future<void> sent = channel->send(ByteBuf::of(pattern(8 << 20)));
  settle();
  ASSERT_FALSE(sent.isDone());

  peer.close();

  EXPECT_FALSE(succeeds(sent));
  EXPECT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("inactive"), 1U);
}

// F12: the descriptor lives on elsewhere; the closed channel hears nothing, and the loop sleeps
TEST_P(SocketHalfClose, IgnoresADescriptorThatLivesOnElsewhere) {
  test::Pair pair = test::makePair(isTcp());
  const Fd copy(::dup(pair.ours.get()));
  const ChannelPtr channel = adopt(std::move(pair.ours));
  recording(log_)(*channel);
  EXPECT_TRUE(succeeds(registerChannel(loop(), channel)));

  EXPECT_TRUE(succeeds(channel->close()));
  ASSERT_TRUE(log_->await("removed"));
  const std::size_t before = log_->events().size();
  pair.peer.send("to nobody");

  EXPECT_LE(idleTurns(), 5U);
  EXPECT_EQ(log_->events().size(), before);
}

/// Says a last word when its channel's output is about to end.
struct LastWord : ChannelHandler {
  void userEventTriggered(Context& ctx, Message&& event) override {
    if (event.is<EndingOutput>()) ctx.writeAndFlush(ByteBuf::of("bye"));
    ctx.fireUserEventTriggered(std::move(event));
  }
};

TEST_P(SocketHalfClose, OfOursIsToldToHandlersFirst) {
  auto [channel, peer] = link(
      [this](Channel& ch) {
        ch.pipeline().emplaceLast<LastWord>();
        recording(log_)(ch);
      },
      allow);

  channel->send(ByteBuf::of("text "));
  ASSERT_TRUE(succeeds(channel->shutdownOutput()));
  ASSERT_TRUE(succeeds(channel->shutdownOutput()));

  EXPECT_EQ(peer.receiveAll(), "text bye");
  EXPECT_EQ(log_->count("event"), 1u);
  peer.send("still here");
  ASSERT_TRUE(log_->awaitBytes(10));
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketHalfClose, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
