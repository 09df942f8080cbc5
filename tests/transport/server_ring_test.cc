// SPDX-License-Identifier: Apache-2.0
// Servers on io_uring: the ring takes connections before anybody asks for them, and none is lost, whatever
// happens in between. What socket_accept_test.cc does by failing accept4(), which the ring does not call.
#include "support/fault_script.h"
#include "support/ring_script.h"
#include "transport/server_ring_fixture.h"

#include <millrace/channel/channel_metrics.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <climits>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EventLog;
using test::LogPtr;
using test::once;
using test::Peer;
using test::succeeds;
using testing::ElementsAre;
using testing::StartsWith;

class ServerRing : public test::ServerRingTest {};

TEST_P(ServerRing, TakesConnectionsWithoutACallForEach) {
  const LogPtr children = std::make_shared<EventLog>();
  const Server server = bootstrap([children](Channel& channel) {
                          children->add(channel.remoteAddress().toString());
                          channel.pipeline().emplaceLast<test::EchoHandler>();
                        })
                            .bind(anyAddress())
                            .get();
  const test::FaultScript calls;

  std::vector<std::string> expected;
  for (int i = 0; i < 10; ++i) {
    Peer peer = Peer::to(server.address());
    expected.push_back(sockName(peer.fd()).value().toString());
    EXPECT_TRUE(echoes(peer));
  }

  EXPECT_EQ(children->events(), expected);
  EXPECT_EQ(calls.count("accept4"), 0U);
  EXPECT_TRUE(accepts(server));
}

// C129: the next burst begins behind channelReadComplete(), and a flood goes on by calls
TEST_P(ServerRing, AFloodComesInBurstsToo) {
  const Server server = acting({}).option(options::maxMessagesPerRead, 3).bind(anyAddress()).get();
  const test::FaultScript calls;

  std::vector<Peer> peers = come(server, 40);
  for (Peer& each : peers) ASSERT_TRUE(echoes(each));
  settle();

  std::size_t inBurst = 0;
  for (const std::string& each : sinceActive()) {
    inBurst = each == "message" ? inBurst + 1 : 0;
    EXPECT_LE(inBurst, 3U);
  }
  EXPECT_EQ(log_->count("message"), 40U);
  EXPECT_EQ(sinceActive().back(), "readComplete");
  EXPECT_TRUE(accepts(server)) << "it comes back when the flood is over";
  if (GetParam().name == "UsualRing") {
    EXPECT_GT(calls.count("accept4"), 0U);
  }
}

// Reads that stop in the middle of what the ring has brought
TEST_P(ServerRing, WhoCameBeforeReadsStoppedWaits) {
  const Server server = serveWith(once([](Channel& channel) { channel.setAutoRead(false); }));

  std::vector<Peer> peers = come(server, 6);
  ASSERT_TRUE(log_->await("readComplete"));
  settle();
  EXPECT_THAT(sinceActive(), ElementsAre("message", "readComplete"));
  EXPECT_FALSE(accepts(server));

  server.channel().read();
  ASSERT_TRUE(log_->await("readComplete", 2));
  settle();
  EXPECT_EQ(log_->count("message"), 2U) << "one per read";

  server.channel().setAutoRead(true);
  for (Peer& each : peers) EXPECT_TRUE(echoes(each));
  Peer late = Peer::to(server.address());
  EXPECT_TRUE(echoes(late));
  EXPECT_EQ(log_->count("message"), 7U);
  EXPECT_TRUE(accepts(server));
}

// A handler that asks for all of them in the middle of a burst by calls, which ends for want of descriptors:
// then it pauses, and the ring takes nobody meanwhile.
TEST_P(ServerRing, APauseIsOneForTheRingToo) {
  ManualClock& clock = manualClock();
  const Server server = acting(once([](Channel& channel) { channel.setAutoRead(true); }))
                            .option(options::autoRead, false)
                            .bind(anyAddress())
                            .get();
  test::FaultScript calls;
  calls.fail("accept4", 2, EMFILE);
  std::vector<Peer> peers = come(server, 2);

  server.channel().read();
  ASSERT_TRUE(log_->await("exception accept"));
  settle();
  EXPECT_EQ(log_->count("message"), 1U);
  EXPECT_FALSE(accepts(server));

  clock.advance(1s);
  EXPECT_TRUE(echoes(peers[1]));
  EXPECT_EQ(log_->count("exception accept"), 1U);
  settle();
  EXPECT_TRUE(accepts(server));
}

// Somebody who was reset meanwhile is not what a read() asked for.
TEST_P(ServerRing, WhoLeftWhileHeWaitedCostsNoRead) {
  const Server server = serveWith(once([](Channel& channel) { channel.setAutoRead(false); }));
  std::vector<Peer> peers = come(server, 3);
  ASSERT_TRUE(log_->await("readComplete"));
  settle();
  test::FaultScript calls;
  calls.fail("getpeername", 1, ENOTCONN);

  server.channel().read();

  ASSERT_TRUE(log_->await("message", 2));
  ASSERT_TRUE(log_->await("readComplete", 2));
  const bool waited = calls.count("getpeername") != 0;  // else it is in the kernel's queue
  EXPECT_TRUE(waited || GetParam().name != "UsualRing");
  EXPECT_TRUE(echoes(peers[waited ? 2 : 1]));
  EXPECT_EQ(log_->count("message"), 2U);
}

TEST_P(ServerRing, StopsAndGoesOnAsOftenAsItIsTold) {
  const Server server = serve(test::echoing());
  for (int round = 0; round < 100; ++round) {
    server.channel().setAutoRead(round % 2 != 0);
    if (round % 3 == 0) server.channel().setAutoRead(round % 2 == 0);
    Peer peer = Peer::to(server.address());
    server.channel().setAutoRead(true);
    ASSERT_TRUE(echoes(peer)) << round;
  }
}

// A close hears of nobody any more; those whom the ring has taken are closed, and see that.
TEST_P(ServerRing, WhoCameBeforeACloseSeesTheEnd) {
  for (int round = 0; round < 20; ++round) {
    const Server server = serveWith(once([](Channel& channel) { channel.close(); }));
    std::vector<Peer> peers = come(server, 6);
    EXPECT_TRUE(succeeds(server.closeFuture()));
    for (std::size_t i = 1; i < peers.size(); ++i) EXPECT_EQ(peers[i].receiveAll(), "");
  }
  settle();
  EXPECT_EQ(log_->count("message"), 20U);
}

TEST_P(ServerRing, AClosedOneIsDeaf) {
  const Server server = serveWith({});
  Peer peer = Peer::to(server.address());
  EXPECT_TRUE(echoes(peer));
  EXPECT_TRUE(succeeds(server.channel().close()));
  EXPECT_TRUE(isRefused(server.address()));
}

TEST_P(ServerRing, WhoCameBeforeAGracefulCloseIsServed) {
  const Server server = acting(once([](Channel& channel) { channel.closeGracefully(); }))
                            .option(options::backlog, INT_MAX)
                            .option(options::maxMessagesPerRead, INT_MAX)
                            .bind(anyAddress())
                            .get();
  std::vector<Peer> peers = come(server, 6);
  for (Peer& each : peers) EXPECT_TRUE(echoes(each));
  EXPECT_TRUE(succeeds(server.closeFuture()));
  EXPECT_EQ(log_->count("message"), 6U);
}

// They are in the ring's hands, and the loop ends.
TEST_P(ServerRing, WhoCameBeforeTheLoopEndedSeesTheEnd) {
  Server server = serveWith(once([&all = group()](Channel&) { all.shutdownGracefully(0s, 0s); }));
  std::vector<Peer> peers = come(server, 6);
  for (Peer& each : peers) EXPECT_EQ(each.receiveAll(), "");
  endGroup();
}

TEST_P(ServerRing, WhoCameBeforeAServerLeftItsLoopWaits) {
  const Server server = serveWith(once([](Channel& channel) { channel.deregister(); }));
  std::vector<Peer> peers = come(server, 6);
  ASSERT_TRUE(log_->await("unregistered"));
  settle();
  EXPECT_EQ(log_->count("message"), 1U);

  EXPECT_TRUE(succeeds(registerChannel(loop(), ChannelPtr(&server.channel()))));

  for (Peer& each : peers) EXPECT_TRUE(echoes(each));
  EXPECT_EQ(log_->count("message"), 6U);
}

INSTANTIATE_TEST_SUITE_P(Rings, ServerRing, testing::ValuesIn(test::ringRows()), test::netRowName);

// --- failures ---

class ServerRingFault : public ServerRing {
 protected:
  test::RingScript script_;  // before the loops
};

// F4 F69: what concerns one connection, or nobody, is no reason to tell anybody
TEST_P(ServerRingFault, OfOneConnectionIsNotTold) {
  for (const int error : {EINTR, ECANCELED, ECONNABORTED, EPROTO, EPERM, ETIMEDOUT}) {
    script_.fail(IORING_OP_ACCEPT, error, 3);
    const Server server = serveWith({});
    Peer peer = Peer::to(server.address());
    EXPECT_TRUE(echoes(peer)) << error;
    EXPECT_TRUE(accepts(server));
  }
  EXPECT_EQ(log_->count("exception"), 0U);
  EXPECT_EQ(script_.faults(), 18U);
}

// F1 F2: it pauses, says so once, and comes back to the ring
TEST_P(ServerRingFault, WantOfDescriptorsPauses) {
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    const LogPtr log = std::make_shared<EventLog>();
    const std::uint64_t before = channelMetrics(loop()).acceptPauses;
    script_.fail(IORING_OP_ACCEPT, error);
    const Server server =
        bootstrap(test::echoing()).handler(test::recording(log)).bind(anyAddress()).get();
    std::vector<Peer> peers = come(server, 3);
    for (Peer& each : peers) EXPECT_TRUE(echoes(each)) << error;

    EXPECT_EQ(log->count("exception accept"), 1U);
    EXPECT_EQ(channelMetrics(loop()).acceptPauses - before, 1U);
    EXPECT_TRUE(test::eventually([&] { return accepts(server); }));
  }
}

// It begins anew when it is registered again, and not before.
TEST_P(ServerRingFault, APausedOneThatLeavesItsLoopIsDeaf) {
  ManualClock& clock = manualClock();
  script_.fail(IORING_OP_ACCEPT, EMFILE);
  const Server server = serveWith({});
  Peer peer = Peer::to(server.address());
  ASSERT_TRUE(log_->await("exception accept"));
  EXPECT_TRUE(succeeds(server.channel().deregister()));
  clock.advance(1s);
  settle();
  EXPECT_EQ(log_->count("message"), 0U);

  EXPECT_TRUE(succeeds(registerChannel(loop(), ChannelPtr(&server.channel()))));
  clock.advance(1s);
  EXPECT_TRUE(log_->await("message"));
  server.channel().close();
  peer.close();
}

// A kernel that does not wait on nonblocking sockets
TEST_P(ServerRingFault, WhereTheRingDoesNotWaitItGoesByCalls) {
  script_.fail(IORING_OP_ACCEPT, EAGAIN);
  const Server server = serveWith({});
  std::vector<Peer> peers = come(server, 3);
  for (Peer& each : peers) EXPECT_TRUE(echoes(each));
  EXPECT_FALSE(accepts(server));
  EXPECT_EQ(log_->count("exception"), 0U);
}

// F5: the listener itself is broken
TEST_P(ServerRingFault, OfTheListenerEndsIt) {
  const Server server = serve(test::echoing());
  const Server broken = serveWith({});
  script_.fail(IORING_OP_ACCEPT, EINVAL);
  broken.channel().setAutoRead(false);
  broken.channel().setAutoRead(true);

  EXPECT_TRUE(succeeds(broken.closeFuture()));
  ASSERT_TRUE(log_->await("removed"));
  EXPECT_THAT(sinceActive(),
              ElementsAre(StartsWith("exception accept"), "inactive", "unregistered", "removed"));
  Peer peer = Peer::to(server.address());
  EXPECT_TRUE(echoes(peer)) << "others are not concerned";
}

// A cancel that the kernel carries out later, or finds nothing for, must not keep the port.
TEST_P(ServerRingFault, OfACancelKeepsNoPort) {
  for (int round = 0; round < 6; ++round) {
    const Server server = serveWith({});
    Peer peer = Peer::to(server.address());
    EXPECT_TRUE(echoes(peer));
    const std::uint64_t before = script_.faults();
    EXPECT_TRUE(inLoop([&] {
      Channel& channel = server.channel();
      if (round % 3 == 2) {  // then it polls
        channel.setAutoRead(false);
        channel.read();
      }
      script_.delayCancels(round % 3 == 1 ? 0 : 1);
      if (round % 3 == 1) script_.fail(IORING_OP_ASYNC_CANCEL, ENOENT);
      if (round < 3) {
        channel.close();
      } else {
        channel.closeGracefully();
      }
      return isRefused(server.address());
    })) << round;
    EXPECT_EQ(script_.faults(), before + 1) << round;
  }
}

// Whoever comes between a cancel and the end of the accept has been accepted.
TEST_P(ServerRingFault, OfACancelLosesNobody) {
  const Server server = serveWith({});
  for (int round = 0; round < 10; ++round) {
    script_.delayCancels(round % 2 == 0 ? 1 : 0);
    if (round % 2 != 0) script_.fail(IORING_OP_ASYNC_CANCEL, ENOENT);
    std::vector<Peer> peers;
    inLoop([&] {
      peers.push_back(Peer::to(server.address()));
      server.channel().setAutoRead(false);
      peers.push_back(Peer::to(server.address()));
      server.channel().setAutoRead(true);
      return true;
    });
    for (Peer& each : peers) EXPECT_TRUE(echoes(each)) << round;
  }
  EXPECT_EQ(log_->count("message"), 20U);
}

// F70: the kernel ends what should repeat by itself
TEST_P(ServerRingFault, ARepeatedAcceptThatEndsIsBegunAnew) {
  script_.onlyOnce(IORING_OP_ACCEPT);
  const Server server = serveWith({});
  std::vector<Peer> peers = come(server, 6);
  for (Peer& each : peers) EXPECT_TRUE(echoes(each));
  EXPECT_GE(script_.count(IORING_OP_ACCEPT), 6U);
  EXPECT_EQ(log_->count("exception"), 0U);
}

INSTANTIATE_TEST_SUITE_P(Rings, ServerRingFault, testing::ValuesIn(test::ringRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
