// SPDX-License-Identifier: Apache-2.0
// Every option of options:: on a socket that has it, read back by getsockopt(2) itself.
#include "support/net.h"

#include <millrace/transport/transports.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::errnoOf;
using test::NetTest;
using test::succeeds;

enum class On { client4, client6, server4, unixClient, other };

/// One option: on what, the value to set, and what the kernel says then (-1: see `atLeast`).
struct Row {
  const OptionKey* key;
  On on;
  OptionValue value;
  int raw;
  int atLeast = 0;
  bool needsRoot = false;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {&options::reuseAddress, On::client4, true, 1},
      {&options::reuseAddress, On::server4, false, 0},
      {&options::reusePort, On::server4, true, 1},
      {&options::keepAlive, On::client4, true, 1},
      {&options::keepAlive, On::unixClient, true, 1},
      {&options::broadcast, On::client4, true, 1},
      {&options::dontRoute, On::client4, true, 1},
      {&options::timestamp, On::client4, true, 1},
      {&options::sendBuffer, On::client4, 16384, -1, 16384},
      {&options::sendBuffer, On::unixClient, 16384, -1, 16384},
      {&options::receiveBuffer, On::client4, 16384, -1, 16384},
      {&options::receiveLowWater, On::client4, 4, 4},
      {&options::priority, On::client4, 3, 3},
      {&options::mark, On::client4, 7, 7, 0, true},
      {&options::busyPoll, On::client4, 50, 50, 0, true},
      {&options::incomingCpu, On::client4, 0, 0},
      {&options::zeroCopy, On::client4, true, 1},
      {&options::tcpNoDelay, On::client4, true, 1},
      {&options::tcpNoDelay, On::client6, true, 1},
      {&options::tcpCork, On::client4, true, 1},
      {&options::tcpQuickAck, On::client4, false, 0},
      {&options::tcpMaxSegment, On::client4, 1000, -1, 500},
      {&options::tcpSynCount, On::client4, 3, 3},
      {&options::tcpNotSentLowWater, On::client4, 12345, 12345},
      {&options::tcpKeepIdle, On::client4, Duration(77s), 77},
      {&options::tcpKeepInterval, On::client4, Duration(11s), 11},
      {&options::tcpKeepCount, On::client4, 5, 5},
      {&options::tcpUserTimeout, On::client4, Duration(1234ms), 1234},
      {&options::tcpUserTimeout, On::client4, Duration(1us), 1},  // rounded up, not to "none"
      {&options::tcpDeferAccept, On::server4, Duration(3s), -1, 1},
      {&options::tcpLinger2, On::client4, Duration(9s), 9},
      {&options::tcpFastOpen, On::server4, 10, 10},
      {&options::tcpFastOpenConnect, On::client4, true, 1},
      {&options::ipTos, On::client4, 0x10, 0x10},
      {&options::ipTtl, On::client4, 33, 33},
      {&options::ipTransparent, On::server4, true, 1, 0, true},
      {&options::ipFreeBind, On::server4, true, 1},
      {&options::ipBindAddressNoPort, On::client4, true, 1},
      {&options::ipReceiveOriginalDestination, On::client4, true, 1},
      {&options::ipMulticastTtl, On::other, 5, 5},
      {&options::ipMulticastLoop, On::client4, false, 0},
      {&options::ipMulticastAll, On::client4, false, 0},
      {&options::ipv6Only, On::client6, true, 1},
      {&options::ipv6TrafficClass, On::client6, 0x20, 0x20},
      {&options::ipv6UnicastHops, On::client6, 44, 44},
      {&options::ipv6MulticastHops, On::other, 4, 4},
      {&options::ipv6MulticastLoop, On::client6, false, 0},
      {&options::udpSegment, On::other, 500, 500},
      {&options::udpGro, On::other, true, 1},
  };
  return all;
}

class SocketOption : public NetTest {
 protected:
  /// A channel, and the descriptor that it is going to have.
  struct Made {
    ChannelPtr channel;
    int fd;
  };
  Made make(On on) {
    const Transport& transport = *transportFor(loop().ioType());
    const int next = ::dup(0);  // the number that comes next
    ::close(next);
    Result<ChannelPtr> made = [&] {
      switch (on) {
        case On::client4:
          return transport.newClient(loop(), ChannelKind::tcp4);
        case On::client6:
          return transport.newClient(loop(), ChannelKind::tcp6);
        case On::server4:
          return transport.newServer(loop(), ChannelKind::tcp4);
        default:
          return transport.newClient(loop(), ChannelKind::unixStream);
      }
    }();
    EXPECT_TRUE(made.ok());
    return {*made, next};
  }
  static int raw(int fd, const OptionKey& key) {
    int value = -1;
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(fd, key.level(), key.number(), &value, &size), 0) << key.name();
    return value;
  }
  static bool isRoot() { return ::geteuid() == 0; }
};

// Must show: a table-driven test of every option
TEST_P(SocketOption, ArrivesInTheKernelAndComesBack) {
  for (const Row& row : rows()) {
    if (row.on == On::other || (row.needsRoot && !isRoot())) continue;
    SCOPED_TRACE(std::string(row.key->name()));
    const Made made = make(row.on);

    const Result<void> set = made.channel->applyOption(*row.key, row.value);
    if (row.needsRoot && !set.ok() && set.error().errnoValue() == EPERM)
      continue;  // in a container
    ASSERT_TRUE(set.ok()) << set.error().message();

    const int got = raw(made.fd, *row.key);
    if (row.raw >= 0) {
      EXPECT_EQ(got, row.raw);
    } else {
      EXPECT_GE(got, row.atLeast);
    }
    const Result<OptionValue> back = made.channel->lookUpOption(*row.key);
    ASSERT_TRUE(back.ok()) << back.error().message();
    EXPECT_EQ(back->index(), row.value.index());
    if (row.raw >= 0 && !std::holds_alternative<Duration>(row.value)) {
      EXPECT_EQ(*back, row.value);
    }
    EXPECT_TRUE(succeeds(made.channel->close()));
  }
}

// SO_LINGER is a struct of two
TEST_P(SocketOption, OfLingeringIsAStruct) {
  const Made made = make(On::client4);
  const auto now = [&] {
    linger value{};
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(made.fd, SOL_SOCKET, SO_LINGER, &value, &size), 0);
    return std::pair(value.l_onoff, value.l_linger);
  };

  EXPECT_TRUE(made.channel->applyOption(options::soLinger, OptionValue(5)).ok());
  EXPECT_EQ(now(), std::pair(1, 5));
  EXPECT_EQ(std::get<int>(*made.channel->lookUpOption(options::soLinger)), 5);
  EXPECT_TRUE(made.channel->applyOption(options::soLinger, OptionValue(-1)).ok());
  EXPECT_EQ(now().first, 0);
  EXPECT_EQ(std::get<int>(*made.channel->lookUpOption(options::soLinger)), -1);
  EXPECT_TRUE(succeeds(made.channel->close()));
}

TEST_P(SocketOption, MayBeAText) {
  const Made made = make(On::client4);

  EXPECT_TRUE(
      made.channel->applyOption(options::tcpCongestion, OptionValue(std::string("reno"))).ok());
  char name[16] = {};
  socklen_t size = sizeof name;
  EXPECT_EQ(::getsockopt(made.fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
  EXPECT_STREQ(name, "reno");
  EXPECT_EQ(std::get<std::string>(*made.channel->lookUpOption(options::tcpCongestion)), "reno");
  const Result<void> wrong =
      made.channel->applyOption(options::tcpCongestion, OptionValue(std::string("no such thing")));
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message(), testing::HasSubstr("tcpCongestion"));
  EXPECT_EQ(std::get<std::string>(*made.channel->lookUpOption(options::bindToDevice)), "");
  const Result<void> bound =
      made.channel->applyOption(options::bindToDevice, OptionValue(std::string("lo")));
  if (bound.ok()) {
    EXPECT_EQ(std::get<std::string>(*made.channel->lookUpOption(options::bindToDevice)), "lo");
  }
  EXPECT_TRUE(succeeds(made.channel->close()));
}

// Those of the channel itself
TEST_P(SocketOption, OfTheChannelIsKeptThere) {
  const ChannelPtr ch = make(On::client4).channel;
  const auto roundTrip = [&](const OptionKey& key, const OptionValue& value) {
    EXPECT_TRUE(ch->applyOption(key, value).ok()) << key.name();
    const Result<OptionValue> back = ch->lookUpOption(key);
    EXPECT_TRUE(back.ok() && *back == value) << key.name();
  };

  roundTrip(options::autoRead, false);
  roundTrip(options::waterMarks, WaterMarks{1000, 2000});
  roundTrip(options::receiveSizes, ReceiveSizes{128, 256, 512});
  roundTrip(options::connectTimeout, Duration(5s));
  roundTrip(options::lingerOnDrain, Duration(1s));
  roundTrip(options::maxMessagesPerRead, 3);
  roundTrip(options::writeSpinCount, 4);
  roundTrip(options::allowHalfClosure, true);
  roundTrip(options::pauseReadsWhenUnwritable, false);
  roundTrip(options::zeroCopyFrom, 65536);

  const auto refused = [&](const OptionKey& key, const OptionValue& value) {
    const Result<void> set = ch->applyOption(key, value);
    EXPECT_FALSE(set.ok()) << key.name();
    EXPECT_EQ(set.ok() ? 0 : set.error().errnoValue(), EINVAL) << key.name();
  };
  refused(options::waterMarks, WaterMarks{2000, 1000});
  refused(options::receiveSizes, ReceiveSizes{0, 0, 0});
  refused(options::receiveSizes, ReceiveSizes{64, 64, 1 << 30});
  refused(options::maxMessagesPerRead, 0);
  refused(options::writeSpinCount, 0);
  EXPECT_TRUE(succeeds(ch->close()));
}

TEST_P(SocketOption, OfAChannelThatIsClosedSaysSo) {
  if (!isTcp()) return;
  const ChannelPtr ch = make(On::client4).channel;
  ASSERT_TRUE(succeeds(ch->close()));

  const Result<void> set = ch->applyOption(options::tcpNoDelay, true);

  ASSERT_FALSE(set.ok());
  EXPECT_TRUE(set.error().is(Errc::closed)) << set.error().message();
}

// Connections come by the thousand.
TEST_P(SocketOption, ThatNoConnectionHasIsWarnedOfOnce) {
  const Server server =
      bootstrap(test::echoing()).childOption(options::backlog, 7).bind(anyAddress()).get();
  for (int i = 0; i < 3; ++i) {
    test::Peer peer = test::Peer::to(server.address());
    peer.send("hello");
    ASSERT_EQ(peer.receive(5), "hello");
  }

  EXPECT_EQ(logs_.count(LogLevel::warn), 1U);
  EXPECT_TRUE(logs_.contains("setOption backlog"));
}

TEST_P(SocketOption, OfAServerIsItsBacklog) {
  const Server server =
      bootstrap(test::echoing()).option(options::backlog, 7).bind(anyAddress()).get();

  EXPECT_EQ(server.channel().option(options::backlog).get(), 7);
  EXPECT_TRUE(succeeds(server.channel().setOption(options::backlog, 9)));
  EXPECT_EQ(server.channel().option(options::backlog).get(), 9);
  if (!isTcp()) return;
  EXPECT_TRUE(server.channel().option(options::reuseAddress).get());
}

// A wrong option is a failure that names it, not silence.
TEST_P(SocketOption, ThatTheSocketDoesNotHaveFailsByName) {
  auto [channel, peer] = link(test::echoing());

  const Future<void> wrong = channel->setOption(options::backlog, 5);
  EXPECT_TRUE(test::failsWith(wrong, Errc::notSupported));
  EXPECT_THAT(wrong.cause().message(), testing::HasSubstr("backlog"));
  if (isTcp()) return;
  const Future<void> tcp = channel->setOption(options::tcpNoDelay, true);
  EXPECT_FALSE(succeeds(tcp));
  EXPECT_THAT(tcp.cause().message(), testing::HasSubstr("tcpNoDelay"));
  EXPECT_FALSE(succeeds(channel->option(options::tcpNoDelay)));
}

// From another thread, on a channel at work
TEST_P(SocketOption, MayBeChangedByAnyThread) {
  auto [channel, peer] = link(test::echoing());

  EXPECT_TRUE(succeeds(channel->setOption(options::keepAlive, true)));
  EXPECT_TRUE(channel->option(options::keepAlive).get());
  EXPECT_TRUE(succeeds(channel->close()));
  EXPECT_FALSE(succeeds(channel->setOption(options::keepAlive, true)));
  EXPECT_FALSE(succeeds(channel->option(options::keepAlive)));
}

// C206: an option that fails fails the whole bind or connect, and leaves nothing behind
TEST_P(SocketOption, ThatFailsEndsTheBootstrapsWork) {
  if (!isTcp()) {
    EXPECT_FALSE(succeeds(
        bootstrap(test::echoing()).option(options::tcpDeferAccept, 3s).bind(anyAddress())));
    return;
  }
  EXPECT_FALSE(
      succeeds(bootstrap(test::echoing()).option(options::ipv6Only, true).bind(anyAddress())));
  EXPECT_FALSE(succeeds(Bootstrap()
                            .group(group())
                            .handler(test::echoing())
                            .option(options::tcpCongestion, "no such thing")
                            .connect(SocketAddress::loopback4(9))));
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketOption, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
