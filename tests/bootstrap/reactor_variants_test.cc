// SPDX-License-Identifier: Apache-2.0
// The same application over every set-up of groups and engines.
#include "support/net.h"

#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/context.h>
#include <millrace/handler/logging_handler.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/sys/socket_address.h>
#include <millrace/sys/thread.h>

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace millrace::test {
namespace {

struct Variant {
  std::string name;
  int bosses;  // 0: one group for both
  int workers;
  std::string bossIo;
  std::string workerIo;
};

class ReactorVariants : public testing::TestWithParam<Variant> {};

/// Echoes 20 messages on each of 8 connections, by the same code whatever the groups are.
void echoOverAll(const Server& server) {
  std::vector<Peer> peers;
  for (int i = 0; i < 8; ++i) peers.push_back(Peer::to(server.address()));
  for (int round = 0; round < 20; ++round) {
    const std::string text = "message " + std::to_string(round) + std::string(1000, '.');
    for (const Peer& peer : peers) peer.send(text);
    for (Peer& peer : peers) EXPECT_EQ(peer.receive(text.size()), text);
  }
}

// C014 C015 C205
TEST_P(ReactorVariants, EchoTheSame) {
  const Variant& setup = GetParam();
  EventLoopGroup workers(setup.workers, io::byName(setup.workerIo));
  EventLoopGroup boss(setup.bosses == 0 ? 1 : setup.bosses, io::byName(setup.bossIo));
  ServerBootstrap bootstrap;
  if (setup.bosses == 0) {
    bootstrap.group(workers);
  } else {
    bootstrap.group(boss, workers);
  }
  const Server server = bootstrap.childHandler(echoing()).bind(SocketAddress::loopback4(0)).get();

  echoOverAll(server);

  for (const EventLoop& loop : workers) EXPECT_EQ(loop.ioType().name, setup.workerIo);
  EXPECT_EQ(server.channel().loop().ioType().name,
            setup.bosses == 0 ? setup.workerIo : setup.bossIo);
}

INSTANTIATE_TEST_SUITE_P(Groups, ReactorVariants,
                         testing::Values(Variant{"OneThread", 0, 1, "epoll", "epoll"},
                                         Variant{"OneGroup", 0, 3, "epoll", "epoll"},
                                         Variant{"BossAndWorkers", 1, 3, "epoll", "epoll"},
                                         Variant{"MainAndSub", 2, 3, "epoll", "epoll"},
                                         Variant{"OnUring", 1, 2, "uring", "uring"},
                                         Variant{"EpollBossUringWorkers", 1, 2, "epoll", "uring"},
                                         Variant{"UringBossEpollWorkers", 1, 2, "uring", "epoll"},
                                         Variant{"OnPoll", 1, 2, "poll", "poll"},
                                         Variant{"EpollBossPollWorkers", 1, 2, "epoll", "poll"},
                                         Variant{"PollBossEpollWorkers", 1, 2, "poll", "epoll"},
                                         Variant{"ThreadPerChannel", 1, 0, "epoll", "blocking"},
                                         Variant{"AllBlocking", 1, 0, "blocking", "blocking"}),
                         [](const testing::TestParamInfo<Variant>& row) { return row.param.name; });

/// Notes the thread of every event it sees.
class ThreadNoting final : public ChannelHandler {
 public:
  struct Notes {
    std::mutex mutex;
    std::map<std::uint64_t, std::set<std::int64_t>> threads;  // by channel
    std::map<std::uint64_t, std::vector<std::string>> events;
  };
  explicit ThreadNoting(Notes& notes) : notes_(notes) {}

  void handlerAdded(Context& ctx) override { note(ctx, "added"); }
  void handlerRemoved(Context& ctx) override { note(ctx, "removed"); }
  void channelRegistered(Context& ctx) override {
    note(ctx, "registered");
    ctx.fireChannelRegistered();
  }
  void channelUnregistered(Context& ctx) override {
    note(ctx, "unregistered");
    ctx.fireChannelUnregistered();
  }
  void channelActive(Context& ctx) override {
    note(ctx, "active");
    ctx.fireChannelActive();
  }
  void channelInactive(Context& ctx) override {
    note(ctx, "inactive");
    ctx.fireChannelInactive();
  }
  void channelRead(Context& ctx, Message&& msg) override {
    note(ctx, "");
    ctx.fireChannelRead(std::move(msg));
  }

 private:
  void note(Context& ctx, const std::string& event) {
    std::lock_guard lock(notes_.mutex);
    notes_.threads[ctx.channel().id()].insert(threadId());
    if (!event.empty()) notes_.events[ctx.channel().id()].push_back(event);
  }
  Notes& notes_;
};

// C011 C013: one thread for life, and the same order of events, for listening, accepted and client
// channels
TEST(ChannelAndLoop, BelongTogetherForLife) {
  ThreadNoting::Notes notes;
  const auto noting = [&notes](Channel& channel) {
    channel.pipeline().emplaceFirst<ThreadNoting>(notes);
  };
  {
    EventLoopGroup boss(1);
    EventLoopGroup workers(3);
    EventLoopGroup clients(2);
    const Server server = ServerBootstrap()
                              .group(boss, workers)
                              .handler(noting)
                              .childHandler([&](Channel& channel) {
                                noting(channel);
                                echoing()(channel);
                              })
                              .bind(SocketAddress::loopback4(0))
                              .get();
    const Bootstrap bootstrap = Bootstrap().group(clients).handler(noting);
    std::vector<ChannelPtr> channels;
    for (int i = 0; i < 6; ++i) channels.push_back(bootstrap.connect(server.address()).get());
    for (const ChannelPtr& channel : channels) channel->send(ByteBuf::of("hello")).sync();
    for (const ChannelPtr& channel : channels) channel->close().sync();
  }

  EXPECT_EQ(notes.threads.size(), 13u);
  for (const auto& [id, threads] : notes.threads) EXPECT_EQ(threads.size(), 1u) << id;
  const std::vector<std::string> order = {"added",    "registered",   "active",
                                          "inactive", "unregistered", "removed"};
  for (const auto& [id, events] : notes.events) EXPECT_EQ(events, order) << id;
}

// C209: backlog by option, waiting for bind, parking on closeFuture, both groups end gracefully
TEST(TheProgramOfTheSeeds, ServesUntilItIsClosed) {
  EventLoopGroup boss(1);
  EventLoopGroup workers(2);
  const Server server = ServerBootstrap()
                            .group(boss, workers)
                            .option(options::backlog, 100)
                            .handler(std::make_shared<LoggingHandler>(LogLevel::debug))
                            .childHandler(echoing())
                            .bind(SocketAddress::loopback4(0))
                            .sync()
                            .get();
  std::thread somebody([&server] {
    Peer peer = Peer::to(server.address());
    peer.send("hello");
    EXPECT_EQ(peer.receive(5), "hello");
    server.close();
  });

  server.closeFuture().sync();
  somebody.join();

  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_FALSE(workers.shutdownGracefully().get().timedOut);
  EXPECT_FALSE(boss.shutdownGracefully().get().timedOut);
}

// C048
TEST(Workers, StartWithTheFirstConnectionTheyGet) {
  EventLoopGroup boss(1);
  EventLoopGroup workers(3);
  const Server server = ServerBootstrap()
                            .group(boss, workers)
                            .childHandler(echoing())
                            .bind(SocketAddress::loopback4(0))
                            .get();
  const auto started = [&workers] {
    std::size_t count = 0;
    for (const EventLoop& loop : workers) count += loop.state() == EventLoop::State::started;
    return count;
  };
  EXPECT_EQ(started(), 0u);

  std::vector<Peer> peers;
  for (std::size_t i = 1; i <= 5; ++i) {
    peers.push_back(Peer::to(server.address()));
    peers.back().send("x");
    EXPECT_EQ(peers.back().receive(1), "x");
    EXPECT_EQ(started(), std::min<std::size_t>(i, 3));
  }
}

}  // namespace
}  // namespace millrace::test
