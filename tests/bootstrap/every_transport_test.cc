// SPDX-License-Identifier: Apache-2.0
// What a user may rely on whatever carries the bytes: one source for every engine and transport,
// with Millrace at both ends.
#include "support/net.h"

#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/channel_events.h>
#include <millrace/channel/context.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <charconv>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

struct Carrier {
  const char* name;
  const IoType* engine;
  IoFactory io;
  SocketAddress (*anyAddress)();
  const char* kind;  // of a connection
  int loops;         // 0: a loop for each channel

  friend std::ostream& operator<<(std::ostream& out, const Carrier& row) { return out << row.name; }
};

std::vector<Carrier> carriers() {
  const auto tcp = [] { return SocketAddress::loopback4(0); };
  const auto local = [] { return SocketAddress::local(""); };
  std::vector<Carrier> all{{"Epoll", &io::epollType, io::epoll(), tcp, "tcp", 2},
                           {"Poll", &io::pollType, io::poll(), tcp, "tcp", 2},
                           {"Blocking", &io::blockingType, io::blocking(), tcp, "tcp", 0},
                           {"Local", &io::epollType, io::epoll(), local, "local", 2}};
  if (ioSupport().uring) {
    all.push_back({"Uring", &io::uringType, io::uring(), tcp, "tcp", 2});
    all.push_back({"LocalOnUring", &io::uringType, io::uring(), local, "local", 2});
  }
  return all;
}

class EveryTransport : public testing::TestWithParam<Carrier> {
 protected:
  ServerBootstrap serverBootstrap(const Fill& fill) {
    return ServerBootstrap().group(servers_).childHandler([fill](Channel& channel) {
      EXPECT_EQ(&channel.loop().ioType(), GetParam().engine);
      EXPECT_STREQ(channel.kind(), GetParam().kind);
      fill(channel);
    });
  }
  Server serve(const Fill& fill) {
    Server server = serverBootstrap(fill).bind(GetParam().anyAddress()).get();
    EXPECT_EQ(&server.channel().loop().ioType(), GetParam().engine);
    return server;
  }
  Bootstrap clientBootstrap(const Fill& fill) { return Bootstrap().group(clients_).handler(fill); }
  ChannelPtr connect(const Server& server, const Fill& fill) {
    ChannelPtr channel = clientBootstrap(fill).connect(server.address()).get();
    EXPECT_EQ(&channel->loop().ioType(), GetParam().engine);
    EXPECT_STREQ(channel->kind(), GetParam().kind);
    EXPECT_EQ(channel->remoteAddress(), server.address());
    return channel;
  }

  EventLoopGroup servers_{GetParam().loops, GetParam().io};
  EventLoopGroup clients_{GetParam().loops, GetParam().io};
  const LogPtr log_ = std::make_shared<EventLog>();
  const LogPtr serverLog_ = std::make_shared<EventLog>();
};

// C015
TEST_P(EveryTransport, EchoesInOrder) {
  const Server server = serve(echoing());
  const ChannelPtr channel = connect(server, recording(log_));
  const std::string text = pattern(50'000);

  for (std::size_t i = 0; i < text.size(); i += 50) {
    channel->writeAndFlush(ByteBuf::of(text.substr(i, 50)));
  }

  ASSERT_TRUE(log_->awaitBytes(text.size()));
  EXPECT_TRUE(same(log_->bytes(), text));
}

TEST_P(EveryTransport, CarriesAMessageLargerThanAllBuffers) {
  const Server server = serve(echoing());
  const ChannelPtr channel = connect(server, recording(log_));
  const std::string text = pattern(3'000'000);

  ASSERT_TRUE(succeeds(channel->send(ByteBuf::of(text))));

  ASSERT_TRUE(log_->awaitBytes(text.size()));
  EXPECT_TRUE(same(log_->bytes(), text));
}

TEST_P(EveryTransport, TellsTheLifeOfAConnectionInOrder) {
  const Server server = serve(recording(serverLog_));
  const ChannelPtr channel = connect(server, recording(log_));

  ASSERT_TRUE(succeeds(channel->send(ByteBuf::of("hello"))));
  ASSERT_TRUE(serverLog_->await("readComplete"));
  ASSERT_TRUE(succeeds(channel->close()));
  ASSERT_TRUE(log_->await("removed"));
  ASSERT_TRUE(serverLog_->await("removed"));

  EXPECT_THAT(log_->events(),
              ElementsAre("added", "registered", "active", "inactive", "unregistered", "removed"));
  EXPECT_THAT(serverLog_->events(),
              ElementsAre("added", "registered", "active", "read 5", "readComplete", "inactive",
                          "unregistered", "removed"));
}

TEST_P(EveryTransport, AnswersAfterThePeerHasEndedItsStream) {
  struct AnswersAtTheEnd : ChannelHandler {
    void userEventTriggered(Context& ctx, Message&& event) override {
      if (!event.is<InputShutdown>()) return;
      ctx.writeAndFlush(ByteBuf::of("the answer"));
      ctx.channel().closeGracefully();
    }
  };
  const Server server =
      serverBootstrap([](Channel& channel) { channel.pipeline().emplaceLast<AnswersAtTheEnd>(); })
          .childOption(options::allowHalfClosure, true)
          .bind(GetParam().anyAddress())
          .get();
  const ChannelPtr channel = connect(server, recording(log_));

  channel->writeAndFlush(ByteBuf::of("the question"));
  ASSERT_TRUE(succeeds(channel->shutdownOutput()));

  ASSERT_TRUE(log_->await("inactive"));
  EXPECT_EQ(log_->bytes(), "the answer");
  EXPECT_EQ(log_->count("exception"), 0U);
}

TEST_P(EveryTransport, SendsAllThatWasWrittenBeforeAGracefulClose) {
  const std::string text = pattern(2'000'000);
  const Server server = serve([&](Channel& channel) {
    channel.writeAndFlush(ByteBuf::of(text));
    channel.closeGracefully();
  });

  const ChannelPtr channel = connect(server, recording(log_));

  ASSERT_TRUE(log_->await("inactive"));
  EXPECT_TRUE(same(log_->bytes(), text));
  EXPECT_EQ(log_->count("exception"), 0U);
}

// The one who writes is told when to stop and when to go on; nothing is lost meanwhile.
TEST_P(EveryTransport, HoldsBackWhoWritesMoreThanThePeerReads) {
  constexpr std::size_t kTotal = 16'000'000;
  struct Source : ChannelHandler {
    explicit Source(LogPtr log) : log_(std::move(log)) {}
    void channelActive(Context& ctx) override { pump(ctx); }
    void channelWritabilityChanged(Context& ctx) override {
      log_->add(ctx.channel().isWritable() ? "writable" : "unwritable");
      if (ctx.channel().isWritable()) pump(ctx);
    }
    void pump(Context& ctx) {
      while (ctx.channel().isWritable() && sent_ < kTotal) {
        ctx.write(ByteBuf::of(std::string(10'000, 'x')));
        sent_ += 10'000;
      }
      ctx.flush();
      EXPECT_LE(ctx.channel().pendingBytes(), 64 * 1024U + 11'000U);
    }
    LogPtr log_;  // shared with the test
    std::size_t sent_ = 0;
  };
  const Server server =
      serve([&](Channel& channel) { channel.pipeline().emplaceLast<Source>(serverLog_); });
  const ChannelPtr channel = connect(server, [&](Channel& each) {
    each.setAutoRead(false);
    recording(log_)(each);
  });

  ASSERT_TRUE(serverLog_->await("unwritable"));
  EXPECT_EQ(log_->byteCount(), 0U);
  channel->setAutoRead(true);

  ASSERT_TRUE(log_->awaitBytes(kTotal));
  EXPECT_GE(serverLog_->count("writable"), 1U);
}

TEST_P(EveryTransport, ReadsOnlyWhatIsAskedFor) {
  ChannelPtr accepted;
  const Server server = serve([&](Channel& channel) {
    accepted = ChannelPtr(&channel);
    channel.setAutoRead(false);
    recording(serverLog_)(channel);
  });
  const ChannelPtr channel = connect(server, [](Channel&) {});
  ASSERT_TRUE(succeeds(channel->send(ByteBuf::of("one"))));
  ASSERT_TRUE(serverLog_->await("active"));
  EXPECT_EQ(serverLog_->byteCount(), 0U);

  accepted->read();

  ASSERT_TRUE(serverLog_->await("readComplete"));
  EXPECT_EQ(serverLog_->bytes(), "one");
  ASSERT_TRUE(succeeds(channel->send(ByteBuf::of("two"))));
  EXPECT_EQ(serverLog_->bytes(), "one");
}

TEST_P(EveryTransport, KeepsTheOrderOfEachThreadThatWrites) {
  constexpr int kThreads = 4;
  constexpr int kWrites = 300;
  const Server server = serve(echoing());
  const ChannelPtr channel = connect(server, recording(log_));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kWrites; ++i) {
          std::string line = std::to_string(t) + " " + std::to_string(i);
          line.resize(9, ' ');
          channel->writeAndFlush(ByteBuf::of(line + "\n"));
        }
      });
    }
  }
  ASSERT_TRUE(log_->awaitBytes(kThreads * kWrites * 10));

  const std::string got = log_->bytes();
  std::map<char, int> next;
  for (std::size_t at = 0; at < got.size(); at += 10) {
    int number = -1;
    std::from_chars(got.data() + at + 2, got.data() + at + 9, number);
    EXPECT_EQ(number, next[got[at]]++) << "thread " << got[at];
  }
}

TEST_P(EveryTransport, FailsWhatIsWrittenToAClosedChannel) {
  const Server server = serve(echoing());
  const ChannelPtr channel = connect(server, recording(log_));

  EXPECT_TRUE(succeeds(channel->close()));
  EXPECT_TRUE(succeeds(channel->close()));
  EXPECT_TRUE(succeeds(channel->closeFuture()));

  EXPECT_TRUE(failsWith(channel->send(ByteBuf::of("late")), Errc::closed));
  EXPECT_FALSE(channel->isActive());
  EXPECT_FALSE(channel->isWritable());
}

TEST_P(EveryTransport, IsRefusedWhereNobodyListens) {
  const Nobody nobody;
  const bool isLocal = !GetParam().anyAddress().isInet();
  const SocketAddress gone = isLocal ? SocketAddress::local("nobody") : nobody.address();
  const Future<ChannelPtr> connecting = clientBootstrap(recording(log_)).connect(gone);

  EXPECT_EQ(errnoOf(connecting), ECONNREFUSED);
  EXPECT_EQ(log_->count("active"), 0U);
}

TEST_P(EveryTransport, ClosesAConnectionWhoseHandlerThrowsAndServesOthers) {
  struct Throws : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override {
      if (msg.as<ByteBuf>()->text() == "bad") throw std::runtime_error("a bad message");
      ctx.writeAndFlush(std::move(msg));
    }
    void exceptionCaught(Context& ctx, const Error& error) override {
      EXPECT_THAT(error.message(), HasSubstr("a bad message"));
      ctx.close();
    }
  };
  const Server server = serve([](Channel& channel) { channel.pipeline().emplaceLast<Throws>(); });
  const ChannelPtr bad = connect(server, recording(log_));
  const auto others = std::make_shared<EventLog>();
  const ChannelPtr good = connect(server, recording(others));

  bad->writeAndFlush(ByteBuf::of("bad"));
  good->writeAndFlush(ByteBuf::of("good"));

  ASSERT_TRUE(log_->await("inactive"));
  EXPECT_EQ(log_->byteCount(), 0U);
  ASSERT_TRUE(others->awaitBytes(4));
  EXPECT_TRUE(good->isActive());
}

TEST_P(EveryTransport, DrainsWithEveryAnswerWhole) {
  struct Answers : ChannelHandler {
    void channelRead(Context& ctx, Message&&) override {
      ctx.writeAndFlush(ByteBuf::of(pattern(2'000'000)));
    }
  };
  Server server = serve([&](Channel& channel) {
    recording(serverLog_)(channel);
    channel.pipeline().emplaceLast<Answers>();
  });
  std::vector<LogPtr> logs;
  for (int i = 0; i < 5; ++i) {
    logs.push_back(std::make_shared<EventLog>());
    connect(server, recording(logs.back()))->writeAndFlush(ByteBuf::of("question"));
  }
  ASSERT_TRUE(serverLog_->await("read 8", 5));  // each of them is answered before a drain can begin

  const DrainReport report = server.drain(20s).get();

  EXPECT_EQ(report.cut, 0U);
  for (const LogPtr& each : logs) {
    ASSERT_TRUE(each->await("inactive"));
    EXPECT_TRUE(same(each->bytes(), pattern(2'000'000)));
    EXPECT_EQ(each->count("exception"), 0U);
  }
}

// Of the listeners only; a connection that was accepted is served.
TEST_P(EveryTransport, ClosingAServerLeavesItsConnections) {
  Server server = serve(echoing());
  const ChannelPtr channel = connect(server, recording(log_));
  channel->writeAndFlush(ByteBuf::of("hello"));
  ASSERT_TRUE(log_->awaitBytes(5));  // so it was accepted

  ASSERT_TRUE(succeeds(server.close()));

  channel->writeAndFlush(ByteBuf::of("still here"));
  EXPECT_TRUE(log_->awaitBytes(15));
}

// What the link or the kernel does not hold is sent although the peer has ended its own stream.
TEST_P(EveryTransport, AGracefulCloseSendsAllToAPeerThatHasEndedItsStream) {
  const std::string text = pattern(3'000'000);
  const Server server = serverBootstrap([&](Channel& channel) {
                          recording(serverLog_)(channel);
                          channel.writeAndFlush(ByteBuf::of(text));
                          channel.writeAndFlush(ByteBuf::of("the end"));
                        })
                            .childOption(options::allowHalfClosure, true)
                            .bind(GetParam().anyAddress())
                            .get();
  const ChannelPtr channel = connect(server, [&](Channel& each) {
    each.setAutoRead(false);
    recording(log_)(each);
  });
  ASSERT_TRUE(succeeds(channel->shutdownOutput()));
  ASSERT_TRUE(serverLog_->await("event"));

  const Future<DrainReport> drained = server.drain(20s);
  channel->setAutoRead(true);

  EXPECT_EQ(drained.get().cut, 0U);
  ASSERT_TRUE(log_->awaitBytes(text.size() + 7));
  EXPECT_TRUE(same(log_->bytes(), text + "the end"));
}

TEST_P(EveryTransport, EndsWithItsGroup) {
  const Server server = serve(echoing());
  const ChannelPtr channel = connect(server, recording(log_));
  channel->writeAndFlush(ByteBuf::of("hello"));
  ASSERT_TRUE(log_->awaitBytes(5));

  servers_.shutdownGracefully(0s, 10s).sync();

  ASSERT_TRUE(log_->await("inactive"));
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_EQ(servers_.metrics().registrations, 0U);
}

INSTANTIATE_TEST_SUITE_P(Carriers, EveryTransport, testing::ValuesIn(carriers()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace millrace::test
