// SPDX-License-Identifier: Apache-2.0
// The echo of reactor_variants_test.cc over TLS, on every engine.
#include "support/net.h"
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace millrace::test {
namespace {

struct Variant {
  std::string name;
  int workers;
  std::string bossIo;
  std::string workerIo;
};

class TlsEcho : public testing::TestWithParam<Variant> {};

/// Notes which TlsHandler each connection has, and that it is the first of its handlers.
struct Handlers {
  std::mutex mutex;
  std::set<const TlsHandler*> seen;

  void note(Channel& channel) {
    const auto* handler = channel.pipeline().get<TlsHandler>();
    EXPECT_EQ(&channel.pipeline().first()->handler(), handler);
    const std::lock_guard lock(mutex);
    seen.insert(handler);
  }
};

// C210
TEST_P(TlsEcho, IsTheSameAsWithoutTls) {
  constexpr std::size_t kConnections = 8;
  const Variant& setup = GetParam();
  const TlsContext forServer = serverBuilder().build();
  const TlsContext forClient = clientBuilder().build();
  Handlers handlers;
  EventLoopGroup workers(setup.workers, io::byName(setup.workerIo));
  EventLoopGroup boss(1, io::byName(setup.bossIo));
  const Server server = ServerBootstrap()
                            .group(boss, workers)
                            .childHandler([&](Channel& channel) {
                              channel.pipeline().emplaceLast<TlsHandler>(forServer);
                              echoing()(channel);
                              handlers.note(channel);
                            })
                            .bind(SocketAddress::loopback4(0))
                            .get();

  std::vector<ChannelPtr> channels;
  std::vector<LogPtr> logs;
  for (std::size_t i = 0; i < kConnections; ++i) {
    logs.push_back(std::make_shared<EventLog>());
    channels.push_back(Bootstrap()
                           .group(workers)
                           .handler([&, log = logs.back()](Channel& channel) {
                             channel.pipeline().emplaceLast<TlsHandler>(forClient, "localhost");
                             recording(log)(channel);
                           })
                           .connect(server.address())
                           .get());
  }
  std::string all;
  for (int round = 0; round < 20; ++round) {
    const std::string text = "message " + std::to_string(round) + std::string(1000, '.');
    all += text;
    for (const ChannelPtr& channel : channels) channel->writeAndFlush(ByteBuf::of(text));
    for (const LogPtr& log : logs) ASSERT_TRUE(log->awaitBytes(all.size()));
  }
  for (const LogPtr& log : logs) EXPECT_EQ(log->bytes(), all);

  for (const ChannelPtr& channel : channels) channel->close().sync();
  for (const LogPtr& log : logs) EXPECT_EQ(log->count("exception"), 0u);
  EXPECT_EQ(handlers.seen.size(), kConnections);
  EXPECT_EQ(forServer.figures().handshakes, kConnections);
  EXPECT_EQ(forServer.figures().failed, 0u);
  for (const EventLoop& loop : workers) EXPECT_EQ(loop.ioType().name, setup.workerIo);
}

INSTANTIATE_TEST_SUITE_P(Groups, TlsEcho,
                         testing::Values(Variant{"OneWorker", 1, "epoll", "epoll"},
                                         Variant{"Workers", 3, "epoll", "epoll"},
                                         Variant{"OnUring", 2, "uring", "uring"},
                                         Variant{"OnPoll", 2, "poll", "poll"},
                                         Variant{"ThreadPerChannel", 0, "epoll", "blocking"}),
                         [](const testing::TestParamInfo<Variant>& row) { return row.param.name; });

}  // namespace
}  // namespace millrace::test
