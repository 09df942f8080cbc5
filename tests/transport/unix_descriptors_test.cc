// SPDX-License-Identifier: Apache-2.0
// Open descriptors over Unix streams: they arrive, and none is ever left open by mistake. The
// census around each test counts them.
#include "support/census.h"
#include "support/fault_script.h"
#include "support/sanitized.h"
#include "transport/socket_fixture.h"

#include <millrace/transport/unix_channel.h>

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::FaultScript;
using test::Seen;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class UnixDescriptorsOn : public test::SocketTest {
 protected:
  void SetUp() override {
    std::pair<Fd, Fd> pair = openSocketPair(SocketType::stream).orThrow();
    const SocketAddress nobody = SocketAddress::unixAbstract("peer").orThrow();
    sender = enter(transport().adopt(loop(), std::move(pair.first), nobody), senders);
    receiver = enter(transport().adopt(loop(), std::move(pair.second), nobody), seen);
  }
  static Fd anyFd() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
  static FdMessage with(std::string_view text, std::size_t count) {
    FdMessage made;
    made.bytes = ByteBuf::of(text);
    for (std::size_t i = 0; i < count; ++i) made.fds.push_back(anyFd());
    return made;
  }
  std::size_t openNow() const { return test::Census::take().descriptors.size(); }

  Seen& seen = see();
  Seen& senders = see();
  ChannelPtr sender;
  ChannelPtr receiver;
};
INSTANTIATE_TEST_SUITE_P(Engines, UnixDescriptorsOn, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

TEST_P(UnixDescriptorsOn, ArriveOpenWithTheirBytes) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 4).ok());
  const test::Pipe pipe;

  ASSERT_TRUE(
      done(sender->send(FdMessage::of(ByteBuf::of("the pipe"), Fd(::dup(pipe.writeEnd()))))).ok());
  ASSERT_TRUE(turnUntil([&] { return !seen.withFds.empty(); }));

  EXPECT_EQ(seen.withFds[0].bytes.text(), "the pipe");
  EXPECT_FALSE(seen.withFds[0].truncated);
  ASSERT_THAT(seen.withFds[0].fds, SizeIs(1));
  const int got = seen.withFds[0].fds[0].get();
  EXPECT_NE(::fcntl(got, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::write(got, "through", 7), 7);
  EXPECT_EQ(pipe.take(), "through");
}

// F79: 0, 1, 2 and 253 descriptors
TEST_P(UnixDescriptorsOn, AnyNumberArrives) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 253).ok());
  const std::size_t before = openNow();

  for (const std::size_t count : {0U, 1U, 2U, 253U}) {
    ASSERT_TRUE(done(sender->send(with("some", count))).ok());
    ASSERT_TRUE(turnUntil([&] { return seen.withFds.size() + seen.texts.size() == 1; }));
    if (count == 0) {
      EXPECT_THAT(seen.texts, ElementsAre("some"));
    } else {
      EXPECT_THAT(seen.withFds[0].fds, SizeIs(count));
      EXPECT_EQ(openNow(), before + count);
    }
    seen.withFds.clear();
    seen.texts.clear();
    EXPECT_EQ(openNow(), before);
  }
}

// F79: more than may come; the others are closed
TEST_P(UnixDescriptorsOn, MoreThanMayComeAreClosedAndTold) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 2).ok());
  const std::size_t before = openNow();

  ASSERT_TRUE(done(sender->send(with("five", 5))).ok());
  ASSERT_TRUE(turnUntil([&] { return !seen.withFds.empty(); }));

  EXPECT_TRUE(seen.withFds[0].truncated);
  EXPECT_THAT(seen.withFds[0].fds, SizeIs(2));
  EXPECT_EQ(openNow(), before + 2);
}

// F79: nobody asked for them
TEST_P(UnixDescriptorsOn, AreClosedWhereNobodyAskedForThem) {
  const std::size_t before = openNow();

  ASSERT_TRUE(done(sender->send(with("only the bytes", 3))).ok());
  ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty(); }));

  EXPECT_THAT(seen.texts, ElementsAre("only the bytes"));
  EXPECT_EQ(openNow(), before);
}

// F79: no handler takes the message, or the channel closes before it is read or sent
TEST_P(UnixDescriptorsOn, AreClosedWithTheMessageThatNobodyTakes) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 3).ok());
  receiver->pipeline().remove<test::SeeAll>();
  turn();
  const std::size_t before = openNow();

  ASSERT_TRUE(done(sender->send(with("dropped", 3))).ok());
  ASSERT_TRUE(turnUntil([&] { return metrics().droppedMessages == 1; }));
  EXPECT_EQ(openNow(), before);
  receiver->setAutoRead(false);
  turn();
  ASSERT_TRUE(done(sender->send(with("never read", 3))).ok());
  sender->write(with("never flushed", 3));
  ASSERT_TRUE(done(receiver->close()).ok());
  ASSERT_TRUE(done(sender->close()).ok());

  EXPECT_EQ(openNow(), before - 2);
}

#ifndef MR_TEST_SANITIZED  // a sanitizer needs descriptors of its own
// F79: this process may not open more
TEST_P(UnixDescriptorsOn, AreToldToBeMissingWithoutRoomInTheProcess) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 3).ok());
  receiver->setAutoRead(false);
  turn();
  ASSERT_TRUE(done(sender->send(with("too many", 3))).ok());
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const Fd next = anyFd();
  const rlimit tight{static_cast<rlim_t>(next.get()) + 1, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);

  receiver->read();
  turn();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);

  ASSERT_THAT(seen.withFds, SizeIs(1));
  EXPECT_TRUE(seen.withFds[0].truncated);
  EXPECT_THAT(seen.withFds[0].fds, IsEmpty());
}
#endif

TEST_P(UnixDescriptorsOn, KeepTheirPlaceAmongBytes) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 1).ok());
  receiver->setAutoRead(false);
  turn();

  sender->write(ByteBuf::of("before "));
  sender->write(with("one ", 1));
  sender->write(with("two ", 1));
  sender->write(ByteBuf::of("after"));
  sender->flush();
  turn();
  receiver->setAutoRead(true);
  ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty() && seen.texts.back() == "after"; }));

  ASSERT_THAT(seen.withFds, SizeIs(2));
  EXPECT_THAT(seen.withFds[1].bytes.text(), testing::StartsWith("two "));
  EXPECT_THAT(seen.withFds[1].fds, SizeIs(1));
}

TEST_P(UnixDescriptorsOn, GoWithTheFirstBytesOfAMessageThatDoesNotFit) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 2).ok());
  ASSERT_TRUE(set(receiver, options::receiveSizes, {64, 1024, 1024}).ok());
  const std::string large(1'000'000, 'x');
  const std::size_t before = openNow();

  const Future<void> sent = sender->send(with(large, 2));
  const auto sum = [&] {
    std::size_t bytes = 0;
    for (const std::string& text : seen.texts) bytes += text.size();
    for (const FdMessage& each : seen.withFds) bytes += each.bytes.readableBytes();
    return bytes;
  };
  ASSERT_TRUE(turnUntil([&] { return sum() == large.size(); })) << sum();

  EXPECT_TRUE(done(sent).ok());
  ASSERT_THAT(seen.withFds, SizeIs(1));
  EXPECT_THAT(seen.withFds[0].fds, SizeIs(2));
  EXPECT_EQ(openNow(), before + 2);
}

TEST_P(UnixDescriptorsOn, WithoutAByteOrTooManyAreRefused) {
  const std::size_t before = openNow();

  EXPECT_EQ(done(sender->send(with("", 1))).error().errnoValue(), EINVAL);
  EXPECT_THAT(done(sender->send(with("x", 254))).error().message(), HasSubstr("at most 253"));
  EXPECT_TRUE(done(sender->send(ByteBuf::of("goes on"))).ok());
  ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty(); }));

  EXPECT_THAT(seen.texts, ElementsAre("goes on"));
  EXPECT_EQ(openNow(), before);
}

TEST_P(UnixDescriptorsOn, TooManyUnderWayFailTheMessageOnly) {
  FaultScript script;
  script.fail("sendmsg", 1, ETOOMANYREFS);

  EXPECT_EQ(done(sender->send(with("x", 1))).error().errnoValue(), ETOOMANYREFS);

  EXPECT_TRUE(sender->isOpen());
}

TEST_P(UnixDescriptorsOn, TheOptionIsCheckedAndMayBeSwitchedOff) {
  EXPECT_EQ(set(receiver, options::receiveDescriptors, 254).error().errnoValue(), EINVAL);
  EXPECT_EQ(set(receiver, options::receiveDescriptors, -1).error().errnoValue(), EINVAL);
  const ChannelPtr tcp = enter(transport().newClient(loop(), ChannelKind::tcp4), see());
  EXPECT_EQ(set(tcp, options::receiveDescriptors, 1).error().code(), Errc::notSupported);
  EXPECT_EQ(std::get<int>(*receiver->lookUpOption(options::receiveDescriptors)), 0);
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 1).ok());
  EXPECT_EQ(std::get<int>(*receiver->lookUpOption(options::receiveDescriptors)), 1);
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 0).ok());

  ASSERT_TRUE(done(sender->send(with("bytes", 1))).ok());
  ASSERT_TRUE(turnUntil([&] { return !seen.texts.empty(); }));

  EXPECT_THAT(seen.withFds, IsEmpty());
}

TEST_P(UnixDescriptorsOn, TheEndOfTheStreamIsSeen) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 1).ok());

  ASSERT_TRUE(done(sender->send(with("last words", 1))).ok());
  ASSERT_TRUE(done(sender->close()).ok());
  ASSERT_TRUE(turnUntil([&] { return seen.inactive; }));

  EXPECT_THAT(seen.withFds, SizeIs(1));
  EXPECT_THAT(seen.errors, IsEmpty());
}

// Whatever call fails on the way, no descriptor is left open.
TEST_P(UnixDescriptorsOn, EveryCallMayFail) {
  ASSERT_TRUE(set(receiver, options::receiveDescriptors, 2).ok());
  const std::size_t before = openNow();
  const int faults = test::forEachFault(
      [&](FaultScript&) {
        if (!sender->isOpen() || !receiver->isOpen()) SetUp();
        static_cast<void>(set(receiver, options::receiveDescriptors, 2));
        static_cast<void>(done(sender->send(with("x", 2))));
        turn();
        seen.withFds.clear();
      },
      {"sendmsg", "recvmsg"});

  EXPECT_GE(faults, 2);
  EXPECT_LE(openNow(), before);
}

// --- who is there ---

TEST_P(UnixDescriptorsOn, PeersAreKnown) {
  const Future<PeerCredentials> who = peerCredentials(*sender);
  ASSERT_TRUE(turnUntil([&] { return who.isDone(); }));

  EXPECT_EQ(who.result()->pid, ::getpid());
  EXPECT_EQ(who.result()->uid, ::getuid());
  EXPECT_EQ(who.result()->gid, ::getgid());
}

TEST_P(UnixDescriptorsOn, OthersHaveNoKnownPeer) {
  const ChannelPtr tcp = enter(transport().newClient(loop(), ChannelKind::tcp4), see());
  const Future<PeerCredentials> who = peerCredentials(*tcp);
  ASSERT_TRUE(turnUntil([&] { return who.isDone(); }));
  EXPECT_EQ(who.cause().errnoValue(), ENOTCONN);
  ASSERT_TRUE(done(sender->close()).ok());
  const Future<PeerCredentials> closed = peerCredentials(*sender);
  ASSERT_TRUE(turnUntil([&] { return closed.isDone(); }));
  EXPECT_EQ(closed.cause().code(), Errc::closed);
}

TEST_P(UnixDescriptorsOn, TcpCannotCarryThem) {
  const ChannelPtr tcp = enter(transport().newClient(loop(), ChannelKind::tcp4), see());
  EXPECT_EQ(done(tcp->send(with("x", 1))).error().code(), Errc::notSupported);
}

}  // namespace
}  // namespace millrace
