// SPDX-License-Identifier: Apache-2.0
// A thread for each channel: groups on io::blocking().
#include "support/net.h"

#include <millrace/bootstrap/bootstrap.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_options.h>
#include <millrace/sys/socket_address.h>

#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace::test {
namespace {

using namespace std::chrono_literals;

struct Echo {
  explicit Echo(EventLoopGroup& workers)
      : server(ServerBootstrap()
                   .group(boss, workers)
                   .childHandler(echoing())
                   .bind(SocketAddress::loopback4(0))
                   .get()) {}

  EventLoopGroup boss{1};
  Server server;
};

/// A connection that has been served once.
Peer served(const Echo& echo) {
  Peer peer = Peer::to(echo.server.address());
  peer.send("hello");
  EXPECT_EQ(peer.receive(5), "hello");
  return peer;
}

std::size_t threadsOf(const EventLoopGroup& group) {
  std::size_t count = 0;
  for (const EventLoop& loop : group) count += loop.threadId() != 0 ? 1 : 0;
  return count;
}

/// True once `condition` holds; false if that takes too long.
template <class F>
bool soon(F&& condition) {
  const Deadline limit = Deadline::after(20s);
  while (!condition()) {
    if (limit.isDue(Clock::real().nanos())) return false;
    std::this_thread::yield();
  }
  return true;
}

// C215
TEST(BlockingGroup, HasAThreadForEachChannelAndNoNext) {
  EventLoopGroup workers(0, io::blocking());
  const Echo echo(workers);
  EXPECT_EQ(workers.size(), 0u);

  std::vector<Peer> peers;
  for (int i = 0; i < 5; ++i) peers.push_back(served(echo));

  EXPECT_EQ(workers.size(), 5u);
  EXPECT_EQ(threadsOf(workers), 5u);
  for (const EventLoop& loop : workers) EXPECT_EQ(&loop.ioType(), &io::blockingType);
  EXPECT_THROW(workers.next(), std::logic_error);
  EXPECT_THROW(workers.execute([] {}), std::logic_error);
}

// C216: ours fails on the thread that asks, without a loop to tell it on
TEST(BlockingGroup, RefusesMoreChannelsThanItMayHave) {
  EventLoopGroup servers(1);
  const Server server = ServerBootstrap()
                            .group(servers)
                            .childHandler(echoing())
                            .bind(SocketAddress::loopback4(0))
                            .get();
  EventLoopGroup clients(1, io::blocking());
  const auto log = std::make_shared<EventLog>();
  Bootstrap bootstrap;
  bootstrap.group(clients).handler(recording(log));

  const ChannelPtr first = bootstrap.connect(server.address()).get();
  const Future<ChannelPtr> second = bootstrap.connect(server.address());

  ASSERT_TRUE(second.isDone());
  EXPECT_TRUE(second.cause().is(Errc::rejected));
  EXPECT_NE(second.cause().message().find("too many channels"), std::string::npos);
  EXPECT_TRUE(first->isActive());
  first->close().sync();
  ASSERT_TRUE(soon([&] { return clients.metrics().registrations == 0; }));
  EXPECT_TRUE(soon([&] { return bootstrap.connect(server.address()).await(), true; }));
  EXPECT_THROW(EventLoopGroup(-1, io::blocking()), std::invalid_argument);
}

TEST(BlockingGroup, AtItsLimitTriesTheNextAddressOnTheSameLoop) {
  EventLoopGroup servers(1);
  const Server server = ServerBootstrap()
                            .group(servers)
                            .childHandler(echoing())
                            .bind(SocketAddress::loopback4(0))
                            .get();
  const Nobody nobody;
  EventLoopGroup clients(1, io::blocking());

  const Future<ChannelPtr> channel = Bootstrap()
                                         .group(clients)
                                         .handler([](Channel&) {})
                                         .connect({nobody.address(), server.address()});

  ASSERT_TRUE(succeeds(channel));
  EXPECT_EQ(channel.get()->remoteAddress(), server.address());
  EXPECT_EQ(clients.size(), 1U);
}

// C217
TEST(BlockingGroup, RefusesChannelsOnceItIsShutDown) {
  EventLoopGroup group(0, io::blocking());
  group.shutdownGracefully().sync();

  const Future<ChannelPtr> late =
      Bootstrap().group(group).handler([](Channel&) {}).connect(SocketAddress::loopback4(9));

  late.await();
  EXPECT_TRUE(late.cause().is(Errc::rejected));
}

// C218
TEST(BlockingGroup, UsesAnIdleThreadAgain) {
  EventLoopGroup workers(0, io::blocking());
  const Echo echo(workers);
  std::set<std::int64_t> threads;

  for (int i = 0; i < 4; ++i) {
    Peer peer = served(echo);
    for (const EventLoop& loop : workers) threads.insert(loop.threadId());
    peer.close();
    ASSERT_TRUE(soon([&] { return workers.metrics().registrations == 0; }));
    // The loop turns idle by a task of its own, behind what waits there.
    for (EventLoop& loop : workers) loop.submit([] {}).sync();
  }

  EXPECT_EQ(workers.size(), 1u);
  EXPECT_EQ(threads.size(), 1u);
}

// C219 C220: what was queued when the channel closed runs before the loop is idle, and nothing else
// is pushed to wake it
TEST(BlockingGroup, RunsWhatWaitsBeforeALoopIsIdle) {
  EventLoopGroup workers(0, io::blocking());
  EventLoopGroup boss(1);
  std::vector<int> order;
  std::latch ran(1);
  const Server server =
      ServerBootstrap()
          .group(boss, workers)
          .childHandler([&](Channel& channel) {
            channel.closeFuture().addListener([&order, &ran, &loop = channel.loop()] {
              order.push_back(1);
              loop.execute([&order, &ran] {
                order.push_back(2);
                ran.count_down();
              });
            });
          })
          .bind(SocketAddress::loopback4(0))
          .get();

  Peer::to(server.address()).close();
  ran.wait();
  workers.begin()->submit([&order] { order.push_back(3); }).sync();

  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(workers.size(), 1u);
}

// C221
TEST(BlockingGroup, EndsAtOnceWhenItHasNoLoops) {
  EventLoopGroup group(0, io::blocking());
  EXPECT_FALSE(group.isShuttingDown());

  const Future<ShutdownReport> end = group.shutdownGracefully();

  EXPECT_TRUE(end.isDone());
  EXPECT_TRUE(group.isTerminated());
}

// behaviour 3.8: many channels, then the end, told once
TEST(BlockingGroup, EndsWithManyChannels) {
  EventLoopGroup workers(0, io::blocking());
  const Echo echo(workers);
  std::vector<Peer> peers;
  for (int i = 0; i < 30; ++i) peers.push_back(served(echo));
  std::atomic<int> told{0};
  workers.terminationFuture().addListener([&] { ++told; });

  const ShutdownReport report = workers.shutdownGracefully().get();

  for (Peer& peer : peers) EXPECT_EQ(peer.receiveAll(), "");
  EXPECT_FALSE(report.timedOut);
  EXPECT_TRUE(soon([&] { return told == 1; }));
}

// The write blocks the thread in the kernel; the end of the group cuts it short.
TEST(BlockingGroup, CutsAStalledWriteShortAtTheEnd) {
  EventLoopGroup workers(0, io::blocking());
  EventLoopGroup boss(1);
  const auto log = std::make_shared<EventLog>();
  const Server server = ServerBootstrap()
                            .group(boss, workers)
                            .childHandler([&](Channel& channel) {
                              recording(log)(channel);
                              channel.writeAndFlush(ByteBuf::of(std::string(50'000'000, 'x')));
                            })
                            .bind(SocketAddress::loopback4(0))
                            .get();
  const Peer peer = Peer::to(server.address());
  ASSERT_TRUE(log->await("active"));

  const ShutdownReport report = workers.shutdownGracefully(0s, 300ms).get();

  EXPECT_TRUE(report.timedOut);
  EXPECT_EQ(report.channelsCut, 1u);
  EXPECT_GT(report.bytesCut, 1'000'000u);
  EXPECT_TRUE(log->await("inactive"));
}

}  // namespace
}  // namespace millrace::test
