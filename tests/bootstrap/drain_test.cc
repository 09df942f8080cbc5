// SPDX-License-Identifier: Apache-2.0
// How servers end: drained, destroyed, together with their groups; every answer that was written
// arrives whole.
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/base/manual_clock.h>
#include <millrace/channel/channel_events.h>
#include <millrace/channel/context.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EventLog;
using test::LogPtr;
using test::NetTest;
using test::pattern;
using test::Peer;
using test::recording;
using test::same;
using test::succeeds;

/// Answers each request, one byte n, by n * 1000 bytes.
struct Answering : ChannelHandler {
  explicit Answering(LogPtr l) : log(std::move(l)) {}
  void channelRead(Context& ctx, Message&& msg) override {
    ByteBuf request = msg.take<ByteBuf>();
    while (request.isReadable()) {
      const auto size = static_cast<unsigned>(request.readByte());
      ctx.write(ByteBuf::of(pattern(size * 1000, size)));
      log->add("answered");
    }
  }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
  LogPtr log;
};

class Draining : public NetTest {
 protected:
  test::Fill answering() {
    return [this](Channel& ch) { ch.pipeline().emplaceLast<Answering>(log_); };
  }
  std::vector<Peer> connect(const Server& server, std::size_t count) {
    std::vector<Peer> peers;
    for (std::size_t i = 0; i < count; ++i) peers.push_back(Peer::to(server.address()));
    return peers;
  }
  /// Everything that was answered to this peer arrives, then the end, without a reset.
  static std::size_t expectWholeAnswers(Peer& peer, unsigned size) {
    const std::string got = peer.receiveAll();
    EXPECT_EQ(peer.error(), 0);
    EXPECT_EQ(got.size() % (size * 1000), 0U);
    const std::string answer = pattern(size * 1000, size);
    for (std::size_t at = 0; at < got.size(); at += answer.size()) {
      EXPECT_TRUE(same(std::string_view(got).substr(at, answer.size()), answer));
    }
    return got.size() / (size * 1000);
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// F51, must show 7: 50 connections with requests in flight
TEST_P(Draining, LetsEveryAnswerArriveWhole) {
  more(2);
  const Server server = serve(answering());
  std::vector<Peer> peers = connect(server, 50);
  for (const Peer& each : peers) each.send("\x64\x64");
  ASSERT_TRUE(log_->await("answered", 30));

  const Future<DrainReport> drained = server.drain(30s);
  for (const Peer& each : peers) static_cast<void>(each.sendSome("\x64"));
  std::size_t answers = 0;
  for (Peer& each : peers) {
    answers += expectWholeAnswers(each, 0x64);
    each.close();
  }

  ASSERT_TRUE(succeeds(drained));
  EXPECT_LE(drained.get().connections, 50U);
  EXPECT_EQ(drained.get().cut, 0U);
  EXPECT_EQ(drained.get().bytesCut, 0U);
  EXPECT_EQ(answers, log_->count("answered"));
}

// F51: the same by the destructor of the server, and of everything
TEST_P(Draining, HappensInTheDestructors) {
  for (const bool groupToo : {false, true}) {
    SCOPED_TRACE(groupToo);
    auto own = std::make_unique<EventLoopGroup>(GetParam().options().loops(2));
    const LogPtr log = std::make_shared<EventLog>();
    std::optional<Server> server =
        ServerBootstrap()
            .group(*own)
            .childHandler([&](Channel& ch) { ch.pipeline().emplaceLast<Answering>(log); })
            .bind(anyAddress())
            .get();
    std::vector<Peer> peers = connect(*server, 50);
    for (const Peer& each : peers) each.send("\x40");
    ASSERT_TRUE(log->await("answered", 50));
    std::thread reader([&] {
      std::size_t answers = 0;
      for (Peer& each : peers) {
        answers += expectWholeAnswers(each, 0x40);
        each.close();
      }
      EXPECT_EQ(answers, 50U);
    });

    if (groupToo) own.reset();
    server.reset();
    reader.join();
  }
}

// The deadline holds although the listener's loop is gone.
TEST_P(Draining, CutsAtTheDeadlineAfterTheBossHasEnded) {
  EventLoopGroup boss(GetParam().options().loops(1));
  const Server server =
      ServerBootstrap()
          .group(boss, group())
          .childHandler([&](Channel& ch) { ch.pipeline().emplaceLast<Answering>(log_); })
          .bind(anyAddress())
          .get();
  const Peer stalled = Peer::to(server.address(), 4096);
  for (int i = 0; i < 100; ++i) static_cast<void>(stalled.sendSome("\x7f"));
  ASSERT_TRUE(log_->await("answered", 20));  // more than the kernel holds is on its way

  ASSERT_TRUE(succeeds(boss.shutdownGracefully(0s, 10s)));
  const Future<DrainReport> drained = server.drain(100ms);

  ASSERT_TRUE(succeeds(drained));
  EXPECT_EQ(drained.get().connections, 1U);
  EXPECT_EQ(drained.get().cut, 1U);
}

TEST_P(Draining, StartsNoThread) {
  more(8);
  const Server server = serve(answering());
  Peer peer = Peer::to(server.address());
  peer.send("\x01");
  EXPECT_EQ(peer.receive(1000).size(), 1000U);
  const auto threads = [&] {
    std::size_t count = 0;
    for (const EventLoop& each : group()) count += each.threadId() != 0 ? 1 : 0;
    return count;
  };
  const std::size_t before = threads();
  EXPECT_LT(before, 8U);

  const Future<DrainReport> drained = server.drain(10s);
  peer.close();

  ASSERT_TRUE(succeeds(drained));
  EXPECT_EQ(threads(), before);
}

// F51: the group ends first: the lingering close of the loop does the same
TEST_P(Draining, HappensWithTheGroup) {
  const Server server = serve(answering());
  std::vector<Peer> peers = connect(server, 50);
  for (const Peer& each : peers) each.send("\x40");
  ASSERT_TRUE(log_->await("answered", 50));

  const Future<ShutdownReport> ended = group().shutdownGracefully(0s, 30s);
  std::size_t answers = 0;
  for (Peer& each : peers) {
    answers += expectWholeAnswers(each, 0x40);
    each.close();
  }

  ASSERT_TRUE(succeeds(ended));
  EXPECT_EQ(ended.get().channelsCut, 0U);
  EXPECT_FALSE(ended.get().timedOut);
  EXPECT_EQ(answers, 50U);
  EXPECT_TRUE(succeeds(server.drain(1s)));
}

// Those who wait to be accepted when it begins see the end, not a reset
TEST_P(Draining, TakesThoseInTheQueueAlong) {
  const Server server = serve(test::echoing());
  std::vector<Peer> peers;
  Future<DrainReport> drained;
  {
    const test::Held held(loop());
    peers = connect(server, 30);
    for (const Peer& each : peers) each.send("request");
    drained = server.drain(30s);
  }
  for (Peer& each : peers) {
    const std::string got = each.receiveAll();
    EXPECT_TRUE(got.empty() || got == "request");
    EXPECT_EQ(each.error(), 0);
    each.close();
  }

  ASSERT_TRUE(succeeds(drained));
  EXPECT_EQ(drained.get().cut, 0U);
}

// The only connection: what it had to get is in the report, and it does not look complete to the peer
TEST_P(Draining, CutsTheLastConnectionByAReset) {
  const Server server =
      bootstrap(answering()).childOption(options::sendBuffer, 8192).bind(anyAddress()).get();
  Peer silent = Peer::to(server.address(), 4096);
  silent.send(std::string(20, '\x64'));  // and does not read
  ASSERT_TRUE(log_->await("answered", 20));
  settle();

  const DrainReport report = server.drain(100ms).get();

  EXPECT_EQ(report.cut, 1U);
  EXPECT_GT(report.bytesCut, 0U);
  EXPECT_TRUE(logs_.contains("drain: the time was up for 1 of 1 connections"));
  const std::size_t got = silent.receiveAll().size();
  EXPECT_LE(got + report.bytesCut, 2'000'000U);
  EXPECT_EQ(silent.error(), isTcp() ? ECONNRESET : 0);
}

// Handlers hear of it while they can still say something
TEST_P(Draining, LetsHandlersSayGoodbye) {
  struct Polite : ChannelHandler {
    void userEventTriggered(Context& ctx, Message&& event) override {
      if (event.is<ClosingGracefully>()) ctx.writeAndFlush(ByteBuf::of("goodbye"));
    }
  };
  const Server server = serve([](Channel& ch) {
    ch.pipeline().emplaceLast<test::EchoHandler>();
    ch.pipeline().emplaceLast<Polite>();
  });
  Peer peer = Peer::to(server.address());
  peer.send("x");
  EXPECT_EQ(peer.receive(1), "x");

  const Future<DrainReport> drained = server.drain(10s);

  EXPECT_EQ(peer.receiveAll(), "goodbye");
  EXPECT_EQ(peer.error(), 0);
  peer.close();
  EXPECT_TRUE(succeeds(drained));
}

// What is not done at the deadline is cut, and reported
TEST_P(Draining, ReportsWhatWasCut) {
  const Server server =
      bootstrap(answering()).childOption(options::sendBuffer, 8192).bind(anyAddress()).get();
  Peer good = Peer::to(server.address());
  good.send("\x01");
  std::vector<Peer> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(Peer::to(server.address(), 4096));
  for (const Peer& each : silent) each.send(std::string(20, '\x64'));  // and never read
  ASSERT_TRUE(log_->await("answered", 4));
  settle();

  const Future<DrainReport> drained = server.drain(300ms);
  EXPECT_EQ(expectWholeAnswers(good, 1), 1U);
  good.close();

  ASSERT_TRUE(succeeds(drained));
  EXPECT_EQ(drained.get().connections, 4U);
  EXPECT_EQ(drained.get().cut, 3U);
  EXPECT_GT(drained.get().bytesCut, 0U);
}

// Peers that keep their end open are waited for as long as the option says, not until the deadline
TEST_P(Draining, WaitsForPeersForAWhileOnly) {
  const Server server =
      bootstrap(test::echoing()).childOption(options::lingerOnDrain, 50ms).bind(anyAddress()).get();
  std::vector<Peer> peers = connect(server, 5);
  for (Peer& each : peers) {
    each.send("x");
    EXPECT_EQ(each.receive(1), "x");
  }

  const Future<DrainReport> drained = server.drain(10min);

  ASSERT_TRUE(succeeds(drained));
  EXPECT_EQ(drained.get().connections, 5U);
  EXPECT_EQ(drained.get().cut, 0U);
}

// A second call joins the first, with the shorter deadline
TEST_P(Draining, MayBeAskedForTwice) {
  const Server server =
      bootstrap(answering()).childOption(options::sendBuffer, 8192).bind(anyAddress()).get();
  const Peer silent = Peer::to(server.address(), 4096);
  silent.send(std::string(20, '\x64'));
  ASSERT_TRUE(log_->await("answered", 20));

  const Future<DrainReport> first = server.drain(10min);
  const Future<DrainReport> second = server.drain(50ms);

  ASSERT_TRUE(succeeds(first));
  EXPECT_TRUE(succeeds(second));
  EXPECT_EQ(first.get().cut, 1U);
  EXPECT_TRUE(succeeds(server.drain(1s))) << "when it is over";
}

// Nobody is accepted any more; those who waited in the kernel see the end
TEST_P(Draining, StopsListeningFirst) {
  const Server server = serve(test::echoing());
  const SocketAddress address = server.address();

  ASSERT_TRUE(succeeds(server.drain(10s)));

  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_TRUE(succeeds(server.closeFuture()));
  EXPECT_THROW(Peer::to(address), std::runtime_error);
}

// close() leaves the connections alone
TEST_P(Draining, IsNotWhatCloseDoes) {
  const Server server = serve(test::echoing());
  Peer peer = Peer::to(server.address());
  peer.send("x");
  EXPECT_EQ(peer.receive(1), "x");

  EXPECT_TRUE(succeeds(server.close()));

  peer.send("still");
  EXPECT_EQ(peer.receive(5), "still");
  peer.close();
}

// Connections of another server of the same group stay
TEST_P(Draining, ConcernsItsOwnConnectionsOnly) {
  const Server first = serve(test::echoing());
  const Server second = serve(test::echoing());
  Peer one = Peer::to(first.address());
  Peer two = Peer::to(second.address());
  for (Peer* each : {&one, &two}) {
    each->send("x");
    EXPECT_EQ(each->receive(1), "x");
  }

  const Future<DrainReport> drained = first.drain(10s);
  EXPECT_EQ(one.receiveAll(), "");
  one.close();
  ASSERT_TRUE(succeeds(drained));
  EXPECT_EQ(drained.get().connections, 1U);

  two.send("y");
  EXPECT_EQ(two.receive(1), "y");
  two.close();
}

// F48: the last handle goes inside a handler: nothing waits for itself
TEST_P(Draining, MayBeginInsideAHandler) {
  auto slot = std::make_shared<std::optional<Server>>();
  struct Drops : ChannelHandler {
    explicit Drops(std::shared_ptr<std::optional<Server>> s) : slot(std::move(s)) {}
    void channelRead(Context&, Message&& msg) override {
      msg.reset();
      slot->reset();
    }
    std::shared_ptr<std::optional<Server>> slot;
  };
  *slot = serve([slot](Channel& ch) { ch.pipeline().emplaceLast<Drops>(slot); });
  const Future<void> closed = (*slot)->closeFuture();
  Peer peer = Peer::to((*slot)->address());

  settle();  // the slot is the loop's from now on
  peer.send("stop");

  EXPECT_EQ(peer.receiveAll(), "");
  EXPECT_EQ(peer.error(), 0);
  EXPECT_TRUE(succeeds(closed));
  peer.close();
}

// F47 F48: the group itself goes inside a handler
TEST_P(Draining, MayEndTheGroupInsideAHandler) {
  struct Owner {
    std::unique_ptr<EventLoopGroup> group;
    std::optional<Server> server;
  };
  auto owner = std::make_shared<Owner>();
  struct Drops : ChannelHandler {
    explicit Drops(std::shared_ptr<Owner> o) : owner(std::move(o)) {}
    void channelRead(Context&, Message&& msg) override {
      msg.reset();
      owner->server.reset();
      owner->group.reset();
    }
    std::shared_ptr<Owner> owner;
  };
  owner->group = std::make_unique<EventLoopGroup>(GetParam().options().loops(1));
  const Future<ShutdownReport> ended = owner->group->terminationFuture();
  owner->server =
      ServerBootstrap()
          .group(*owner->group)
          .childHandler([owner](Channel& ch) { ch.pipeline().emplaceLast<Drops>(owner); })
          .bind(anyAddress())
          .get();
  Peer peer = Peer::to(owner->server->address());

  owner->group->submit([] {}).sync();  // what it owns is the loop's from now on
  peer.send("stop");

  EXPECT_EQ(peer.receiveAll(), "");
  peer.close();
  EXPECT_TRUE(succeeds(ended));
  awaitGlobalExecutor();
}

// The workers end before the server: the listener pauses, those who come wait in the kernel
TEST_P(Draining, PausesTheListenerWhenTheWorkersEnd) {
  EventLoopGroup workers(GetParam().options().loops(1));
  const Server server = ServerBootstrap()
                            .group(group(), workers)
                            .childHandler(test::echoing())
                            .handler(recording(log_))
                            .bind(anyAddress())
                            .get();
  Peer peer = Peer::to(server.address());
  peer.send("x");
  EXPECT_EQ(peer.receive(1), "x");

  const Future<ShutdownReport> ended = workers.shutdownGracefully(0s, 30s);
  EXPECT_EQ(peer.receiveAll(), "");
  EXPECT_EQ(peer.error(), 0);
  peer.close();
  ASSERT_TRUE(succeeds(ended));
  settle();
  const std::size_t accepted = log_->count("message");
  const Peer late = Peer::to(server.address());
  settle();

  EXPECT_EQ(log_->count("message"), accepted);
  EXPECT_TRUE(server.channel().isOpen());
  EXPECT_TRUE(succeeds(server.drain(5s)));
}

// F51: connections that come while it drains are served or refused, none is left hanging
TEST_P(Draining, LeavesNoLatecomerHanging) {
  for (int round = 0; round < 10; ++round) {
    const Server server = serve(test::echoing());
    const SocketAddress address = server.address();
    std::atomic<bool> stop{false};
    std::thread comers([&] {
      while (!stop) {
        try {
          Peer peer = Peer::to(address);
          peer.shutdownWrite();
          peer.receiveAll();
        } catch (const std::runtime_error&) {
          break;
        }
      }
    });
    const Future<DrainReport> drained = server.drain(30s);

    EXPECT_TRUE(succeeds(drained));
    stop = true;
    comers.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Draining, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
