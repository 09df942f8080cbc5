// SPDX-License-Identifier: Apache-2.0
// Listening channels: batches, explicit reads, and their end. What fails is in socket_accept_fault_test.cc.
#include "support/census.h"
#include "support/fault_script.h"
#include "transport/socket_accept_fixture.h"

#include <millrace/channel/channel_metrics.h>
#include <millrace/channel/context.h>
#include <millrace/transport/transports.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>

namespace millrace {
namespace {

using test::Census;
using test::EventLog;
using test::FaultScript;
using test::Held;
using test::LogPtr;
using test::Peer;
using test::succeeds;
using testing::ElementsAre;

class SocketAccept : public test::SocketAcceptTest {};

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
