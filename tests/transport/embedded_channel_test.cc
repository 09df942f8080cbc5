// SPDX-License-Identifier: Apache-2.0
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/channel/channel_events.h>
#include <millrace/sys/socket_address.h>
#include <millrace/transport/embedded_channel.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::textOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Doubles numbers on the way in, makes text of them on the way out.
struct Doubler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override {
    ctx.fireChannelRead(msg.take<int>() * 2);
  }
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
    ctx.write(ByteBuf::of(std::to_string(msg.take<int>())), std::move(done));
  }
};

TEST(EmbeddedChannel, HandsOnWhatCameToBothEndsOfThePipeline) {
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<Doubler>(); });

  EXPECT_TRUE(channel.writeInbound(1, 2));
  EXPECT_EQ(channel.readInbound<int>(), 2);
  EXPECT_EQ(channel.readInbound<int>(), 4);
  EXPECT_EQ(channel.readInbound<int>(), std::nullopt);
  EXPECT_TRUE(channel.writeOutbound(7, 8));
  EXPECT_EQ(channel.readOutbound<ByteBuf>()->text(), "7");
  EXPECT_EQ(channel.outboundText(), "8");
  EXPECT_FALSE(channel.finish());
  EXPECT_FALSE(channel.readOutbound());
}

TEST(EmbeddedChannel, IsRegisteredAndActiveFromTheBeginning) {
  EmbeddedChannel channel;

  EXPECT_TRUE(channel.isOpen());
  EXPECT_TRUE(channel.isRegistered());
  EXPECT_TRUE(channel.isActive());
  EXPECT_TRUE(channel.isWritable());
  EXPECT_EQ(channel.describe(), "[" + std::to_string(channel.id()) + " embedded]");
}

TEST(EmbeddedChannel, WaitsWithItsRegistrationIfItIsTold) {
  std::vector<std::string> events;
  struct Recorder : ChannelHandler {
    explicit Recorder(std::vector<std::string>& to) : events(to) {}
    void handlerAdded(Context&) override { events.emplace_back("added"); }
    void channelActive(Context&) override { events.emplace_back("active"); }
    std::vector<std::string>& events;
  };
  EmbeddedChannel channel({.registered = false},
                          [&](Channel& ch) { ch.pipeline().emplaceLast<Recorder>(events); });
  EXPECT_FALSE(channel.isRegistered());
  EXPECT_THAT(events, ElementsAre());

  EXPECT_TRUE(channel.start().isSuccess());

  EXPECT_THAT(events, ElementsAre("added", "active"));
}

TEST(EmbeddedChannel, SaysWhatTheNextMessageIs) {
  EmbeddedChannel channel;
  channel.writeInbound(std::string("text"), ByteBuf::of("bytes"));

  EXPECT_THAT(textOf<std::logic_error>([&] { channel.readInbound<int>(); }),
              AllOf(HasSubstr("readInbound<int>()"), HasSubstr("string")));
  EXPECT_THAT(textOf<std::logic_error>([&] { channel.inboundText(); }), HasSubstr("string"));
  EXPECT_EQ(channel.readInbound<std::string>(), "text");
  EXPECT_EQ(channel.inboundText(), "bytes");
}

TEST(EmbeddedChannel, ThrowsTheErrorThatNoHandlerTook) {
  struct Thrower : ChannelHandler {
    void channelRead(Context&, Message&&) override { throw std::runtime_error("no good"); }
  };
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<Thrower>(); });

  EXPECT_EQ(textOf<std::runtime_error>([&] { channel.writeInbound(1); }), "no good");
  channel.checkException();  // once is enough
  EXPECT_FALSE(channel.takeException());
}

TEST(EmbeddedChannel, TellsOfErrorsThatNobodyAskedForWhenItGoes) {
  test::LogCapture log("warn");
  {
    EmbeddedChannel channel;
    channel.run([&] { channel.pipeline().fireExceptionCaught(Error(Errc::closed, "forgotten")); });
  }
  EXPECT_TRUE(log.contains("forgotten"));
}

TEST(EmbeddedChannel, ThrowsFromItsConstructorIfItCannotBeFilled) {
  EXPECT_EQ(textOf<std::runtime_error>([] {
              EmbeddedChannel channel([](Channel&) { throw std::runtime_error("not today"); });
            }),
            "not today");
}

TEST(EmbeddedChannel, KeepsTimeFrozenUntilItIsMoved) {
  EmbeddedChannel channel;
  std::vector<int> ran;
  channel.loop().schedule(2s, [&] { ran.push_back(2); });
  channel.loop().schedule(1s, [&] { ran.push_back(1); });
  channel.runPendingTasks();
  EXPECT_THAT(ran, ElementsAre());

  channel.advanceTimeBy(1s);
  EXPECT_THAT(ran, ElementsAre(1));
  channel.advanceTimeBy(10s);

  EXPECT_THAT(ran, ElementsAre(1, 2));
  EXPECT_EQ(channel.clock().nanos(), 11'000'000'000);
}

TEST(EmbeddedChannel, RunsWhatTasksPostAndTellsOfThoseThatDoNotEnd) {
  int left = 1000;
  bool stop = false;
  std::function<void()> again;
  std::function<void()> forEver;
  EmbeddedChannel channel;
  again = [&] {
    if (--left > 0) channel.loop().execute(again);
  };
  forEver = [&] {
    if (!stop) channel.loop().execute(forEver);
  };
  channel.loop().execute(again);
  channel.runPendingTasks();
  EXPECT_EQ(left, 0);

  channel.loop().execute(forEver);
  EXPECT_THAT(textOf<std::logic_error>([&] { channel.runPendingTasks(); }),
              HasSubstr("posts itself again and again"));
  stop = true;
}

TEST(EmbeddedChannel, GivesWhatACallOnItsLoopGivesOrThrows) {
  EmbeddedChannel channel;

  EXPECT_TRUE(channel.run([&] { return channel.loop().inEventLoop(); }));
  EXPECT_THROW(channel.run([] { throw std::runtime_error("x"); }), std::runtime_error);
  EXPECT_EQ(channel.run([&] { return channel.run([] { return 3; }); }), 3);
}

TEST(EmbeddedChannel, HoldsBackInputThatNobodyWants) {
  EmbeddedChannel channel;
  channel.setAutoRead(false);

  EXPECT_FALSE(channel.writeInbound(1, 2, 3));
  EXPECT_EQ(channel.waitingSize(), 3U);
  channel.read();
  channel.runPendingTasks();
  EXPECT_EQ(channel.inboundSize(), 1U);
  channel.setAutoRead(true);
  channel.runPendingTasks();

  EXPECT_EQ(channel.inboundSize(), 3U);
  EXPECT_EQ(channel.waitingSize(), 0U);
}

TEST(EmbeddedChannel, EndsTheInputBehindWhatWaits) {
  EmbeddedChannel channel;
  channel.setAutoRead(false);
  channel.writeInbound(1);
  channel.endInput();
  EXPECT_TRUE(channel.isOpen());

  channel.setAutoRead(true);
  channel.runPendingTasks();

  EXPECT_EQ(channel.readInbound<int>(), 1);
  EXPECT_FALSE(channel.isOpen());
}

TEST(EmbeddedChannel, ReportsTheEndOfTheInputWhereHalfAConnectionIsAllowed) {
  EmbeddedChannel channel;
  channel.setOption(options::allowHalfClosure, true);
  channel.runPendingTasks();

  channel.endInput();

  EXPECT_TRUE(channel.isOpen());
  EXPECT_TRUE(channel.readUserEvent().is<InputShutdown>());
  EXPECT_TRUE(channel.run([&] { return channel.shutdownOutput(); }).isSuccess());
  EXPECT_TRUE(channel.isOutputShutdown());
  EXPECT_FALSE(channel.isOpen());
}

TEST(EmbeddedChannel, PassesSingleMessagesWithoutEndingTheBurst) {
  struct Counter : ChannelHandler {
    void channelReadComplete(Context&) override { ++completes; }
    int completes = 0;
  };
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<Counter>(); });
  channel.writeOneInbound(1);
  channel.writeOneInbound(2);
  EXPECT_EQ(channel.handler<Counter>()->completes, 0);

  EXPECT_TRUE(channel.flushInbound());

  EXPECT_EQ(channel.handler<Counter>()->completes, 1);
  EXPECT_EQ(channel.inboundSize(), 2U);
}

TEST(EmbeddedChannel, StallsAndTakesBytesOneByOne) {
  EmbeddedChannel channel;
  channel.stall();
  const Future<void> first = channel.writeOneOutbound(ByteBuf::of("hello"));
  const Future<void> second = channel.writeOneOutbound(42);
  EXPECT_FALSE(channel.flushOutbound());

  channel.takeBytes(2);
  EXPECT_EQ(channel.outboundText(), "he");
  EXPECT_FALSE(first.isDone());
  channel.takeBytes(3);
  EXPECT_EQ(channel.outboundText(), "llo");
  EXPECT_TRUE(first.isSuccess());
  EXPECT_FALSE(second.isDone());
  channel.resume();

  EXPECT_EQ(channel.readOutbound<int>(), 42);
  EXPECT_TRUE(second.isSuccess());
}

TEST(EmbeddedChannel, FailsSomeWritesAndStaysOpen) {
  EmbeddedChannel channel;
  channel.failNextWrites(Error::fromErrno(EMSGSIZE, "write"), 2);
  const Future<void> first = channel.writeOneOutbound(1);
  const Future<void> second = channel.writeOneOutbound(2);
  const Future<void> third = channel.writeOneOutbound(3);
  channel.flushOutbound();

  EXPECT_EQ(first.cause().errnoValue(), EMSGSIZE);
  EXPECT_EQ(second.cause().errnoValue(), EMSGSIZE);
  EXPECT_TRUE(third.isSuccess());
  EXPECT_EQ(channel.readOutbound<int>(), 3);
  EXPECT_TRUE(channel.isOpen());
  channel.failNextWrites(Error::fromErrno(EMSGSIZE, "write"));
  EXPECT_THROW(channel.writeOutbound(4), Exception);
}

TEST(EmbeddedChannel, BreaksWhenItIsTold) {
  EmbeddedChannel channel;
  channel.breakWith(Error::fromErrno(ECONNRESET, "read"));

  EXPECT_FALSE(channel.isOpen());
  EXPECT_EQ(channel.closeCause().errnoValue(), ECONNRESET);
  EXPECT_EQ(channel.takeException().errnoValue(), ECONNRESET);
}

TEST(EmbeddedChannel, ConnectsAtOnceOrLaterOrNot) {
  const SocketAddress peer = SocketAddress::loopback4(80);
  {
    EmbeddedChannel channel({.connected = false});
    EXPECT_FALSE(channel.isActive());
    EXPECT_TRUE(channel.run([&] { return channel.connect(peer); }).isSuccess());
    EXPECT_TRUE(channel.isActive());
    EXPECT_EQ(channel.remoteAddress(), peer);
  }
  {
    EmbeddedChannel channel({.connected = false});
    channel.holdConnects();
    const Future<void> connected = channel.run([&] { return channel.connect(peer); });
    EXPECT_FALSE(connected.isDone());
    channel.finishConnect();
    EXPECT_TRUE(connected.isSuccess());
    EXPECT_TRUE(channel.isActive());
  }
  EmbeddedChannel channel({.connected = false});
  channel.holdConnects();
  const Future<void> connected = channel.run([&] { return channel.connect(peer); });
  channel.advanceTimeBy(30s);
  EXPECT_TRUE(connected.cause().is(Errc::timedOut));
  EXPECT_FALSE(channel.isOpen());
}

TEST(EmbeddedChannel, TakesCallsOfOtherThreads) {
  EmbeddedChannel channel;
  std::thread other([&] {
    channel.pipeline().emplaceLast<Doubler>();
    channel.writeAndFlush(21);
  });
  other.join();
  EXPECT_EQ(channel.outboundSize(), 0U);

  channel.runPendingTasks();

  EXPECT_EQ(channel.outboundText(), "21");
}

TEST(EmbeddedChannel, CountsTheBuffersThatAreStillOut) {
  EmbeddedChannel channel;
  channel.pipeline().emplaceLast<Doubler>();
  EXPECT_EQ(channel.liveBuffers(), 0);
  ByteBuf kept = channel.run([&] { return channel.pipeline().first()->allocate(100); });
  EXPECT_EQ(channel.liveBuffers(), 1);
  kept = ByteBuf();

  EXPECT_EQ(channel.liveBuffers(), 0);
}

TEST(EmbeddedChannelDeathTest, DoesNotGoWhileSomebodyRefersToIt) {
  EXPECT_DEATH(
      {
        ChannelPtr kept;
        EmbeddedChannel channel;
        kept = ChannelPtr(&channel);
      },
      "while a ChannelPtr to it is held");
}

TEST(EmbeddedChannelEnd, TellsHandlersOfAGracefulClose) {
  struct Polite : ChannelHandler {
    void userEventTriggered(Context& ctx, Message&& event) override {
      if (event.is<ClosingGracefully>()) ctx.writeAndFlush(ByteBuf::of("goodbye"));
    }
  };
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<Polite>(); });

  channel.run([&] { channel.closeGracefully(); });

  EXPECT_EQ(channel.outboundText(), "goodbye");
  EXPECT_FALSE(channel.isOpen());
}

}  // namespace
}  // namespace millrace
