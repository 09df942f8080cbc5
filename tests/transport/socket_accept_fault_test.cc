// SPDX-License-Identifier: Apache-2.0
// Listening channels: what one connection's failure may cost, want of descriptors, and a broken listener.
#include "support/census.h"
#include "support/fault_script.h"
#include "support/sanitized.h"
#include "transport/socket_accept_fixture.h"

#include <millrace/base/manual_clock.h>
#include <millrace/channel/channel_metrics.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::byCalls;
using test::Census;
using test::EventLog;
using test::FaultScript;
using test::Held;
using test::LogPtr;
using test::Peer;
using test::succeeds;
using testing::ElementsAre;
using testing::StartsWith;

class SocketAcceptFault : public test::SocketAcceptTest {};

// C131 F1 F2: those taken before are delivered, then it is told; the listener stays
TEST_P(SocketAcceptFault, PausesWithoutDescriptorsAndGoesOn) {
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    SCOPED_TRACE(error);
    const LogPtr log = std::make_shared<EventLog>();
    const std::uint64_t before = channelMetrics(loop()).acceptPauses;
    const Server server = bootstrap(test::echoing()).handler(byCalls(log)).bind(anyAddress()).get();
    std::vector<Peer> peers;
    FaultScript script;
    {
      const Held held(loop());
      for (int i = 0; i < 4; ++i) peers.push_back(Peer::to(server.address()));
      script.fail("accept4", 3, error, 2);
    }
    for (Peer& each : peers) EXPECT_TRUE(echoes(each));
    settle();

    std::vector<std::string> events = log->events();
    events.erase(events.begin(), std::find(events.begin(), events.end(), "active") + 1);
    EXPECT_THAT(events,
                ElementsAre("message", "message", "readComplete", StartsWith("exception accept"),
                            "message", "message", "readComplete"));
    EXPECT_TRUE(server.channel().isOpen());
    EXPECT_EQ(channelMetrics(loop()).acceptPauses - before, 1U);
  }
  EXPECT_EQ(warnings(), 4U);
  EXPECT_FALSE(logs_.contains("end of the pipeline"));  // said once
}

// F1: there are no descriptors for ten seconds; time is the test's own
TEST_P(SocketAcceptFault, WaitsForDescriptorsQuietlyAndResumesWithinASecond) {
  ManualClock clock;
  EventLoopGroup timed(GetParam().options().loops(1).clock(clock));
  EventLoop& only = *timed.begin();
  const Server server = ServerBootstrap()
                            .group(timed)
                            .childHandler(test::echoing())
                            .handler(byCalls(log_))
                            .bind(anyAddress())
                            .get();
  const auto pass = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      clock.advance(10ms);
      only.submit([] {}).sync();
    }
  };
  FaultScript script;
  script.failAll("accept4", EMFILE);
  std::vector<Peer> peers;
  for (int i = 0; i < 5; ++i) peers.push_back(Peer::to(server.address()));
  ASSERT_TRUE(log_->await("exception"));

  const std::uint64_t turns = only.metrics().turns;
  pass(1000);
  const std::uint64_t spent = only.metrics().turns - turns;
  const std::uint64_t tries = script.count("accept4");
  script.fail("accept4", 1, EMFILE);  // no more
  pass(100);

  EXPECT_EQ(log_->count("message"), 5U);
  EXPECT_EQ(log_->count("exception"), 1U);
  EXPECT_EQ(warnings(), 1U);
  EXPECT_TRUE(logs_.contains("accepting goes on"));
  EXPECT_LE(tries, 40U);
  // What each step of this test costs (two turns at the most), and the tries.
  EXPECT_LE(spent, 2 * 1000U + 100U);
  for (Peer& each : peers) {
    EXPECT_TRUE(echoes(each));
    each.close();
  }
  const Future<DrainReport> drained = server.drain(10s);
  while (!drained.await(Deadline::after(1ms))) clock.advance(100ms);
  timed.shutdownGracefully();
  while (!timed.terminationFuture().await(Deadline::after(1ms))) clock.advance(100ms);
}

// F1: a server that has left its loop is deaf, whatever was planned before
TEST_P(SocketAcceptFault, APauseDoesNotEndForOneThatHasLeftItsLoop) {
  ManualClock& clock = manualClock();
  FaultScript script;
  script.fail("accept4", 1, EMFILE);
  const Server server = bootstrap(test::echoing()).handler(byCalls(log_)).bind(anyAddress()).get();
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

#ifndef MR_TEST_SANITIZED  // a sanitizer needs descriptors of its own
// F1 F3: the process has really none left. There is no reserve that could be lost.
TEST_P(SocketAcceptFault, SurvivesAProcessWithoutDescriptors) {
  const Server server = serveRecorded();
  const SocketAddress address = server.address();
  std::vector<Fd> sockets;
  for (int i = 0; i < 5; ++i) {
    sockets.emplace_back(::socket(address.domain(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{static_cast<rlim_t>(sockets.back().get()) + 1, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::vector<Fd> fillers;  // the numbers below the limit
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) fillers.emplace_back(fd);
  // The kernel keeps the limit of the moment for a ring that accepts: it has to begin anew.
  server.channel().setAutoRead(false);
  server.channel().setAutoRead(true);

  for (const Fd& each : sockets) {
    EXPECT_EQ(::connect(each.get(), address.raw(), address.rawSize()), 0);
  }
  EXPECT_TRUE(log_->await("exception"));
  EXPECT_TRUE(server.channel().isOpen());
  fillers.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);

  for (Fd& each : sockets) {
    Peer peer(std::move(each));
    EXPECT_TRUE(echoes(peer));
  }
  EXPECT_EQ(log_->count("exception"), 1U);
  EXPECT_EQ(warnings(), 1U);
}
#endif

// F4: the failure of one connection that was about to come concerns nobody else
TEST_P(SocketAcceptFault, IgnoresConnectionsThatFailBeforeTheyAreTaken) {
  for (const int error : {ECONNABORTED, EPROTO, EPERM, ENETDOWN, EHOSTUNREACH, EOPNOTSUPP,
                          ENETUNREACH, ENOPROTOOPT, EHOSTDOWN, ENONET, ETIMEDOUT}) {
    SCOPED_TRACE(error);
    const LogPtr log = std::make_shared<EventLog>();
    const Server server = bootstrap(test::echoing()).handler(byCalls(log)).bind(anyAddress()).get();
    FaultScript script;
    script.fail("accept4", 1, error, 3);

    Peer peer = Peer::to(server.address());

    EXPECT_TRUE(echoes(peer));
    EXPECT_EQ(log->count("exception"), 0U);
    EXPECT_EQ(log->count("message"), 1U);
  }
}

// F4: a flood of them leaves the loop free for others
TEST_P(SocketAcceptFault, AFloodOfFailuresDoesNotHoldTheLoop) {
  const Server server = bootstrap(test::echoing()).handler(byCalls(log_)).bind(anyAddress()).get();
  FaultScript script;
  script.failAll("accept4", ECONNABORTED);
  Peer peer = Peer::to(server.address());
  ASSERT_TRUE(test::eventually([&] { return script.count("accept4") > 100; }));

  inLoop([] {});
  script.fail("accept4", 1, ECONNABORTED, 1);

  EXPECT_TRUE(echoes(peer));
}

// F4: connections that were reset while they waited (TCP)
TEST_P(SocketAcceptFault, TakesWhatWasResetMeanwhileInItsStride) {
  const Server server = serveRecorded();
  {
    const Held held(loop());
    for (int i = 0; i < 5; ++i) {
      Peer gone = Peer::to(server.address());
      gone.send("x");
      gone.reset();
    }
  }
  Peer peer = Peer::to(server.address());

  EXPECT_TRUE(echoes(peer));
  EXPECT_TRUE(server.channel().isOpen());
}

// C131a F5: the listener itself is broken
TEST_P(SocketAcceptFault, EndsOnceWhenTheListenerIsBroken) {
  for (const int error : {EINVAL, EBADF, ENOTSOCK}) {
    SCOPED_TRACE(error);
    const LogPtr log = std::make_shared<EventLog>();
    Server server = bootstrap(test::echoing()).handler(byCalls(log)).bind(anyAddress()).get();
    FaultScript script;
    // Not really closed then, but disowned.
    Fd leftover;
    if (error != EINVAL) leftover = Fd(::dup(0));
    const Census before = Census::take();
    script.fail("accept4", 1, error);

    Peer peer = Peer::to(server.address());
    EXPECT_TRUE(succeeds(server.closeFuture()));
    ASSERT_TRUE(log->await("removed"));

    std::vector<std::string> events = log->events();
    events.erase(events.begin(), std::find(events.begin(), events.end(), "active") + 1);
    EXPECT_THAT(events,
                ElementsAre(StartsWith("exception accept"), "inactive", "unregistered", "removed"));
    if (error == EINVAL) continue;
    // What was disowned is this test's to close.
    for (const auto& [fd, what] : before.descriptors) {
      int listening = 0;
      socklen_t size = sizeof listening;
      const int number = static_cast<int>(fd);
      if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 &&
          listening == 1) {
        ::close(number);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketAcceptFault, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
