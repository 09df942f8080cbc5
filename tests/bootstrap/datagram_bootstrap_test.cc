// SPDX-License-Identifier: Apache-2.0
// Datagram channels as users make them.
#include "support/engines.h"

#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/channel_option.h>
#include <millrace/channel/context.h>
#include <millrace/channel/datagram.h>
#include <millrace/transport/multicast.h>

#include <gtest/gtest.h>

#include <atomic>
#include <string>

namespace millrace {
namespace {

struct Echo : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
};

struct Count : ChannelHandler {
  explicit Count(std::atomic<int>& answers) : answers_(answers) {}
  void channelRead(Context&, Message&& msg) override {
    if (msg.take<Datagram>().bytes.text() == "ping") ++answers_;
  }
  std::atomic<int>& answers_;
};

class DatagramBootstrapOn : public test::EngineTest {
 protected:
  EventLoopGroup group_{options().loops(2)};
  Bootstrap echo_ = Bootstrap().group(group_).datagram().handler(
      [](Channel& channel) { channel.pipeline().emplaceLast<Echo>(); });
};
INSTANTIATE_TEST_SUITE_P(Engines, DatagramBootstrapOn, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

TEST_P(DatagramBootstrapOn, ServersAreBoundAndClientsConnected) {
  expectEngine(group_);
  const SocketAddress names[] = {SocketAddress::loopback4(0), SocketAddress::loopback6(0)};
  for (const SocketAddress& any : names) {
    std::atomic<int> answers{0};
    const ChannelPtr server = echo_.bind(any).get();
    const ChannelPtr client =
        Bootstrap()
            .group(group_)
            .datagram()
            .option(options::datagramSize, 512)
            .handler([&](Channel& channel) { channel.pipeline().emplaceLast<Count>(answers); })
            .connect(server->localAddress())
            .get();

    for (int i = 0; i < 10; ++i) client->writeAndFlush(ByteBuf::of("ping"));

    EXPECT_TRUE(test::eventually([&] { return answers == 10; }));
    client->close().sync();
    server->close().sync();
  }
}

TEST_P(DatagramBootstrapOn, FailuresLeaveNothingBehind) {
  const ChannelPtr first = echo_.bind(SocketAddress::loopback4(0)).get();

  const Future<ChannelPtr> taken = echo_.bind(first->localAddress());
  taken.await();

  EXPECT_EQ(taken.cause().errnoValue(), EADDRINUSE);
}

// Calls from another thread than the loop's.
TEST_P(DatagramBootstrapOn, GroupsAreJoinedFromAnyThread) {
  const ChannelPtr channel = echo_.bind(SocketAddress::any4(0)).get();
  const SocketAddress group = SocketAddress::inet4({239, 255, 77, 3}, 0);
  const unsigned lo = interfaceOf(SocketAddress::loopback4(0)).orThrow();

  joinGroup(*channel, group, lo).sync();
  leaveGroup(*channel, group, lo).sync();

  EXPECT_THROW(leaveGroup(*channel, group, lo).sync(), Exception);
}

}  // namespace
}  // namespace millrace
