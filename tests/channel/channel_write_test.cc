// SPDX-License-Identifier: Apache-2.0
// Writes, flushes and closes that meet each other, and promises that were cancelled before.
#include "support/loop_test.h"
#include "support/recorder.h"

#include <millrace/channel/channel_metrics.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using test::Log;
using test::Recorder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Promise<void> promiseOf(Channel& channel, std::function<void(const Result<void>&)> then) {
  Promise<void> promise(channel.loop());
  promise.future().addListener(std::move(then));
  return promise;
}

Promise<void> cancelledPromise(Channel& channel, Future<void>& future) {
  Promise<void> promise(channel.loop());
  future = promise.future();
  EXPECT_TRUE(future.cancel());
  return promise;
}

// --- cancelled before the operation ---

/// The operation is asked for at the context of the last handler, with a promise.
struct Operation {
  const char* name;
  std::function<void(Context& ctx, Promise<void> done)> ask;
};

const SocketAddress kAddress = SocketAddress::loopback4(7);

class CancelledBefore : public testing::TestWithParam<Operation> {};

// behaviour 3.9 items 36 to 40
TEST_P(CancelledBefore, DoesNothing) {
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<ChannelHandler>(); });
  Future<void> future;

  channel.run(
      [&] { GetParam().ask(*channel.pipeline().first(), cancelledPromise(channel, future)); });

  EXPECT_TRUE(future.isCancelled());
  EXPECT_TRUE(channel.isOpen() && channel.isRegistered() && channel.isActive());
  EXPECT_FALSE(channel.localAddress());
  EXPECT_FALSE(channel.remoteAddress());
}

INSTANTIATE_TEST_SUITE_P(
    Operations, CancelledBefore,
    testing::Values(
        Operation{"bind",
                  [](Context& ctx, Promise<void> done) { ctx.bind(kAddress, std::move(done)); }},
        Operation{"connect",
                  [](Context& ctx, Promise<void> done) { ctx.connect(kAddress, std::move(done)); }},
        Operation{"disconnect",
                  [](Context& ctx, Promise<void> done) { ctx.disconnect(std::move(done)); }},
        Operation{"close", [](Context& ctx, Promise<void> done) { ctx.close(std::move(done)); }},
        Operation{"deregister",
                  [](Context& ctx, Promise<void> done) { ctx.deregister(std::move(done)); }}),
    [](const auto& each) { return each.param.name; });

// behaviour 3.9 item 41: neither with a flush of its own nor with a later one
TEST(CancelledWrite, IsNotWrittenAndItsMessageGoes) {
  const ByteBuf bytes = ByteBuf::of("never");
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<ChannelHandler>(); });
  Future<void> first;
  Future<void> second;
  channel.run([&] {
    Context& ctx = *channel.pipeline().first();
    ctx.write(bytes.share(), cancelledPromise(channel, first));
    ctx.writeAndFlush(bytes.share(), cancelledPromise(channel, second));
  });
  channel.flushOutbound();

  EXPECT_EQ(channel.outboundSize(), 0U);
  EXPECT_TRUE(first.isCancelled() && second.isCancelled());
  EXPECT_FALSE(bytes.isShared());
  EXPECT_EQ(channel.run([&] { return channel.pendingBytes(); }), 0U);
}

// behaviour 3.9 item 41: later than the write, but before the flush; not after it
TEST(CancelledWrite, IsPossibleUntilTheFlush) {
  EmbeddedChannel channel;
  const Future<void> early = channel.writeOneOutbound(ByteBuf::of("a"));
  const Future<void> late = channel.writeOneOutbound(ByteBuf::of("b"));
  EXPECT_TRUE(early.cancel());
  channel.stall();
  channel.flushOutbound();
  EXPECT_FALSE(late.cancel());

  channel.resume();

  EXPECT_EQ(channel.outboundText(), "b");
  EXPECT_TRUE(late.isSuccess());
}

// --- closed before the operation ---

// F21, behaviour 3.11: a promise on a closed channel fails at once, the message goes
TEST(AfterTheClose, EveryOperationFailsAndSaysSo) {
  EmbeddedChannel channel;
  channel.close();
  const ByteBuf bytes = ByteBuf::of("x");

  const Future<void> written = channel.writeOneOutbound(bytes.share());
  EXPECT_TRUE(written.cause().is(Errc::closed));
  EXPECT_THAT(written.cause().message(), HasSubstr(channel.describe()));
  EXPECT_FALSE(bytes.isShared());
  channel.run([&] {
    EXPECT_TRUE(channel.bind(kAddress).cause().is(Errc::closed));
    EXPECT_TRUE(channel.connect(kAddress).cause().is(Errc::closed));
    EXPECT_TRUE(channel.disconnect().cause().is(Errc::closed));
    EXPECT_TRUE(channel.shutdownOutput().cause().is(Errc::closed));
    EXPECT_TRUE(channel.send(bytes.share()).cause().is(Errc::closed));
    EXPECT_TRUE(channel.Channel::close().isSuccess());
    EXPECT_TRUE(channel.closeGracefully().isSuccess());
    EXPECT_TRUE(channel.deregister().isSuccess());
    channel.read();
    channel.flush();
    channel.flushNow();
    channel.write(bytes.share());
  });
  EXPECT_FALSE(bytes.isShared());
  EXPECT_TRUE(channel.start().cause().is(Errc::closed));
  EXPECT_GE(channelMetrics(channel.loop()).failedWrites, 1U);
}

// F21: and when the loop is gone, too
TEST(AfterTheClose, WritesFailEvenWithoutALoop) {
  EmbeddedChannel channel;
  static_cast<void>(channel.loop().shutdownGracefully());
  while (!channel.loop().isTerminated()) channel.loop().runNow();
  const ByteBuf bytes = ByteBuf::of("x");
  Promise<void> promise(immediateExecutor());
  const Future<void> written = promise.future();

  channel.write(bytes.share(), std::move(promise));
  channel.flush();

  EXPECT_TRUE(written.cause().is(Errc::closed)) << written.cause().message();
  EXPECT_FALSE(bytes.isShared());
  EXPECT_TRUE(channel.send(bytes.share()).cause().is(Errc::rejected));
}

// F21: racing with the close
TEST(AfterTheClose, WritesOfAnotherThreadSucceedOrFailWithClosed) {
  for (int round = 0; round < 50; ++round) {
    EmbeddedChannel channel;
    std::vector<Future<void>> futures;
    std::thread writer([&] {
      for (int i = 0; i < 20; ++i) futures.push_back(channel.send(i));
    });
    channel.close();
    writer.join();
    channel.runPendingTasks();
    for (const Future<void>& each : futures) {
      ASSERT_TRUE(each.isDone());
      EXPECT_TRUE(each.isSuccess() || each.cause().is(Errc::closed));
    }
  }
}

// behaviour 3.11 item 6
TEST(AfterTheClose, LaterOperationsNameTheErrorThatClosedIt) {
  EmbeddedChannel channel;
  channel.breakNextWrite(EPIPE);
  const Future<void> first = channel.writeOneOutbound(1);
  const Future<void> unflushed = [&] {
    channel.run([&] { channel.flush(); });
    return channel.writeOneOutbound(2);
  }();

  EXPECT_FALSE(channel.isOpen());
  EXPECT_EQ(channel.closeCause().errnoValue(), EPIPE);
  EXPECT_EQ(first.cause().errnoValue(), EPIPE);
  EXPECT_TRUE(unflushed.cause().is(Errc::closed));
  for (const Future<void>& each : {first, unflushed}) {
    EXPECT_THAT(each.cause().message(), HasSubstr("Broken pipe"));
  }
  EXPECT_THAT(channel.run([&] { return channel.bind(kAddress); }).cause().message(),
              HasSubstr("Broken pipe"));
}

TEST(CloseCause, IsNoErrorWhenTheChannelWasAskedToClose) {
  EmbeddedChannel asked;
  asked.close();
  EXPECT_FALSE(asked.closeCause());
  EmbeddedChannel ended;
  ended.endInput();
  EXPECT_FALSE(ended.isOpen());
  EXPECT_FALSE(ended.closeCause());
}

// --- not there yet ---

TEST(BeforeTheTime, OperationsFailAndSayWhatIsMissing) {
  EmbeddedChannel fresh({.registered = false, .connected = false});
  fresh.run([&] {
    EXPECT_EQ(fresh.send(1).cause().errnoValue(), ENOTCONN);
    EXPECT_THAT(fresh.bind(kAddress).cause().message(), HasSubstr("not registered yet"));
    EXPECT_THAT(fresh.connect(kAddress).cause().message(), HasSubstr("not registered yet"));
  });
  EmbeddedChannel idle({.connected = false});
  const Future<void> early = idle.writeOneOutbound(1);
  idle.flushOutbound();
  EXPECT_EQ(early.cause().errnoValue(), ENOTCONN);
  EXPECT_TRUE(idle.isOpen());
}

TEST(BeforeTheTime, WritesWaitForAConnectThatIsUnderWay) {
  EmbeddedChannel channel({.connected = false});
  channel.holdConnects();
  const Future<void> connected = channel.run([&] { return channel.connect(kAddress); });
  const Future<void> written = channel.writeOneOutbound(1);
  channel.flushOutbound();
  EXPECT_FALSE(written.isDone());
  EXPECT_EQ(channel.run([&] { return channel.connect(kAddress); }).cause().errnoValue(), EALREADY);

  channel.finishConnect();

  EXPECT_TRUE(connected.isSuccess() && written.isSuccess());
  EXPECT_EQ(channel.readOutbound<int>(), 1);
  EXPECT_EQ(channel.run([&] { return channel.connect(kAddress); }).cause().errnoValue(), EISCONN);
}

// F58: closed while the connect is under way
TEST(BeforeTheTime, ACloseFailsTheConnectThatIsUnderWay) {
  EmbeddedChannel channel({.connected = false});
  channel.holdConnects();
  const Future<void> connected = channel.run([&] { return channel.connect(kAddress); });
  const Future<void> written = channel.writeOneOutbound(1);

  channel.close();
  channel.finishConnect();  // too late

  EXPECT_TRUE(connected.cause().is(Errc::closed));
  EXPECT_TRUE(written.cause().is(Errc::closed));
  EXPECT_FALSE(channel.isActive());
}

// --- re-entrancy ---

// F26, behaviour 3.9: ReentrantChannelTest
TEST(Reentrancy, AFlushInTheListenerOfAWriteKeepsTheOrder) {
  constexpr int kWrites = 100'000;
  EmbeddedChannel channel;
  int next = 0;
  std::function<void()> writeNext = [&] {
    if (next == kWrites) return;
    const int mine = next++;
    channel.write(mine, promiseOf(channel, [&](const Result<void>& result) {
                    EXPECT_TRUE(result.ok());
                    writeNext();
                  }));
    channel.flush();
  };
  channel.run(writeNext);

  ASSERT_EQ(channel.outboundSize(), std::size_t{kWrites});
  for (int i = 0; i < kWrites; ++i) ASSERT_EQ(channel.readOutbound<int>(), i);
}

// F26: the same at once, which a write on the stack must not allow
TEST(Reentrancy, AFlushNowInTheListenerOfAWriteSendsNothingTwice) {
  EmbeddedChannel channel;
  channel.run([&] {
    for (int i = 0; i < 100; ++i) {
      channel.write(i, promiseOf(channel, [&](const Result<void>&) { channel.flushNow(); }));
    }
    channel.flushNow();
  });
  ASSERT_EQ(channel.outboundSize(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(channel.readOutbound<int>(), i);
}

// F26
TEST(Reentrancy, AFlushInChannelReadCompleteGoesWhenTheEventEnds) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().addLast(
        std::make_unique<Recorder>("h", log, "channelReadComplete", [](Context& ctx) {
          ctx.write(1);
          ctx.flush();
          ctx.flush();
          ctx.write(2);
        }));
  });
  channel.writeInbound(0);
  EXPECT_EQ(channel.outboundSize(), 1U);
  channel.flushOutbound();
  EXPECT_EQ(channel.outboundSize(), 2U);
}

// behaviour 3.9: ReentrantChannelTest, flush inside write
TEST(Reentrancy, AHandlerMayFlushInWrite) {
  struct Flusher : ChannelHandler {
    void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
      ctx.write(std::move(msg), std::move(done));
      ctx.flush();
    }
  };
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<Flusher>(); });

  EXPECT_TRUE(channel.writeOneOutbound(1).isSuccess());
  EXPECT_EQ(channel.outboundSize(), 1U);
}

// behaviour 3.9: ReentrantChannelTest, close inside flush; 3.11: close during flush is deferred
TEST(Reentrancy, ACloseInTheListenerOfAWriteWaitsForTheEndOfTheFlush) {
  EmbeddedChannel channel;
  Future<void> closed;
  std::vector<bool> outcomes;
  channel.run([&] {
    channel.write(1, promiseOf(channel, [&](const Result<void>&) {
                    closed = channel.Channel::close();
                    EXPECT_FALSE(closed.isDone());
                    EXPECT_TRUE(channel.isOpen());
                  }));
    channel.write(2, promiseOf(channel, [&](const Result<void>& result) {
                    outcomes.push_back(result.ok());
                  }));
    channel.flush();
    channel.write(3, promiseOf(channel, [&](const Result<void>& result) {
                    outcomes.push_back(result.ok());
                  }));
  });
  EXPECT_TRUE(closed.isSuccess());
  EXPECT_FALSE(channel.isOpen());
  EXPECT_THAT(outcomes, ElementsAre(true, false));
  EXPECT_EQ(channel.outboundSize(), 2U);
}

// behaviour 3.9: ReentrantChannelTest, a listener that writes to the channel that closes
TEST(Reentrancy, AWriteInTheListenerOfAFailedWriteFailsToo) {
  EmbeddedChannel channel;
  channel.stall();
  Future<void> second;
  channel.run([&] {
    channel.writeAndFlush(1, promiseOf(channel, [&](const Result<void>& result) {
                            EXPECT_FALSE(result.ok());
                            second = channel.send(2);
                          }));
  });
  channel.close();

  EXPECT_TRUE(second.cause().is(Errc::closed));
}

// --- close and the output ---

TEST(Close, GivesWhatWasFlushedOneLastAttempt) {
  EmbeddedChannel channel;
  channel.run([&] {
    channel.write(1);
    channel.flush();
    channel.write(2);
    static_cast<void>(channel.Channel::close());
  });
  EXPECT_EQ(channel.readOutbound<int>(), 1);
  EXPECT_EQ(channel.outboundSize(), 0U);
}

// behaviour 3.11: shutdownOutput fails pending with its own error
TEST(ShutdownOutput, WritesWhatWasFlushedAndFailsTheRest) {
  EmbeddedChannel channel;
  channel.stall();
  const Future<void> flushed = channel.writeOneOutbound(ByteBuf::of("a"));
  channel.flushOutbound();
  const Future<void> written = channel.writeOneOutbound(ByteBuf::of("b"));
  const Future<void> ended = channel.run([&] { return channel.shutdownOutput(); });
  EXPECT_FALSE(ended.isDone());
  EXPECT_TRUE(channel.writeOneOutbound(ByteBuf::of("c")).cause().is(Errc::closed));

  channel.resume();

  EXPECT_TRUE(ended.isSuccess() && flushed.isSuccess());
  EXPECT_TRUE(channel.isOutputShutdown() && channel.isOpen());
  EXPECT_THAT(written.cause().message(), HasSubstr("its output is shut down"));
  EXPECT_TRUE(channel.run([&] { return channel.shutdownOutput(); }).isSuccess());
  EXPECT_TRUE(channel.writeInbound(1));  // reading goes on
}

// --- when it goes ---

TEST(Flush, WaitsForTheEndOfTheEventUnlessThereIsMuch) {
  EmbeddedChannel channel;
  channel.run([&] {
    channel.writeAndFlush(ByteBuf::of("x"));
    EXPECT_EQ(channel.outboundSize(), 0U);
    channel.flushNow();
    EXPECT_EQ(channel.outboundSize(), 1U);
    channel.writeAndFlush(ByteBuf(64 * 1024).writeZero(1).share());
    EXPECT_EQ(channel.outboundSize(), 2U);
    channel.writeAndFlush(ByteBuf::of("y"));
    static_cast<void>(channel.deregister());
    EXPECT_EQ(channel.outboundSize(), 3U);
  });
}

TEST(Flush, OfManyThreadsKeepsTheOrderOfEach) {
  constexpr int kThreads = 8;
  constexpr int kEach = 500;
  EmbeddedChannel channel;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) channel.writeAndFlush(std::make_pair(t, i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  channel.runPendingTasks();

  std::vector<int> next(kThreads);
  ASSERT_EQ(channel.outboundSize(), std::size_t{kThreads} * kEach);
  while (auto each = channel.readOutbound<std::pair<int, int>>()) {
    EXPECT_EQ(each->second, next[static_cast<std::size_t>(each->first)]++);
  }
}

}  // namespace
}  // namespace millrace
