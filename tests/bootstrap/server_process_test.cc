// SPDX-License-Identifier: Apache-2.0
// Servers and their process: forks, and everything destroyed in any order from any thread.
#include "support/net.h"
#include "support/sanitized.h"

#include <millrace/channel/context.h>
#include <millrace/concurrent/global_executor.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::NetTest;
using test::Peer;
using test::succeeds;

class ServerProcess : public NetTest {
 protected:
  static bool echoes(Peer& peer) {
    peer.send("ping");
    return peer.receive(4) == "ping";
  }
};

// F73: the child lets go of what it has of the server; the parent serves on
TEST_P(ServerProcess, OfAForkIsTheParentsAlone) {
  std::optional<Server> server = serve(test::echoing());
  Peer before = Peer::to(server->address());
  ASSERT_TRUE(echoes(before));

  const pid_t child = ::fork();
  if (child == 0) {
    const std::int64_t began = Clock::real().nanos();
    server.reset();
    const bool waited = Clock::real().nanos() - began > 5'000'000'000;
    // Not by _exit(): ThreadSanitizer would miss the parent's threads there.
    ::syscall(SYS_exit_group, waited ? 3 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);

  EXPECT_EQ(status, 0);
  EXPECT_TRUE(echoes(before));
  Peer after = Peer::to(server->address());
  EXPECT_TRUE(echoes(after));
}

#ifndef MR_TEST_SANITIZED  // whose threads do not survive a fork
// F52, must show 7: a program of the usual form, left by returning from its main function
TEST_P(ServerProcess, ReturningFromMainLosesNoAnswer) {
  struct Thousandfold : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override {
      ctx.write(ByteBuf::of(test::pattern(msg.as<ByteBuf>()->readableBytes() * 1000)));
    }
    void channelReadComplete(Context& ctx) override { ctx.flush(); }
  };
  const auto program = [this](const SocketAddress& wanted, int tell, int hear) {
    EventLoopGroup boss(GetParam().options().loops(1));
    EventLoopGroup workers(GetParam().options().loops(2));
    const Server server =
        ServerBootstrap()
            .group(boss, workers)
            .childHandler([](Channel& ch) { ch.pipeline().emplaceLast<Thousandfold>(); })
            .bind(wanted)
            .get();
    const std::uint16_t port = server.address().port();
    char byte = 0;
    const bool told = ::write(tell, &port, sizeof port) == sizeof port;
    return told && ::read(hear, &byte, 1) == 1 ? 0 : 1;
  };
  constexpr std::size_t kConnections = 50;
  for (int round = 0; round < 10; ++round) {
    int up[2];
    int down[2];
    ASSERT_EQ(::pipe(up), 0);
    ASSERT_EQ(::pipe(down), 0);
    const SocketAddress wanted = anyAddress();
    const pid_t child = ::fork();
    if (child == 0) std::exit(program(wanted, up[1], down[0]));
    std::uint16_t port = 0;
    ASSERT_EQ(::read(up[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    const SocketAddress address = wanted.isInet() ? wanted.withPort(port) : wanted;
    std::vector<Peer> peers;
    for (std::size_t i = 0; i < kConnections; ++i) {
      peers.push_back(Peer::to(address));
      peers.back().send("x");
    }
    for (Peer& each : peers) EXPECT_EQ(each.receive(1000).size(), 1000U);
    for (Peer& each : peers) each.send("y");  // in flight
    ASSERT_EQ(::write(down[1], "!", 1), 1);

    for (Peer& each : peers) {
      const std::string got = each.receiveAll();
      EXPECT_EQ(each.error(), 0);
      EXPECT_TRUE(got.empty() || got == test::pattern(1000)) << got.size();
      each.close();
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (const int fd : {up[0], up[1], down[0], down[1]}) ::close(fd);
  }
}
#endif

// I8, must show 7: everything goes in any order, from any thread
TEST_P(ServerProcess, SurvivesEveryOrderOfDestruction) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 10; ++round) {
    auto boss = std::make_unique<EventLoopGroup>(GetParam().options().loops(1));
    auto workers = std::make_unique<EventLoopGroup>(GetParam().options().loops(2));
    auto bootstrap = std::make_unique<ServerBootstrap>();
    bootstrap->group(*boss, *workers).childHandler(test::echoing());
    bootstrap->childOption(options::lingerOnDrain, 100ms);
    auto server = std::make_unique<Server>(bootstrap->bind(anyAddress()).get());
    auto copy = std::make_unique<Server>(*server);
    std::vector<Peer> peers;
    for (int i = 0; i < 5; ++i) peers.push_back(Peer::to(server->address()));
    for (Peer& each : peers) ASSERT_TRUE(echoes(each));
    auto client = std::make_unique<ChannelPtr>(Bootstrap()
                                                   .group(*workers)
                                                   .handler(test::echoing())
                                                   .option(options::lingerOnDrain, 100ms)
                                                   .connect(server->address())
                                                   .get());
    auto closed = std::make_unique<Future<void>>(server->closeFuture());
    auto sent = std::make_unique<Future<void>>((*client)->send(ByteBuf::of("x")));
    std::vector<std::function<void()>> ends = {
        [&] { boss.reset(); },   [&] { workers.reset(); }, [&] { bootstrap.reset(); },
        [&] { server.reset(); }, [&] { copy.reset(); },    [&] { client.reset(); },
        [&] { closed.reset(); }, [&] { sent.reset(); },    [&] { peers.clear(); },
    };
    std::shuffle(ends.begin(), ends.end(), random);
    std::vector<std::thread> threads;
    for (auto& end : ends) {
      if (random() % 2 == 0) {
        threads.emplace_back(end);
      } else {
        end();
      }
    }
    for (std::thread& each : threads) each.join();
  }
  awaitGlobalExecutor();
}

INSTANTIATE_TEST_SUITE_P(Engines, ServerProcess, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
