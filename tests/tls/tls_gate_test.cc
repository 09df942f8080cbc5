// SPDX-License-Identifier: Apache-2.0
// Handshakes per turn: a storm of them leaves room for those who are there already.
#include "tls/tls_fixture.h"

#include <millrace/channel/transport.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_options.h>
#include <millrace/sys/fd.h>
#include <millrace/transport/transports.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;

/// A loop driven by the test, with servers' ends on it and clients that the test plays.
class TlsGate : public testing::Test {
 protected:
  struct One {
    ChannelPtr channel;
    Fd peer;
    RawTls client{RawTls::Role::client};
    Saw saw;
  };

  ~TlsGate() override {
    for (const auto& each : all) each->peer.reset();
    loop->shutdownGracefully();
    while (!loop->isTerminated()) loop->run(Deadline::after(10ms));
  }

  One& connect(const TlsContext& context) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    One& one = *all.emplace_back(std::make_unique<One>());
    one.peer = Fd(fds[1]);
    const Transport* transport = transportFor(loop->ioType(), ChannelKind::unixStream);
    one.channel = transport->adopt(*loop, Fd(fds[0]), SocketAddress()).orThrow();
    one.channel->pipeline().emplaceLast<TlsHandler>(context);
    one.channel->pipeline().emplaceLast<Witness>(one.saw);
    registerChannel(*loop, one.channel);
    one.client.handshake();
    return one;
  }
  static void sendHello(One& one) {
    const std::string hello = one.client.take();
    EXPECT_EQ(::write(one.peer.get(), hello.data(), hello.size()),
              static_cast<ssize_t>(hello.size()));
  }
  /// True if the server has answered.
  static bool hasAnswer(const One& one) {
    char byte;
    return ::recv(one.peer.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }
  std::size_t answered() const {
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const auto& each) { return hasAnswer(*each); }));
  }

  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()));
  std::vector<std::unique_ptr<One>> all;
};

TEST_F(TlsGate, LetsAFewHandshakesThroughPerTurn) {
  const TlsContext context = serverBuilder().handshakesPerTurn(1).build();
  for (int i = 0; i < 20; ++i) connect(context);
  loop->runNow();
  for (const auto& each : all) sendHello(*each);
  std::size_t before = 0;
  for (int turn = 0; turn < 40 && before < all.size(); ++turn) {
    loop->runNow();
    const std::size_t now = answered();
    EXPECT_LE(now - before, 2u) << "one in the I/O of a turn, one in its tasks";
    before = now;
  }
  EXPECT_EQ(before, all.size());
  EXPECT_GE(context.figures().delayed, 15u);
}

TEST_F(TlsGate, LetsMoreThroughWhereTheUserSaysSo) {
  const TlsContext context = serverBuilder().handshakesPerTurn(100).build();
  for (int i = 0; i < 20; ++i) connect(context);
  loop->runNow();
  for (const auto& each : all) sendHello(*each);
  loop->runNow();
  loop->runNow();
  EXPECT_EQ(answered(), all.size());
  EXPECT_EQ(context.figures().delayed, 0u);
}

TEST_F(TlsGate, StandsBehindAPoolThatIsFull) {
  ThreadPool full(1);
  full.shutdownGracefully().sync();
  const TlsContext context = serverBuilder().offloadHandshakes(full).build();
  for (int i = 0; i < 10; ++i) connect(context);
  loop->runNow();
  for (const auto& each : all) sendHello(*each);
  loop->runNow();
  EXPECT_LE(answered(), 2u);
  for (int turn = 0; turn < 20; ++turn) loop->runNow();
  EXPECT_EQ(answered(), all.size());
}

// A first hello that only asks for another one must not let the dear second one through.
TEST_F(TlsGate, HoldsForSecondHellosToo) {
  const TlsContext context = serverBuilder().build();
  char groups[] = "P-521:X25519";  // the server knows the second one only
  for (int i = 0; i < 10; ++i) {
    One& one = connect(context);
    one.client = RawTls(RawTls::Role::client);
    SSL_ctrl(one.client.ssl(), SSL_CTRL_SET_GROUPS_LIST, 0, groups);
    one.client.handshake();
  }
  loop->runNow();
  for (const auto& each : all) sendHello(*each);
  for (int turn = 0; turn < 30; ++turn) loop->runNow();
  ASSERT_EQ(answered(), all.size());
  for (const auto& each : all) {
    char answer[4096];
    const ssize_t size = ::read(each->peer.get(), answer, sizeof answer);
    ASSERT_GT(size, 0);
    each->client.feed({answer, static_cast<std::size_t>(size)});
    ASSERT_FALSE(each->client.handshake()) << "it was asked for another hello";
    sendHello(*each);
  }

  loop->runNow();
  EXPECT_LE(answered(), 2u);
  for (int turn = 0; turn < 30; ++turn) loop->runNow();
  EXPECT_EQ(answered(), all.size());
}

TEST_F(TlsGate, DoesNotWaitForThoseWhoHaveGone) {
  const TlsContext context = serverBuilder().build();
  for (int i = 0; i < 10; ++i) connect(context);
  loop->runNow();
  for (const auto& each : all) sendHello(*each);
  loop->runNow();
  for (std::size_t i = 2; i < 9; ++i) all[i]->channel->close();
  for (int turn = 0; turn < 6; ++turn) loop->runNow();
  EXPECT_TRUE(hasAnswer(*all[9]));
}

TEST_F(TlsGate, GoesWithItsLoop) {
  const TlsContext context = serverBuilder().build();
  for (int i = 0; i < 10; ++i) connect(context);
  loop->runNow();
  for (const auto& each : all) sendHello(*each);
  loop->runNow();
  loop->shutdownGracefully(Duration::zero(), 100ms);
  while (!loop->isTerminated()) loop->run(Deadline::after(10ms));
  for (const auto& each : all) EXPECT_FALSE(each->channel->isOpen());
}

}  // namespace
}  // namespace millrace
