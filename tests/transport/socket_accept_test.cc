// SPDX-License-Identifier: Apache-2.0
// Listening channels: batches, what one connection's failure may cost, and want of descriptors.
#include "support/census.h"
#include "support/fault_script.h"
#include "support/loop_test.h"
#include "support/net.h"
#include "support/sanitized.h"

#include <millrace/base/manual_clock.h>
#include <millrace/channel/channel_metrics.h>
#include <millrace/channel/context.h>
#include <millrace/transport/transports.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Census;
using test::EventLog;
using test::FaultScript;
using test::Held;
using test::LogPtr;
using test::NetTest;
using test::Peer;
using test::recording;
using test::succeeds;
using testing::ElementsAre;
using testing::StartsWith;

/// Has a word in reading, so that the listener accepts by calls of its own on every engine.
struct ReadingHandler : test::RecordingHandler {
  using RecordingHandler::RecordingHandler;
  void read(Context& ctx) override { ctx.read(); }
};
test::Fill byCalls(const LogPtr& log) {
  return [log](Channel& channel) { channel.pipeline().emplaceLast<ReadingHandler>(log); };
}

class SocketAccept : public NetTest {
 protected:
  /// An echo server whose listening channel is recorded.
  Server serveRecorded(int perBatch = 16) {
    return bootstrap(test::echoing())
        .handler(recording(log_))
        .option(options::maxMessagesPerRead, perBatch)
        .bind(anyAddress())
        .get();
  }
  /// What the listening channel was told after it became active.
  std::vector<std::string> since(std::string_view first) const {
    std::vector<std::string> all = log_->events();
    const auto at = std::find(all.begin(), all.end(), first);
    if (at != all.end()) all.erase(all.begin(), at + 1);
    return all;
  }
  static bool echoes(Peer& peer) {
    peer.send("ping");
    return peer.receive(4) == "ping";
  }
  std::size_t warnings() const {
    std::size_t count = 0;
    for (const auto& record : logs_.records()) {
      count += record.text.find("accepting pauses") != std::string::npos ? 1U : 0U;
    }
    return count;
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// C129: what waits comes in batches, each with one readComplete
TEST_P(SocketAccept, TakesConnectionsInBatches) {
  const Server server = serveRecorded(5);
  std::vector<Peer> peers;
  {
    const Held held(loop());
    for (int i = 0; i < 12; ++i) peers.push_back(Peer::to(server.address()));
  }
  for (Peer& each : peers) EXPECT_TRUE(echoes(each));

  EXPECT_THAT(since("active"),
              ElementsAre("message", "message", "message", "message", "message", "readComplete",
                          "message", "message", "message", "message", "message", "readComplete",
                          "message", "message", "readComplete"));
}

/// Closes its channel gracefully when somebody has come.
struct ClosingHandler : test::RecordingHandler {
  ClosingHandler(LogPtr log, bool atTheEnd)
      : RecordingHandler(std::move(log)), atTheEnd_(atTheEnd) {}
  void channelRead(Context& ctx, Message&& msg) override {
    RecordingHandler::channelRead(ctx, std::move(msg));
    if (!atTheEnd_) static_cast<void>(ctx.channel().closeGracefully());
  }
  void channelReadComplete(Context& ctx) override {
    RecordingHandler::channelReadComplete(ctx);
    if (atTheEnd_) static_cast<void>(ctx.channel().closeGracefully());
  }
  const bool atTheEnd_;
};

// C129: those who wait in the queue then are part of the burst, or one of their own
TEST_P(SocketAccept, AGracefulCloseCompletesTheBurst) {
  for (const bool atTheEnd : {false, true}) {
    const LogPtr log = std::make_shared<EventLog>();
    const Server server = bootstrap(test::echoing())
                              .option(options::maxMessagesPerRead, 3)
                              .handler([log, atTheEnd](Channel& channel) {
                                channel.pipeline().emplaceLast<ClosingHandler>(log, atTheEnd);
                              })
                              .bind(anyAddress())
                              .get();
    std::vector<Peer> peers;
    {
      const Held held(loop());
      for (int i = 0; i < 5; ++i) peers.push_back(Peer::to(server.address()));
    }
    for (Peer& each : peers) EXPECT_TRUE(echoes(each));
    EXPECT_TRUE(succeeds(server.closeFuture()));
    ASSERT_TRUE(log->await("removed"));

    std::vector<std::string> events = log->events();
    events.erase(events.begin(), std::find(events.begin(), events.end(), "message"));
    const std::vector<std::string> inTheMiddle{"message", "event",   "message",
                                               "message", "message", "message"};
    const std::vector<std::string> behind{"message", "message", "message", "readComplete",
                                          "event",   "message", "message"};
    std::vector<std::string> expected = atTheEnd ? behind : inTheMiddle;
    expected.insert(expected.end(), {"readComplete", "inactive", "unregistered", "removed"});
    EXPECT_EQ(events, expected);
  }
}

/// Cannot make channels of connections.
class NoChildren final : public Transport {
 public:
  explicit NoChildren(const Transport& real) : real_(real) {}
  Result<ChannelPtr> newServer(EventLoop& loop, ChannelKind kind) const override {
    return real_.newServer(loop, kind);
  }
  Result<ChannelPtr> newClient(EventLoop& loop, ChannelKind kind) const override {
    return real_.newClient(loop, kind);
  }
  Result<ChannelPtr> adopt(EventLoop&, AcceptedSocket&&) const override {
    return Error::fromErrno(ENOMEM, "adopt");
  }

 private:
  const Transport& real_;
};

// C130
TEST_P(SocketAccept, ClosesAConnectionThatCannotBecomeAChannel) {
  const NoChildren broken(*transportFor(loop().ioType()));
  const Server server = bootstrap(test::echoing())
                            .transport(*transportFor(loop().ioType()), broken)
                            .bind(anyAddress())
                            .get();

  for (int i = 0; i < 3; ++i) {
    Peer peer = Peer::to(server.address());
    EXPECT_EQ(peer.receiveAll(), "");
  }

  EXPECT_TRUE(server.channel().isOpen());
  EXPECT_TRUE(logs_.awaitRecord("is closed: adopt"));
}

// C131 F1 F2: those taken before are delivered, then it is told; the listener stays
TEST_P(SocketAccept, PausesWithoutDescriptorsAndGoesOn) {
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
TEST_P(SocketAccept, WaitsForDescriptorsQuietlyAndResumesWithinASecond) {
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
TEST_P(SocketAccept, APauseDoesNotEndForOneThatHasLeftItsLoop) {
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
TEST_P(SocketAccept, SurvivesAProcessWithoutDescriptors) {
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
TEST_P(SocketAccept, IgnoresConnectionsThatFailBeforeTheyAreTaken) {
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
TEST_P(SocketAccept, AFloodOfFailuresDoesNotHoldTheLoop) {
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
TEST_P(SocketAccept, TakesWhatWasResetMeanwhileInItsStride) {
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
TEST_P(SocketAccept, EndsOnceWhenTheListenerIsBroken) {
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

// F74: nothing that a server or its connections open is inherited by another program
TEST_P(SocketAccept, OpensNothingThatAnotherProgramWouldInherit) {
  const Census before = Census::take();
  const Server server = serveRecorded();
  Peer peer = Peer::to(server.address());
  ASSERT_TRUE(echoes(peer));

  std::size_t opened = 0;
  for (const auto& [number, what] : Census::take().descriptors) {
    if (before.descriptors.contains(number)) continue;
    ++opened;
    EXPECT_NE(::fcntl(static_cast<int>(number), F_GETFD) & FD_CLOEXEC, 0) << what;
  }
  EXPECT_GE(opened, 3U);
}

// F63: connections that come and go at once leave nothing behind
TEST_P(SocketAccept, SurvivesConnectionsThatComeAndGo) {
  const Server server = serveRecorded();
  Peer steady = Peer::to(server.address());
  for (int i = 0; i < 300; ++i) {
    Peer brief = Peer::to(server.address());
    if (i % 3 == 0) brief.send("x");
    if (i % 3 == 1) brief.reset();
  }

  EXPECT_TRUE(echoes(steady));
  // A ring may have taken one that was reset before anybody could tell whose it was.
  const std::uint64_t least = isByRing() ? 202 : 302;
  EXPECT_TRUE(test::eventually([&] {
    const ChannelMetrics now = channelMetrics(loop());
    return now.registered >= least && now.closed == now.registered - 2;
  }));
  EXPECT_LE(channelMetrics(loop()).registered, 302U);
}

// C129: with auto read off the listener takes one connection per read()
TEST_P(SocketAccept, WithoutAutoReadTakesNobodyUnasked) {
  const Server server = serveRecorded();
  EXPECT_TRUE(succeeds(server.channel().setOption(options::autoRead, false)));
  std::vector<Peer> peers;
  for (int i = 0; i < 3; ++i) peers.push_back(Peer::to(server.address()));
  settle();
  EXPECT_EQ(log_->count("message"), 0U);

  server.channel().read();
  ASSERT_TRUE(log_->await("readComplete"));
  settle();
  EXPECT_EQ(log_->count("message"), 1U);
  server.channel().setAutoRead(true);

  EXPECT_TRUE(log_->await("message", 3));
}

// F4: one that failed before it was taken is not what a read() asked for
TEST_P(SocketAccept, WithoutAutoReadAReadIsForAConnectionThatCame) {
  const Server server = serveRecorded();
  EXPECT_TRUE(succeeds(server.channel().setOption(options::autoRead, false)));
  FaultScript script;
  script.fail("accept4", 1, ECONNABORTED);
  Peer peer = Peer::to(server.address());

  server.channel().read();

  EXPECT_TRUE(echoes(peer));
  EXPECT_EQ(log_->count("message"), 1U);
  EXPECT_EQ(log_->count("readComplete"), 1U);
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketAccept, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
