// SPDX-License-Identifier: Apache-2.0
// Datagram channels: who they talk to, what they read and write, and in which order.
#include "support/fault_script.h"
#include "transport/socket_fixture.h"

#include <cerrno>
#include <numeric>
#include <string>
#include <unistd.h>

namespace millrace {
namespace {

using test::FaultScript;
using test::Seen;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const SocketAddress kLoopback6 = SocketAddress::loopback6(0);

class DatagramsOn : public test::SocketTest {};
INSTANTIATE_TEST_SUITE_P(Engines, DatagramsOn, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

struct Echo : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
};

TEST_P(DatagramsOn, AnswersGoToWhomTheyCameFrom) {
  for (const SocketAddress& any : {test::anyLoopback4(), kLoopback6}) {
    const ChannelPtr server =
        transport().newClient(loop(), kindFor(any, Datagrams::yes).orThrow()).orThrow();
    server->pipeline().emplaceLast<Echo>();
    ASSERT_TRUE(done(registerChannel(loop(), server)).ok());
    ASSERT_TRUE(done(server->bind(any)).ok());
    Seen& one = see();
    Seen& other = see();
    const ChannelPtr first = bound(any, one);
    const ChannelPtr second = bound(any, other);

    first->writeAndFlush(to(server, "from the first"));
    second->writeAndFlush(to(server, "from the second"));
    ASSERT_TRUE(turnUntil([&] { return one.texts.size() + other.texts.size() == 2; }));

    EXPECT_THAT(one.texts, ElementsAre("from the first"));
    EXPECT_THAT(other.texts, ElementsAre("from the second"));
    EXPECT_THAT(one.peers, ElementsAre(server->localAddress()));
    EXPECT_STREQ(server->kind(), "udp");
  }
}

TEST_P(DatagramsOn, ConnectedOnesWriteBytesAndHearTheirPeerOnly) {
  Seen& seen = see();
  Seen& strangers = see();
  Seen& heard = see();
  const ChannelPtr server = bound(test::anyLoopback4(), heard);
  const ChannelPtr stranger = bound(test::anyLoopback4(), strangers);
  const ChannelPtr client = datagrams(ChannelKind::udp4, seen);
  EXPECT_FALSE(client->isActive());
  ASSERT_TRUE(done(client->connect(server->localAddress())).ok());
  EXPECT_TRUE(client->isActive());
  EXPECT_EQ(client->remoteAddress(), server->localAddress());

  ASSERT_TRUE(done(client->send(ByteBuf::of("bytes"))).ok());
  ASSERT_TRUE(done(client->send(Datagram{ByteBuf::of("datagram"), {}})).ok());
  ASSERT_TRUE(done(stranger->send(to(client, "stranger"))).ok());
  ASSERT_TRUE(done(server->send(to(client, "answer"))).ok());
  ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty() && heard.texts.size() == 2; }));
  turn();

  EXPECT_THAT(heard.texts, ElementsAre("bytes", "datagram"));
  EXPECT_THAT(heard.peers, ElementsAre(client->localAddress(), client->localAddress()));
  EXPECT_THAT(seen.texts, ElementsAre("answer"));
  EXPECT_THAT(seen.peers, ElementsAre(SocketAddress()));
  EXPECT_EQ(done(client->connect(stranger->localAddress())).error().errnoValue(), EISCONN);
}

TEST_P(DatagramsOn, HaveNoOutputToEndAndGoOnAfterTheRefusal) {
  Seen& heard = see();
  const ChannelPtr receiver = bound(test::anyLoopback4(), heard);
  const ChannelPtr sender = bound(test::anyLoopback4(), see());

  EXPECT_TRUE(done(sender->shutdownOutput()).error().is(Errc::notSupported));

  ASSERT_TRUE(done(sender->send(to(receiver, "still here"))).ok());
  EXPECT_TRUE(turnUntil([&] { return heard.texts.size() == 1; }));
}

TEST_P(DatagramsOn, DisconnectedOnesKeepTheirPortAndHearEverybody) {
  Seen& seen = see();
  Seen& ignored = see();
  const ChannelPtr peer = bound(test::anyLoopback4(), ignored);
  const ChannelPtr stranger = bound(test::anyLoopback4(), ignored);
  const ChannelPtr fresh = datagrams(ChannelKind::udp4, seen);
  const ChannelPtr first = bound(test::anyLoopback4(), seen);
  for (const ChannelPtr& channel : {first, fresh}) {
    seen = {};
    ASSERT_TRUE(done(channel->connect(peer->localAddress())).ok());
    const std::uint16_t port = channel->localAddress().port();

    ASSERT_TRUE(done(channel->disconnect()).ok());

    EXPECT_EQ(channel->localAddress().port(), port);
    EXPECT_FALSE(channel->remoteAddress());
    EXPECT_TRUE(channel->isActive());
    stranger->send(to(SocketAddress::loopback4(port), "hello"));
    ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty(); }));
    EXPECT_THAT(seen.peers, ElementsAre(stranger->localAddress()));
    EXPECT_TRUE(done(channel->disconnect()).ok());
    EXPECT_TRUE(done(channel->connect(peer->localAddress())).ok());
  }
}

TEST_P(DatagramsOn, BytesToNobodyFail) {
  Seen& seen = see();
  const ChannelPtr channel = bound(test::anyLoopback4(), seen);
  const ChannelPtr fresh = datagrams(ChannelKind::udp4, seen);

  EXPECT_THAT(done(channel->send(ByteBuf::of("x"))).error().message(),
              HasSubstr("write a Datagram with a peer, or connect first"));
  EXPECT_EQ(done(channel->send(Datagram{ByteBuf::of("x"), {}})).error().errnoValue(), EDESTADDRREQ);
  EXPECT_EQ(done(fresh->send(to(channel, "x"))).error().errnoValue(), ENOTCONN);
  EXPECT_THAT(done(channel->send(std::string("x"))).error().message(), HasSubstr("basic_string"));
  channel->writeAndFlush(ByteBuf::of("x"));
  turn();

  EXPECT_EQ(metrics().failedWrites, 1U);
  EXPECT_TRUE(channel->isOpen());
  EXPECT_TRUE(done(channel->send(to(channel, "it goes on"))).ok());
}

// behaviour 3.15: batches keep their order, with one channelReadComplete() each
TEST_P(DatagramsOn, BatchesKeepTheirOrder) {
  Seen& seen = see();
  Seen& ignored = see();
  const ChannelPtr receiver = bound(test::anyLoopback4(), seen);
  const ChannelPtr sender = bound(test::anyLoopback4(), ignored);
  std::vector<std::string> sent;
  const FaultScript calls;

  for (int i = 0; i < 100; ++i) {
    sent.push_back("datagram " + std::to_string(i));
    sender->write(to(receiver, sent.back()));
  }
  sender->flush();
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 100; }));

  EXPECT_EQ(seen.texts, sent);
  EXPECT_EQ(calls.count("sendmmsg"), 2U);   // 64 and the rest
  EXPECT_LE(calls.count("recvmmsg"), 15U);  // it learns how many come
  EXPECT_LE(seen.completes, 8);             // 16 a turn
  EXPECT_EQ(calls.count("sendmsg") + calls.count("send"), 0U);
}

TEST_P(DatagramsOn, BurstsWithinTheSocketsBuffersLoseNothing) {
  constexpr int kCount = 2000;
  Seen& seen = see();
  Seen& ignored = see();
  const ChannelPtr receiver = bound(test::anyLoopback4(), seen);
  const ChannelPtr sender = bound(test::anyLoopback4(), ignored);
  ASSERT_TRUE(set(receiver, options::receiveBuffer, 4 * 1024 * 1024).ok());
  std::vector<Future<void>> outcomes;

  for (int i = 0; i < kCount; ++i) {
    outcomes.push_back(sender->send(to(receiver, std::to_string(i) + std::string(500, '.'))));
  }
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == kCount; }));

  for (int i = 0; i < kCount; ++i) {
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(i)].isSuccess());
    EXPECT_EQ(std::stoi(seen.texts[static_cast<std::size_t>(i)]), i);
  }
}

TEST_P(DatagramsOn, ReadsOnlyWhatIsAskedFor) {
  Seen& seen = see();
  Seen& ignored = see();
  const ChannelPtr receiver = bound(test::anyLoopback4(), seen);
  const ChannelPtr sender = bound(test::anyLoopback4(), ignored);
  receiver->setAutoRead(false);
  ASSERT_TRUE(set(receiver, options::maxMessagesPerRead, 1).ok());
  for (const char* text : {"one", "two", "three"}) sender->send(to(receiver, text));
  turn();
  EXPECT_THAT(seen.texts, IsEmpty());

  receiver->read();
  turn();
  EXPECT_THAT(seen.texts, ElementsAre("one"));
  receiver->setAutoRead(true);
  turn();

  EXPECT_THAT(seen.texts, ElementsAre("one", "two", "three"));
}

TEST_P(DatagramsOn, ShortOnesKeepLittleMemory) {
  Seen& seen = see();
  Seen& ignored = see();
  const ChannelPtr receiver = bound(test::anyLoopback4(), seen);
  const ChannelPtr sender = bound(test::anyLoopback4(), ignored);

  sender->send(to(receiver, std::string(64, 'a')));
  sender->send(to(receiver, std::string(1000, 'b')));
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 2; }));

  EXPECT_THAT(seen.pinned, ElementsAre(64U, 2048U));
}

TEST_P(DatagramsOn, CancelledOnesAreNotSent) {
  Seen& seen = see();
  Seen& ignored = see();
  const ChannelPtr receiver = bound(test::anyLoopback4(), seen);
  const ChannelPtr sender = bound(test::anyLoopback4(), ignored);
  ASSERT_TRUE(done(sender->connect(receiver->localAddress())).ok());
  Promise<void> promise(loop());
  const Future<void> future = promise.future();

  sender->write(ByteBuf::of("first"));
  sender->write(ByteBuf::of("cancelled"), std::move(promise));
  sender->write(ByteBuf::of("last"));
  turn(1);
  EXPECT_TRUE(future.cancel());
  sender->flush();
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 2; }));
  turn();

  EXPECT_THAT(seen.texts, ElementsAre("first", "last"));
}

// behaviour 3.11: back-pressure by the water marks, which count what datagrams keep
TEST_P(DatagramsOn, AFullKernelMakesThemUnwritableUntilItTakesMore) {
  Seen& seen = see();
  Seen& ignored = see();
  const ChannelPtr receiver = bound(test::anyLoopback4(), seen);
  const ChannelPtr sender = bound(test::anyLoopback4(), ignored);
  ASSERT_TRUE(set(sender, options::waterMarks, {4096, 8192}).ok());
  FaultScript script;
  script.fail("sendmmsg", 1, EAGAIN);

  for (int i = 0; i < 20; ++i) sender->write(to(receiver, std::string(1024, 'x')));
  sender->flush();
  turn(1);
  EXPECT_EQ(script.faults(), 1U);
  EXPECT_FALSE(sender->isWritable());
  EXPECT_THAT(seen.texts, IsEmpty());
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 20; }));

  EXPECT_TRUE(sender->isWritable());
}

TEST_P(DatagramsOn, OptionsAreChecked) {
  Seen& seen = see();
  const ChannelPtr channel = bound(test::anyLoopback4(), seen);

  EXPECT_THAT(set(channel, options::datagramSize, 0).error().message(), HasSubstr("1 to 65536"));
  EXPECT_EQ(set(channel, options::datagramSize, 65537).error().errnoValue(), EINVAL);
  EXPECT_TRUE(set(channel, options::datagramSize, 9000).ok());
  EXPECT_EQ(std::get<int>(*channel->lookUpOption(options::datagramSize)), 9000);
  EXPECT_TRUE(set(channel, options::broadcast, true).ok());
  EXPECT_FALSE(set(channel, options::backlog, 1).ok());
}

TEST_P(DatagramsOn, APortInUseFailsToBind) {
  Seen& seen = see();
  const ChannelPtr first = bound(test::anyLoopback4(), seen);
  const ChannelPtr second = datagrams(ChannelKind::udp4, seen);

  const Result<void> taken = done(second->bind(first->localAddress()));

  EXPECT_EQ(taken.error().errnoValue(), EADDRINUSE);
  EXPECT_FALSE(second->isActive());
}

// --- Unix ---

TEST_P(DatagramsOn, UnixOnesHaveNames) {
  Seen& seen = see();
  Seen& other = see();
  const std::string path = testing::TempDir() + "/millrace_dgram_" + std::to_string(::getpid());
  const ChannelPtr byPath = bound(SocketAddress::unixPath(path).orThrow(), seen);
  const ChannelPtr byName = bound(SocketAddress::unixAbstract(path).orThrow(), other);
  EXPECT_STREQ(byPath->kind(), "unix datagram");

  ASSERT_TRUE(done(byName->send(to(byPath, "to the path"))).ok());
  ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty(); }));
  EXPECT_THAT(seen.peers, ElementsAre(byName->localAddress()));
  ASSERT_TRUE(done(byPath->send(Datagram{ByteBuf::of("back"), seen.peers[0]})).ok());
  ASSERT_TRUE(turnUntil([&] { return !other.texts.empty(); }));
  EXPECT_THAT(other.peers, ElementsAre(byPath->localAddress()));

  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  ASSERT_TRUE(done(byPath->close()).ok());
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  // Nobody is there any more: that is this datagram's failure and no other's.
  EXPECT_FALSE(done(byName->send(Datagram{ByteBuf::of("x"), seen.peers[0]})).ok() &&
               done(byName->send(to(SocketAddress::unixPath(path).orThrow(), "x"))).ok());
  EXPECT_TRUE(byName->isOpen());
}

SocketAddress abstractName(const std::string& what) {
  return SocketAddress::unixAbstract("millrace-" + what + std::to_string(::getpid())).orThrow();
}

// A receiver of Unix datagrams holds only a few; senders wait for it, connected or not.
TEST_P(DatagramsOn, UnixSendersWaitForTheReceiver) {
  constexpr int kCount = 1500;
  for (const bool connected : {false, true}) {
    Seen& seen = see();
    Seen& ignored = see();
    const ChannelPtr receiver = bound(abstractName("receiver"), seen);
    const ChannelPtr sender = datagrams(ChannelKind::unixDatagram, ignored);
    ASSERT_TRUE(done(sender->bind(abstractName("sender"))).ok());
    if (connected) {
      ASSERT_TRUE(done(sender->connect(receiver->localAddress())).ok());
    }
    receiver->setAutoRead(false);

    std::vector<std::string> sent;
    for (int i = 0; i < kCount; ++i) {
      sent.push_back(std::to_string(i));
      if (connected) {
        sender->write(ByteBuf::of(sent.back()));
      } else {
        sender->write(to(receiver, sent.back()));
      }
    }
    sender->flush();
    turn();
    receiver->setAutoRead(true);

    ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == kCount; })) << seen.texts.size();
    EXPECT_EQ(seen.texts, sent);
    ASSERT_TRUE(done(sender->close()).ok());
    ASSERT_TRUE(done(receiver->close()).ok());
  }
}

}  // namespace
}  // namespace millrace
