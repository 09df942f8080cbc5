// SPDX-License-Identifier: Apache-2.0
// TCP streams on io_uring whose operations fail, end early, or do less than was asked for. What
// socket_*_test.cc do by failing recv() and send(), which the ring does not call.
#include "support/ring_script.h"
#include "transport/stream_ring_fixture.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::echoing;
using test::EventLog;
using test::LogPtr;
using test::pattern;
using test::recording;
using test::same;
using test::succeeds;

class StreamRingFault : public test::StreamRingTest {
 protected:
  /// Echoes, and writes down what it sees.
  test::Fill recordingEcho() const {
    return [log = log_](Channel& ch) {
      recording(log)(ch);
      ch.pipeline().emplaceLast<test::EchoHandler>();
    };
  }
  int causeOf(const ChannelPtr& channel) {
    return inLoop([&] { return channel->closeCause().errnoValue(); });
  }

  test::RingScript script_;  // before the loops
};

// --- receiving ---

// F7 F69 F70: no reason to tell anybody, and none to stop
TEST_P(StreamRingFault, OfAReceiveThatBringsNothingIsNotTold) {
  for (const int error : {EAGAIN, EINTR, ECANCELED, ENOBUFS}) {
    const LogPtr log = std::make_shared<EventLog>();
    script_.fail(IORING_OP_RECV, error, 3);

    auto [channel, peer] = link(recording(log));
    peer.send("abc");
    ASSERT_TRUE(log->awaitBytes(3)) << error;
    peer.send("def");
    ASSERT_TRUE(log->awaitBytes(6)) << error;

    EXPECT_EQ(log->bytes(), "abcdef");
    EXPECT_EQ(log->count("exception"), 0U);
    EXPECT_TRUE(channel->isOpen());
    script_.fail(IORING_OP_RECV, error, 0);
  }
  EXPECT_GE(script_.faults(), 4U);
}

// F81: the kernel gives the connection up
TEST_P(StreamRingFault, OfAReceiveClosesWithThatCause) {
  for (const int error : {ETIMEDOUT, ECONNRESET, EHOSTUNREACH, EIO}) {
    const LogPtr log = std::make_shared<EventLog>();
    script_.onlyOnce(IORING_OP_RECV);
    auto [channel, peer] = link(recording(log));
    settle();
    script_.fail(IORING_OP_RECV, error);

    peer.send("last words");

    ASSERT_TRUE(log->await("removed")) << error;
    EXPECT_EQ(log->bytes(), "last words");
    EXPECT_EQ(log->count("exception"), 1U);
    EXPECT_EQ(log->count("inactive"), 1U);
    EXPECT_EQ(causeOf(channel), error);
  }
}

// Somebody closed it behind our back; the number may be another's by now.
TEST_P(StreamRingFault, OfAForeignDescriptorLeavesItOpen) {
  script_.onlyOnce(IORING_OP_RECV);
  auto [channel, peer] = link(recording(log_));
  settle();
  const int number = inLoop([ch = channel] { return ch->descriptor(); });
  script_.fail(IORING_OP_RECV, EBADF);

  peer.send("x");

  ASSERT_TRUE(log_->await("removed"));
  EXPECT_EQ(causeOf(channel), EBADF);
  ASSERT_GE(::fcntl(number, F_GETFD), 0);
  ::close(number);
}

// F70: every receive ends with the first bytes
TEST_P(StreamRingFault, OfReceivesThatDoNotRepeatLosesNothing) {
  script_.onlyOnce(IORING_OP_RECV).onlyOnce(IORING_OP_POLL_ADD);
  auto [channel, peer] = link(echoing());

  EXPECT_TRUE(pingPong(peer, 100));
  EXPECT_TRUE(isOnRing(channel));
  EXPECT_GE(script_.count(IORING_OP_RECV), 100U);
}

// F84: something between us and the kernel lies about what was read
TEST_P(StreamRingFault, OfAReceiveOfMoreThanThereIsRoomForIsCut) {
  auto [channel, peer] = link(recording(log_));
  script_.lie(IORING_OP_RECV, 1 << 20);

  peer.send("hello");

  ASSERT_TRUE(log_->await("readComplete"));
  EXPECT_EQ(log_->byteCount(), inLoop([this] { return ring().receiveSize(); }));
  EXPECT_EQ(log_->bytes().substr(0, 5), "hello");
}

// --- sending ---

// F22: no memory in the kernel is no reason to close
TEST_P(StreamRingFault, OfASendWithoutMemoryIsTriedAgain) {
  for (const int error : {ENOBUFS, ENOMEM}) {
    auto [channel, peer] = link(recording(log_));
    settle();
    const std::uint64_t before = script_.faults();
    script_.fail(IORING_OP_SENDMSG, error, 3);

    const Future<void> sent = channel->send(ByteBuf::of("patience"));

    EXPECT_EQ(peer.receive(8), "patience");
    EXPECT_TRUE(succeeds(sent));
    EXPECT_EQ(script_.faults(), before + 3);
    EXPECT_TRUE(channel->isOpen());
  }
}

// F22: the same for a message that was handed over on its own
TEST_P(StreamRingFault, OfAnAnswerWithoutMemoryIsTriedAgain) {
  for (const int error : {ENOBUFS, ENOMEM}) {
    auto [channel, peer] = link(echoing());
    ASSERT_TRUE(pingPong(peer, 3));
    const std::uint64_t before = script_.faults();
    script_.fail(IORING_OP_SEND, error, 2);

    EXPECT_TRUE(pingPong(peer, 3));

    EXPECT_GT(script_.faults(), before);
    EXPECT_TRUE(isOnRing(channel));
    script_.fail(IORING_OP_SEND, error, 0);
  }
}

// F22 F51: the loop ends meanwhile
TEST_P(StreamRingFault, WithTheLoopTriesAgainWhatTheKernelHadNoMemoryFor) {
  auto [channel, peer] = link(recording(log_));
  settle();
  script_.fail(IORING_OP_SENDMSG, ENOBUFS, 2);
  Future<void> sent;
  inLoop([&, ch = channel] {
    sent = ch->send(ByteBuf::of("answer"));
    ch->flushNow();
    group().shutdownGracefully(0s, 10min);
  });

  EXPECT_EQ(peer.receiveAll(), "answer");
  peer.close();
  EXPECT_TRUE(succeeds(sent));
  EXPECT_GE(script_.faults(), 1U);
  EXPECT_FALSE(group().shutdownGracefully(0s, 10min).get().timedOut);
}

// Ended by nobody who was asked to, or by a signal: it is sent again.
TEST_P(StreamRingFault, OfASendThatWasCancelledIsMadeGood) {
  for (const int error : {ECANCELED, EINTR, EAGAIN}) {
    auto [channel, peer] = link(recordingEcho());
    script_.fail(IORING_OP_SENDMSG, error, 2).fail(IORING_OP_SEND, error, 2);

    EXPECT_TRUE(pingPong(peer, 3));
    const Future<void> sent = channel->send(ByteBuf::of("once"));

    EXPECT_EQ(peer.receive(4), "once");
    EXPECT_TRUE(succeeds(sent));
    script_.fail(IORING_OP_SENDMSG, error, 0).fail(IORING_OP_SEND, error, 0);
  }
}

TEST_P(StreamRingFault, OfASendClosesWithThatCause) {
  for (const int error : {EPIPE, ECONNRESET, ETIMEDOUT}) {
    const LogPtr log = std::make_shared<EventLog>();
    auto [channel, peer] = link(recording(log));
    settle();
    script_.fail(IORING_OP_SENDMSG, error);

    const Future<void> sent = channel->send(ByteBuf::of("lost"));

    EXPECT_EQ(test::errnoOf(sent), error);
    ASSERT_TRUE(log->await("removed"));
    EXPECT_EQ(log->count("inactive"), 1U);
    EXPECT_EQ(causeOf(channel), error);
    EXPECT_EQ(peer.receiveAll(), "");
  }
}

TEST_P(StreamRingFault, OfAnAnswerClosesWithThatCause) {
  for (const int error : {EPIPE, ECONNRESET, EBADF}) {
    auto [channel, peer] = link(recordingEcho());
    ASSERT_TRUE(pingPong(peer, 2));
    const std::size_t ends = log_->count("removed");
    const int number = inLoop([ch = channel] { return ch->descriptor(); });
    script_.fail(IORING_OP_SEND, error).fail(IORING_OP_SENDMSG, error);

    peer.send("question");

    ASSERT_TRUE(log_->await("removed", ends + 1));
    EXPECT_EQ(causeOf(channel), error);
    if (error == EBADF) ::close(number);  // it was left to whoever has it now
    script_.fail(IORING_OP_SEND, error, 0).fail(IORING_OP_SENDMSG, error, 0);
  }
  EXPECT_TRUE(test::eventually([&] { return usedBlocks() == 0; }));
}

// F18: every byte, in order, told once
TEST_P(StreamRingFault, OfSendsThatAreShortLosesNothing) {
  for (const std::size_t most : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    script_.shorten(IORING_OP_SEND, most).shorten(IORING_OP_SENDMSG, most);
    auto [channel, peer] = link(echoing());
    ASSERT_TRUE(pingPong(peer, 5)) << most;
    const std::string bytes = pattern(300 * most, 3);

    Future<void> sent;
    inLoop([&, ch = channel] {
      for (std::size_t i = 0; i < 10; ++i) {
        sent = ch->send(ByteBuf::of(bytes.substr(i * 30 * most, 30 * most)));
        ch->write(ByteBuf::of(""));
      }
    });

    EXPECT_TRUE(same(peer.receive(bytes.size()), bytes)) << most;
    EXPECT_TRUE(succeeds(sent));
    EXPECT_TRUE(pingPong(peer, 5)) << most;
  }
  EXPECT_GT(script_.faults(), 600U);
}

// A part has gone, then it fails: who waits hears the failure.
TEST_P(StreamRingFault, BehindAShortSendIsStillAFailure) {
  script_.shorten(IORING_OP_SENDMSG, 3);
  auto [channel, peer] = link(recording(log_), narrowAndReading, 4096);
  inLoop([ch = channel] {
    ch->send(ByteBuf::of(pattern(100)));
    ch->flushNow();
  });
  peer.receive(100);
  Future<void> sent;
  inLoop([&, ch = channel] {
    // The first piece is in flight when the rule comes, or fails itself.
    sent = ch->send(ByteBuf::of("abcdef"));
    ch->flushNow();
    script_.fail(IORING_OP_SENDMSG, EPIPE, 10);
  });

  EXPECT_EQ(test::errnoOf(sent), EPIPE);
  ASSERT_TRUE(log_->await("removed"));
  const std::string got = peer.receiveAll();
  EXPECT_TRUE(got.empty() || got == "abc") << got;
}

// F84
TEST_P(StreamRingFault, OfASendThatSaysItSentMoreThanThereWasIsCut) {
  auto [channel, peer] = link(echoing());
  ASSERT_TRUE(pingPong(peer, 2));
  script_.lie(IORING_OP_SEND, 1 << 20).lie(IORING_OP_SENDMSG, 1 << 20);

  EXPECT_TRUE(pingPong(peer, 2));
  const Future<void> sent = channel->send(ByteBuf::of("more"));

  EXPECT_EQ(peer.receive(4), "more");
  EXPECT_TRUE(succeeds(sent));
  EXPECT_TRUE(pingPong(peer, 2));
}

// --- closing ---

// F71: what failed has ended, what was begun anew has not
TEST_P(StreamRingFault, AndACloseAtTheSameTimeFreeEverything) {
  for (unsigned round = 0; round < 50; ++round) {
    auto [channel, peer] = link(recordingEcho(), narrowAndReading, 4096);
    const std::uint8_t code = round % 2 == 0 ? IORING_OP_SENDMSG : IORING_OP_RECV;
    const int errors[] = {ENOBUFS, ECANCELED, EPIPE};
    script_.onlyOnce(IORING_OP_RECV);
    peer.send("something");
    script_.fail(code, errors[round % 3], 1 + round % 2);
    channel->send(ByteBuf::of(pattern(100'000)));
    if (round % 4 == 0) settle();

    EXPECT_TRUE(succeeds(channel->close()));
  }
  EXPECT_TRUE(test::eventually([&] {
    settle();
    return usedBlocks() == 0;
  }));
}

INSTANTIATE_TEST_SUITE_P(Rings, StreamRingFault, testing::ValuesIn(test::ringRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
