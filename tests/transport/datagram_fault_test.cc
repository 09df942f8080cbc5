// SPDX-License-Identifier: Apache-2.0
// What the network and the kernel do to datagram channels, and that it concerns one datagram only.
#include "support/fault_script.h"
#include "transport/socket_fixture.h"

#include <cerrno>
#include <string>

namespace millrace {
namespace {

using test::FaultScript;
using test::Seen;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class DatagramFaultsOn : public test::SocketTest {
 protected:
  Seen& seen = see();
  Seen& senders = see();
  ChannelPtr receiver = bound(test::anyLoopback4(), seen);
  ChannelPtr sender = bound(test::anyLoopback4(), senders);
};
INSTANTIATE_TEST_SUITE_P(Engines, DatagramFaultsOn, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

// F8: the kernel said readable, and then there was nothing
TEST_P(DatagramFaultsOn, AReadThatFindsNothingIsNoFailure) {
  FaultScript script;
  script.fail("recvmmsg", 1, EAGAIN);

  ASSERT_TRUE(done(sender->send(to(receiver, "lost to a bad checksum"))).ok());
  turn();
  EXPECT_EQ(script.faults(), 1U);
  ASSERT_TRUE(done(sender->send(to(receiver, "next"))).ok());
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 2; }));

  EXPECT_THAT(seen.errors, IsEmpty());
  EXPECT_TRUE(receiver->isOpen());
}

// F78: too long for the buffer
TEST_P(DatagramFaultsOn, TruncatedOnesAreDroppedAndTold) {
  ASSERT_TRUE(set(receiver, options::datagramSize, 100).ok());

  for (const std::size_t size : {100U, 101U, 5000U, 3U}) {
    ASSERT_TRUE(done(sender->send(to(receiver, std::string(size, 'x')))).ok());
  }
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 2; }));

  EXPECT_THAT(seen.texts, ElementsAre(std::string(100, 'x'), "xxx"));
  ASSERT_THAT(seen.truncated, SizeIs(2));
  EXPECT_EQ(seen.truncated[0].size, 101U);
  EXPECT_EQ(seen.truncated[1].size, 5000U);
  EXPECT_EQ(seen.truncated[1].room, 100U);
  EXPECT_EQ(seen.truncated[1].peer, sender->localAddress());
  EXPECT_EQ(metrics().truncatedDatagrams, 2U);
  EXPECT_THAT(seen.errors, IsEmpty());
}

// F78: only truncated ones came: that is no read
TEST_P(DatagramFaultsOn, TruncatedOnesAloneCompleteNothing) {
  ASSERT_TRUE(set(receiver, options::datagramSize, 10).ok());

  ASSERT_TRUE(done(sender->send(to(receiver, std::string(11, 'x')))).ok());
  ASSERT_TRUE(turnUntil([&] { return !seen.truncated.empty(); }));
  turn();

  EXPECT_EQ(seen.completes, 0);
}

// F78: without bytes
TEST_P(DatagramFaultsOn, EmptyOnesAreDelivered) {
  for (const char* text : {"", "after", ""}) {
    ASSERT_TRUE(done(sender->send(to(receiver, text))).ok());
  }
  ASSERT_TRUE(done(sender->connect(receiver->localAddress())).ok());
  ASSERT_TRUE(done(sender->send(ByteBuf())).ok());
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 4; }));

  EXPECT_THAT(seen.texts, ElementsAre("", "after", "", ""));
}

// F78: nobody listens any more, and ICMP says so
TEST_P(DatagramFaultsOn, ARefusalIsToldAndTheChannelStays) {
  ASSERT_TRUE(done(sender->connect(receiver->localAddress())).ok());
  const SocketAddress gone = receiver->localAddress();
  ASSERT_TRUE(done(receiver->close()).ok());

  ASSERT_TRUE(done(sender->send(ByteBuf::of("to nobody"))).ok());
  ASSERT_TRUE(turnUntil([&] { return !senders.errors.empty(); }));

  EXPECT_THAT(senders.errors, ElementsAre("read " + gone.toString() + ": Connection refused"));
  EXPECT_TRUE(sender->isOpen());
  Seen& later = see();
  const ChannelPtr again = bound(gone, later);
  ASSERT_TRUE(done(sender->send(ByteBuf::of("to somebody"))).ok());
  ASSERT_TRUE(turnUntil([&] { return !later.texts.empty(); }));
}

// F78: the same while nobody reads
TEST_P(DatagramFaultsOn, ARefusalDoesNotWaitForAReader) {
  ASSERT_TRUE(done(sender->connect(receiver->localAddress())).ok());
  sender->setAutoRead(false);
  ASSERT_TRUE(done(receiver->close()).ok());

  ASSERT_TRUE(done(sender->send(ByteBuf::of("to nobody"))).ok());
  ASSERT_TRUE(turnUntil([&] { return !senders.errors.empty(); }));
  turn();

  EXPECT_THAT(senders.errors, SizeIs(1));
  EXPECT_TRUE(sender->isOpen());
}

// F78: the next send meets the refusal of the one before; it goes all the same
TEST_P(DatagramFaultsOn, ARefusalMetBySendingFailsNoOther) {
  ASSERT_TRUE(done(sender->connect(receiver->localAddress())).ok());
  FaultScript script;
  script.fail("sendmmsg", 1, ECONNREFUSED);

  EXPECT_TRUE(done(sender->send(ByteBuf::of("goes"))).ok());
  EXPECT_THAT(senders.errors, ElementsAre(HasSubstr("Connection refused")));
  script.fail("sendmmsg", script.count("sendmmsg") + 1, ECONNREFUSED, 2);
  EXPECT_EQ(done(sender->send(ByteBuf::of("fails"))).error().errnoValue(), ECONNREFUSED);
  ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty(); }));
  turn();

  EXPECT_THAT(seen.texts, ElementsAre("goes"));
}

// F78: the kernel's own refusals, in the middle of a batch
TEST_P(DatagramFaultsOn, RefusalsDoNotStopABatch) {
  ASSERT_TRUE(done(sender->connect(receiver->localAddress())).ok());
  ASSERT_TRUE(done(receiver->close()).ok());
  std::vector<Future<void>> outcomes;

  for (int i = 0; i < 5; ++i) {
    Promise<void> promise(loop());
    outcomes.push_back(promise.future());
    sender->write(ByteBuf::of("to nobody"), std::move(promise));
  }
  sender->flush();
  for (const Future<void>& each : outcomes) EXPECT_TRUE(done(each).ok());
  ASSERT_TRUE(turnUntil([&] { return !senders.errors.empty(); }));

  EXPECT_TRUE(sender->isOpen());
}

TEST_P(DatagramFaultsOn, OneThatIsTooLongFailsAlone) {
  const Future<void> first = sender->send(to(receiver, "before"));
  const Future<void> tooLong = sender->send(to(receiver, std::string(70'000, 'x')));
  const Future<void> last = sender->send(to(receiver, "after"));
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 2; }));

  EXPECT_TRUE(first.isSuccess());
  EXPECT_EQ(tooLong.cause().errnoValue(), EMSGSIZE);
  EXPECT_TRUE(last.isSuccess());
  EXPECT_THAT(seen.texts, ElementsAre("before", "after"));
  EXPECT_THAT(senders.errors, IsEmpty());
}

TEST_P(DatagramFaultsOn, OneThatTheKernelHasNoMemoryForFailsAlone) {
  FaultScript script;
  script.fail("sendmmsg", 1, ENOBUFS);

  sender->write(to(receiver, "lost"));
  sender->write(to(receiver, "sent"));
  sender->flush();
  ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty(); }));

  EXPECT_THAT(seen.texts, ElementsAre("sent"));
  EXPECT_EQ(metrics().failedWrites, 1U);
}

TEST_P(DatagramFaultsOn, ABrokenSocketClosesThem) {
  FaultScript script;
  script.fail("sendmmsg", 1, EBADF).fail("recvmmsg", 1, EBADF);

  EXPECT_FALSE(done(sender->send(to(receiver, "x"))).ok());
  EXPECT_FALSE(sender->isOpen());
  Seen& ignored = see();
  const ChannelPtr other = bound(test::anyLoopback4(), ignored);
  ASSERT_TRUE(done(other->send(to(receiver, "y"))).ok());
  ASSERT_TRUE(turnUntil([&] { return !receiver->isOpen(); }));

  EXPECT_THAT(seen.errors, ElementsAre(HasSubstr("Bad file descriptor")));
}

TEST_P(DatagramFaultsOn, AHandlerThatClosesInABatchSeesNoMoreOfIt) {
  struct CloseAtFirst : ChannelHandler {
    explicit CloseAtFirst(int& count) : count_(count) {}
    void channelRead(Context& ctx, Message&& msg) override {
      msg.reset();
      ++count_;
      ctx.close();
    }
    int& count_;
  };
  int count = 0;
  const ChannelPtr closing = transport().newClient(loop(), ChannelKind::udp4).orThrow();
  closing->pipeline().emplaceLast<CloseAtFirst>(count);
  ASSERT_TRUE(done(registerChannel(loop(), closing)).ok());
  ASSERT_TRUE(done(closing->bind(test::anyLoopback4())).ok());

  for (int i = 0; i < 10; ++i) sender->write(to(closing, "x"));
  sender->flush();
  ASSERT_TRUE(turnUntil([&] { return !closing->isOpen(); }));

  EXPECT_EQ(count, 1);
}

// Whatever call fails while a channel is made, bound and used, nothing is left behind.
TEST_P(DatagramFaultsOn, EveryCallMayFail) {
  const int faults = test::forEachFault(
      [&](FaultScript&) {
        Result<ChannelPtr> made = transport().newClient(loop(), ChannelKind::udp4);
        if (!made) return;
        const ChannelPtr channel = std::move(*made);
        Seen& got = see();
        channel->pipeline().emplaceLast<test::SeeAll>(got);
        const bool stands = done(registerChannel(loop(), channel)).ok() &&
                            done(channel->bind(test::anyLoopback4())).ok() &&
                            done(channel->connect(receiver->localAddress())).ok();
        if (stands) {
          static_cast<void>(done(channel->send(ByteBuf::of("x"))));
          static_cast<void>(done(channel->disconnect()));
        }
        static_cast<void>(done(channel->close()));
        EXPECT_FALSE(channel->isOpen());
      },
      {"socket", "epoll_ctl", "bind", "connect", "sendmmsg", "recvmmsg", "getsockname"});

  EXPECT_GE(faults, 4);
}

}  // namespace
}  // namespace millrace
