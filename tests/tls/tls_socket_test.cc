// SPDX-License-Identifier: Apache-2.0
// TLS over real sockets, on every engine, with Millrace at both ends or OpenSSL at one.
#include "support/net.h"
#include "tls/tls_fixture.h"

#include <millrace/bootstrap/bootstrap.h>
#include <millrace/bootstrap/server.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EventLog;
using test::LogPtr;
using test::pattern;
using test::succeeds;

struct Carrier {
  const char* name;
  const IoType* engine;
  IoFactory io;
  SocketAddress (*anyAddress)();
  int loops;  // 0: a loop for each channel

  friend std::ostream& operator<<(std::ostream& out, const Carrier& row) { return out << row.name; }
};

std::vector<Carrier> carriers() {
  const auto tcp = [] { return SocketAddress::loopback4(0); };
  const auto local = [] { return SocketAddress::local(""); };
  std::vector<Carrier> all{{"Epoll", &io::epollType, io::epoll(), tcp, 1},
                           {"Poll", &io::pollType, io::poll(), tcp, 1},
                           {"Blocking", &io::blockingType, io::blocking(), tcp, 0},
                           {"Local", &io::epollType, io::epoll(), local, 1}};
  if (ioSupport().uring) all.push_back({"Uring", &io::uringType, io::uring(), tcp, 1});
  return all;
}

class TlsOn : public testing::TestWithParam<Carrier> {
 protected:
  Server serve(const TlsContext& context, const test::Fill& fill) {
    return ServerBootstrap()
        .group(servers_)
        .childHandler([context, fill](Channel& channel) {
          EXPECT_EQ(&channel.loop().ioType(), GetParam().engine);
          channel.pipeline().emplaceLast<TlsHandler>(context);
          fill(channel);
        })
        .bind(GetParam().anyAddress())
        .get();
  }
  ChannelPtr connect(const Server& server, const TlsContext& context, const test::Fill& fill) {
    return Bootstrap()
        .group(clients_)
        .handler([context, fill](Channel& channel) {
          channel.pipeline().emplaceLast<TlsHandler>(context, "localhost");
          fill(channel);
        })
        .connect(server.address())
        .get();
  }

  EventLoopGroup servers_{GetParam().loops, GetParam().io};
  EventLoopGroup clients_{GetParam().loops, GetParam().io};
};

TEST_P(TlsOn, EchoesEverySizeWhole) {
  const Server server = serve(serverBuilder().build(), test::echoing());
  const LogPtr log = std::make_shared<EventLog>();
  // It writes more than fits between the two before it reads: it must not wait for itself.
  const ChannelPtr client = connect(server, clientBuilder().build(), [&](Channel& channel) {
    channel.setOption(options::pauseReadsWhenUnwritable, false);
    test::recording(log)(channel);
  });
  std::string sent;
  for (const std::size_t size : {1u, 100u, 5000u, 16384u, 16385u, 100'000u, 1'000'000u}) {
    const std::string part = pattern(size, static_cast<unsigned>(size));
    sent += part;
    ASSERT_TRUE(succeeds(client->send(ByteBuf::of(part))));
    ASSERT_TRUE(log->awaitBytes(sent.size()));
  }
  EXPECT_TRUE(test::same(log->bytes(), sent));
  ASSERT_TRUE(succeeds(client->close()));
  EXPECT_EQ(log->count("exception"), 0u);
}

TEST_P(TlsOn, TellsTheHandshake) {
  const Server server = serve(serverBuilder().build(), test::echoing());
  const ChannelPtr client = connect(server, clientBuilder().build(), [](Channel&) {});
  const Future<TlsInfo> info = tlsHandshake(*client);
  ASSERT_TRUE(succeeds(info));
  EXPECT_EQ(info.result()->protocol, "TLSv1.3");
  ASSERT_TRUE(succeeds(client->close()));
}

TEST_P(TlsOn, GoesOnWithAnEarlierSession) {
  const TlsContext serverContext = serverBuilder().build();
  const TlsContext clientContext = clientBuilder().build();
  const Server server = serve(serverContext, test::echoing());
  for (int i = 0; i < 3; ++i) {
    const LogPtr log = std::make_shared<EventLog>();
    const ChannelPtr client = connect(server, clientContext, test::recording(log));
    ASSERT_TRUE(succeeds(client->send(ByteBuf::of("ping"))));
    ASSERT_TRUE(log->awaitBytes(4));  // the ticket has come before
    EXPECT_EQ(tlsHandshake(*client).get().resumed, i > 0);
    ASSERT_TRUE(succeeds(client->close()));
  }
  EXPECT_EQ(serverContext.figures().resumed, 2u);
  EXPECT_EQ(clientContext.figures().resumed, 2u);
}

TEST_P(TlsOn, LosesNoAnswerToADrain) {
  const Server server = serve(serverBuilder().build(), test::echoing());
  std::vector<LogPtr> logs;
  std::vector<ChannelPtr> clients;
  const TlsContext context = clientBuilder().build();
  for (int i = 0; i < 10; ++i) {
    logs.push_back(std::make_shared<EventLog>());
    clients.push_back(connect(server, context, test::recording(logs.back())));
    ASSERT_TRUE(succeeds(clients.back()->send(ByteBuf::of("x"))));
    ASSERT_TRUE(logs.back()->awaitBytes(1));
  }
  const std::string request = pattern(20'000);
  for (const ChannelPtr& client : clients) client->send(ByteBuf::of(request));
  for (std::size_t i = 0; i < clients.size(); ++i) ASSERT_TRUE(logs[i]->awaitBytes(2));
  static_cast<void>(server.drain(10s).get());
  for (const LogPtr& log : logs) {
    ASSERT_TRUE(log->await("inactive"));
    EXPECT_EQ(log->count("exception"), 0u) << "the end was said: nothing is truncated";
  }
}

TEST_P(TlsOn, HoldsWhatAPeerThatDoesNotReadMayCost) {
  std::atomic<std::size_t> most{0};
  struct Flood : ChannelHandler {
    explicit Flood(std::atomic<std::size_t>& m) : most(m) {}
    void userEventTriggered(Context& ctx, Message&& event) override {
      if (event.is<TlsHandshakeCompletion>()) pump(ctx);
    }
    void channelWritabilityChanged(Context& ctx) override { pump(ctx); }
    void pump(Context& ctx) {
      while (ctx.channel().isWritable() && sent < 20'000'000) {
        sent += 10'000;
        ctx.write(ByteBuf::of(std::string(10'000, 'f')));
        most = std::max(most.load(), ctx.channel().pendingBytes());
      }
      ctx.flush();
      if (sent >= 20'000'000 && !std::exchange(closed, true)) ctx.close();
    }
    std::atomic<std::size_t>& most;
    std::size_t sent = 0;
    bool closed = false;
  };
  const Server server = serve(serverBuilder().closeTimeout(20s).build(), [&](Channel& channel) {
    channel.pipeline().emplaceLast<Flood>(most);
  });
  const LogPtr log = std::make_shared<EventLog>();
  const ChannelPtr client = connect(server, clientBuilder().build(), test::recording(log));
  ASSERT_TRUE(log->awaitBytes(20'000'000));
  ASSERT_TRUE(log->await("inactive"));
  EXPECT_EQ(log->count("exception"), 0u);
  EXPECT_LT(most.load(), 200'000u) << "the high water mark and a message";
}

TEST_P(TlsOn, DoesHandshakesOnAPool) {
  ThreadPool pool(2);
  {
    const TlsContext context = serverBuilder().offloadHandshakes(pool).build();
    const Server server = serve(context, test::echoing());
    const TlsContext clientContext = clientBuilder().offloadHandshakes(pool).build();
    std::vector<ChannelPtr> clients;
    std::vector<LogPtr> logs;
    for (int i = 0; i < 8; ++i) {
      logs.push_back(std::make_shared<EventLog>());
      clients.push_back(connect(server, clientContext, test::recording(logs.back())));
      clients.back()->send(ByteBuf::of("offloaded"));
    }
    for (std::size_t i = 0; i < clients.size(); ++i) {
      ASSERT_TRUE(logs[i]->awaitBytes(9));
      ASSERT_TRUE(succeeds(clients[i]->close()));
    }
    EXPECT_EQ(context.figures().handshakes, 8u);
  }
}

TEST_P(TlsOn, ReloadsUnderLoadWithoutAFailure) {
  TlsContext context = serverBuilder().build();
  const Server server = serve(context, test::echoing());
  std::atomic<bool> stop{false};
  std::thread reloader([&] {
    while (!stop) EXPECT_TRUE(context.reload().ok());
  });
  const TlsContext clientContext = clientBuilder().build();
  for (int i = 0; i < 40; ++i) {
    const LogPtr log = std::make_shared<EventLog>();
    const ChannelPtr client = connect(server, clientContext, test::recording(log));
    ASSERT_TRUE(succeeds(client->send(ByteBuf::of("ping"))));
    ASSERT_TRUE(log->awaitBytes(4));
    ASSERT_TRUE(succeeds(client->close()));
  }
  stop = true;
  reloader.join();
  EXPECT_EQ(context.figures().failed, 0u);
  EXPECT_EQ(context.figures().handshakes, 40u);
  EXPECT_GE(context.figures().resumed, 30u) << "tickets survive";
}

TEST_P(TlsOn, ClosesThoseWhoSayNothing) {
  const TlsContext context = serverBuilder().handshakeTimeout(50ms).build();
  const LogPtr log = std::make_shared<EventLog>();
  const Server server = serve(context, test::recording(log));
  const ChannelPtr silent =
      Bootstrap().group(clients_).handler([](Channel&) {}).connect(server.address()).get();
  ASSERT_TRUE(succeeds(silent->closeFuture()));
  ASSERT_TRUE(log->await("inactive"));
  EXPECT_EQ(log->count("exception TLS handshake"), 1u);
  EXPECT_EQ(context.figures().timedOut, 1u);
}

INSTANTIATE_TEST_SUITE_P(Carriers, TlsOn, testing::ValuesIn(carriers()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace millrace
