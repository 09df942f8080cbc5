// SPDX-License-Identifier: Apache-2.0
// In-process channels: on every engine, with messages of any type.
#include "support/net.h"

#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/context.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/sys/socket_address.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

namespace millrace::test {
namespace {

class LocalOn : public testing::TestWithParam<const char*> {
 protected:
  EventLoopGroup servers_{2, io::byName(GetParam())};
  EventLoopGroup clients_{2, io::byName(GetParam())};

  Server serve(const Fill& fill, const SocketAddress& address = SocketAddress::local("")) {
    return ServerBootstrap().group(servers_).childHandler(fill).bind(address).get();
  }
  ChannelPtr connect(const Server& server, const Fill& fill) {
    return Bootstrap().group(clients_).handler(fill).connect(server.address()).get();
  }
};

TEST_P(LocalOn, EchoesBetweenLoops) {
  const Server server = serve(echoing());
  const auto log = std::make_shared<EventLog>();
  const ChannelPtr channel = connect(server, recording(log));

  for (int i = 0; i < 100; ++i) channel->send(ByteBuf::of("hello")).sync();

  ASSERT_TRUE(log->awaitBytes(500));
  EXPECT_EQ(channel->loop().ioType().name, std::string(GetParam()));
  EXPECT_EQ(channel->remoteAddress(), server.address());
  channel->close().sync();
  ASSERT_TRUE(log->await("removed"));
  EXPECT_EQ(log->count("active"), 1u);
  EXPECT_EQ(log->count("inactive"), 1u);
}

TEST_P(LocalOn, SendsAllThatWasWrittenBeforeAGracefulClose) {
  const Server server = serve([](Channel& channel) {
    channel.writeAndFlush(ByteBuf::of(std::string(300'000, 'x')));
    channel.closeGracefully();
  });
  const auto log = std::make_shared<EventLog>();
  connect(server, recording(log));

  ASSERT_TRUE(log->await("inactive"));
  EXPECT_EQ(log->byteCount(), 300'000u);
}

TEST_P(LocalOn, ManyMessagesWaitForASlowReader) {
  const auto log = std::make_shared<EventLog>();
  const Server server = serve([&](Channel& channel) {
    channel.setAutoRead(false);
    recording(log)(channel);
  });
  const ChannelPtr channel = connect(server, [](Channel&) {});
  std::vector<Future<void>> sent;
  for (int i = 0; i < 100; ++i)
    sent.push_back(channel->send(ByteBuf::of(std::string(10'000, 'y'))));
  ASSERT_TRUE(log->await("active"));

  EXPECT_FALSE(sent.back().isDone());  // more than a link holds
  EXPECT_EQ(log->byteCount(), 0u);

  servers_.shutdownGracefully().sync();
  channel->closeFuture().sync();
  EXPECT_TRUE(sent.back().await());
}

TEST_P(LocalOn, RefusesWhereNobodyListens) {
  const Future<ChannelPtr> nobody =
      Bootstrap().group(clients_).handler([](Channel&) {}).connect(SocketAddress::local("nobody"));

  nobody.await();

  EXPECT_EQ(nobody.cause().errnoValue(), ECONNREFUSED);
}

TEST_P(LocalOn, RefusesANameThatIsTakenAndFreesItAtTheEnd) {
  const SocketAddress address = SocketAddress::local("taken");
  {
    const Server first = serve(echoing(), address);
    const Future<Server> second =
        ServerBootstrap().group(servers_).childHandler(echoing()).bind(address);
    second.await();
    EXPECT_EQ(second.cause().errnoValue(), EADDRINUSE);
  }

  const Server again = serve(echoing(), address);
  EXPECT_EQ(again.address(), address);
}

TEST_P(LocalOn, TellsTheOtherEndOfAClose) {
  const auto log = std::make_shared<EventLog>();
  const Server server = serve(recording(log));
  const ChannelPtr channel = connect(server, [](Channel&) {});
  ASSERT_TRUE(log->await("active"));

  channel->close().sync();

  EXPECT_TRUE(log->await("removed"));
  const Future<void> late = channel->send(ByteBuf::of("late"));
  late.await();
  EXPECT_TRUE(late.cause().is(Errc::closed));
}

TEST_P(LocalOn, TellsTheClientWhenNobodyAdoptsTheConnection) {
  struct Drops : ChannelHandler {
    void channelRead(Context&, Message&& msg) override { msg.reset(); }
  };
  const Server server = ServerBootstrap()
                            .group(servers_)
                            .handler([](Channel& ch) { ch.pipeline().emplaceLast<Drops>(); })
                            .childHandler(echoing())
                            .bind(SocketAddress::local(""))
                            .get();
  const auto log = std::make_shared<EventLog>();

  connect(server, recording(log));

  EXPECT_TRUE(log->await("inactive"));
}

TEST_P(LocalOn, RestsWhileItHasLeftItsLoop) {
  const Server server = serve(echoing());
  const auto log = std::make_shared<EventLog>();
  const ChannelPtr channel = connect(server, recording(log));
  channel->send(ByteBuf::of("hello")).sync();
  channel->deregister().sync();
  const std::size_t before = log->byteCount();
  channel->loop().submit([] {}).sync();
  EXPECT_EQ(log->byteCount(), before);

  registerChannel(channel->loop(), channel).sync();

  EXPECT_TRUE(log->awaitBytes(5));
}

INSTANTIATE_TEST_SUITE_P(Engines, LocalOn, testing::Values("epoll", "poll", "parking"),
                         [](const testing::TestParamInfo<const char*>& row) {
                           return std::string(row.param);
                         });

}  // namespace
}  // namespace millrace::test
