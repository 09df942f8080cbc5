// SPDX-License-Identifier: Apache-2.0
// Servers that stop with requests in flight, over and over: every answer that was written arrives
// whole, and nobody sees a reset. MILLRACE_STORM_ROUNDS sets how often, for each way to stop.
#include "support/net.h"

#include <millrace/channel/context.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/sys/socket_address.h>

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace millrace::test {
namespace {

using namespace std::chrono_literals;

constexpr int kConnections = 50;

int rounds() {
  const char* wanted = std::getenv("MILLRACE_STORM_ROUNDS");
  return wanted == nullptr ? 20 : std::atoi(wanted);
}

/// What was answered to whom, by the port of the client.
struct Ledger {
  std::mutex mutex;
  std::map<std::uint16_t, std::size_t> answered;

  void add(std::uint16_t port, std::size_t bytes) {
    std::lock_guard lock(mutex);
    answered[port] += bytes;
  }
  std::size_t of(std::uint16_t port) {
    std::lock_guard lock(mutex);
    return answered[port];
  }
};

/// Answers each byte with three.
class TripleHandler final : public ChannelHandler {
 public:
  explicit TripleHandler(Ledger& ledger) : ledger_(ledger) {}

  void channelRead(Context& ctx, Message&& msg) override {
    const std::size_t size = msg.take<ByteBuf>().readableBytes() * 3;
    ByteBuf answer = ctx.allocate(size);
    answer.writeBytes(std::string(size, 'a'));
    ledger_.add(ctx.channel().remoteAddress().port(), size);
    ctx.write(std::move(answer));
  }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }

 private:
  Ledger& ledger_;
};

std::uint16_t portOf(const Peer& peer) {
  sockaddr_storage raw{};
  socklen_t size = sizeof raw;
  EXPECT_EQ(::getsockname(peer.fd(), reinterpret_cast<sockaddr*>(&raw), &size), 0);
  return SocketAddress::fromRaw(&raw, size)->port();
}

enum class By { drain, destructor, signal };

class ShutdownStorm : public testing::TestWithParam<By> {};

// F51; C230 in our form: a lingering close instead of an abrupt one
TEST_P(ShutdownStorm, LosesNoAnswer) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < rounds() && !HasFailure(); ++round) {
    Ledger ledger;
    auto boss = std::make_unique<EventLoopGroup>(1);
    auto workers = std::make_unique<EventLoopGroup>(2);
    auto server =
        std::make_unique<Server>(ServerBootstrap()
                                     .group(*boss, *workers)
                                     .childHandler([&ledger](Channel& channel) {
                                       channel.pipeline().emplaceLast<TripleHandler>(ledger);
                                     })
                                     .bind(SocketAddress::loopback4(0))
                                     .get());
    if (GetParam() == By::signal) {
      boss->next().onSignal(SIGUSR1, [&server](int) { server->drain(10s); }).sync();
    }
    const SocketAddress address = server->address();
    std::vector<Peer> peers;
    for (int i = 0; i < kConnections; ++i) peers.push_back(Peer::to(address));
    std::vector<std::uint16_t> ports;
    for (const Peer& peer : peers) ports.push_back(portOf(peer));
    std::atomic<int> clean{0};
    std::vector<std::string> received(peers.size());
    std::thread clients([&, sizes = std::mt19937(random())]() mutable {
      for (const Peer& peer : peers) {
        static_cast<void>(peer.sendSome(std::string(1 + sizes() % 20'000, 'q')));
      }
      for (std::size_t i = 0; i < peers.size(); ++i) {
        received[i] = peers[i].receiveAll();
        if (peers[i].error() == 0) ++clean;
        peers[i].close();
      }
    });
    for (auto i = random() % 2000; i != 0; --i) std::this_thread::yield();

    switch (GetParam()) {
      case By::drain:
        EXPECT_EQ(server->drain(10s).get().cut, 0u);
        break;
      case By::destructor:
        server.reset();
        break;
      case By::signal:
        ::kill(::getpid(), SIGUSR1);
        server->closeFuture().sync();
        EXPECT_EQ(server->drain(10s).get().cut, 0u);
        break;
    }
    clients.join();
    server.reset();

    EXPECT_EQ(clean, kConnections) << "round " << round;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      EXPECT_EQ(received[i].size(), ledger.of(ports[i])) << "round " << round;
      EXPECT_EQ(received[i].find_first_not_of('a'), std::string::npos);
    }
  }
}

std::string nameOf(const testing::TestParamInfo<By>& row) {
  switch (row.param) {
    case By::drain:
      return "Drain";
    case By::destructor:
      return "Destructor";
    case By::signal:
      return "Signal";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Stop, ShutdownStorm,
                         testing::Values(By::drain, By::destructor, By::signal), nameOf);

}  // namespace
}  // namespace millrace::test
