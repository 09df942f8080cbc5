// SPDX-License-Identifier: Apache-2.0
// What goes to the network: order, partial writes, water marks, many threads, and failures.
#include "support/fault_script.h"
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/channel/channel_metrics.h>
#include <millrace/channel/context.h>
#include <millrace/transport/transports.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <csignal>
#include <thread>

namespace millrace {
namespace {

using test::EventLog;
using test::FaultScript;
using test::LogPtr;
using test::NetTest;
using test::pattern;
using test::recording;
using test::same;
using test::succeeds;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

class SocketWrite : public NetTest {
 protected:
  static void smallBuffer(Channel& channel) {
    EXPECT_TRUE(channel.applyOption(options::sendBuffer, OptionValue(8192)).ok());
  }
  std::uint64_t idleTurns() {
    settle();
    const std::uint64_t before = loop().metrics().turns;
    loop().schedule(std::chrono::milliseconds(30), [] {}).future().sync();
    return loop().metrics().turns - before;
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// F18: the kernel takes as few bytes as it likes
TEST_P(SocketWrite, ResumesAtTheExactByte) {
  for (const std::size_t most : {1U, 2U, 7U, 100U}) {
    SCOPED_TRACE(most);
    auto [channel, peer] = link(recording(log_));
    const std::uint64_t before = channelMetrics(loop()).bytesWritten;
    FaultScript script;
    script.shortTransfers(most);
    std::string wanted;
    std::vector<Future<void>> sent;
    std::vector<int> order;
    inLoop([&, ch = channel] {
      for (int i = 0; i < 20; ++i) {
        const std::string part = pattern(static_cast<std::size_t>(i * 7), static_cast<unsigned>(i));
        wanted += part;
        sent.push_back(ch->send(ByteBuf::of(part)));
        sent.back().addListener([&order, i] { order.push_back(i); });
      }
    });

    EXPECT_TRUE(same(peer.receive(wanted.size()), wanted));
    for (const Future<void>& each : sent) EXPECT_TRUE(succeeds(each));
    EXPECT_TRUE(inLoop([&] { return std::is_sorted(order.begin(), order.end()); }));
    EXPECT_EQ(channelMetrics(loop()).bytesWritten - before, wanted.size());
  }
}

// F18 C136 F23: more than the kernel has room for; interest in writing goes with the last byte
TEST_P(SocketWrite, WaitsForTheKernelAndStopsWaiting) {
  auto [channel, peer] = link(recording(log_), smallBuffer, 4096);
  const std::string bytes = pattern(2 << 20);
  const Future<void> sent = channel->send(ByteBuf::of(bytes));
  settle();
  EXPECT_FALSE(sent.isDone());
  EXPECT_LE(idleTurns(), 5U);

  EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));

  EXPECT_TRUE(succeeds(sent));
  EXPECT_LE(idleTurns(), 5U);
  EXPECT_EQ(inLoop([ch = channel] { return ch->pendingBytes(); }), 0U);
}

// F19: more buffers than one call takes
TEST_P(SocketWrite, GathersAtMostWhatOneCallTakes) {
  auto [channel, peer] = link(recording(log_));
  const std::string bytes = pattern(5000);
  FaultScript script;

  inLoop([&, ch = channel] {
    for (const char each : bytes) ch->write(ByteBuf::of(std::string_view(&each, 1)));
    ch->flush();
  });

  EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));
  EXPECT_LE(script.count("sendmsg") + script.count("send"), 16U);
}

// F20: empty messages complete in their place
TEST_P(SocketWrite, CompletesEmptyMessagesInOrder) {
  auto [channel, peer] = link(recording(log_));
  std::vector<int> order;

  inLoop([&, ch = channel] {
    const char* const parts[] = {"", "ab", "", "", "cd", ""};
    for (int i = 0; i < 6; ++i) {
      Promise<void> done(loop());
      done.future().addListener([&order, i] { order.push_back(i); });
      ch->write(ByteBuf::of(parts[i]), std::move(done));
    }
    ch->flush();
  });
  EXPECT_EQ(peer.receive(4), "abcd");
  EXPECT_TRUE(succeeds(channel->send(ByteBuf())));

  EXPECT_THAT(inLoop([&] { return order; }), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_LE(idleTurns(), 5U);
}

// F16: the connection breaks while much is queued
TEST_P(SocketWrite, FailsInOrderWhenTheConnectionBreaks) {
  auto [channel, peer] = link(recording(log_), smallBuffer, 4096);
  std::vector<int> order;
  std::vector<Future<void>> sent;
  inLoop([&, ch = channel] {
    for (int i = 0; i < 5; ++i) {
      sent.push_back(ch->send(ByteBuf::of(pattern(256 * 1024))));
      sent.back().addListener([&order, i] { order.push_back(i); });
    }
  });
  settle();

  if (isTcp()) {
    peer.reset();
  } else {
    peer.close();
  }

  ASSERT_TRUE(log_->await("removed"));
  for (const Future<void>& each : sent) {
    EXPECT_THAT(test::errnoOf(each), AnyOf(ECONNRESET, EPIPE));
  }
  EXPECT_THAT(inLoop([&] { return order; }), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(log_->count("inactive"), 1U);
}

// F17: on a thread where the signal would end the process; one by send, one by sendmsg
TEST_P(SocketWrite, RaisesNoSignalWhenThePeerIsGone) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  const Ref<EventLoop> byHand = EventLoop::handDriven(GetParam().options());
  for (const int parts : {1, 3}) {
    test::Pair pair = test::makePair(isTcp());
    const Result<ChannelPtr> made =
        transportFor(byHand->ioType())->adopt(*byHand, std::move(pair.ours), SocketAddress());
    byHand->execute([&] {
      static_cast<void>(registerChannel(*byHand, *made));
      (*made)->setAutoRead(false);
    });
    byHand->runNow();
    pair.peer.reset();
    for (int i = 0; i < 3; ++i) {
      byHand->execute([&] {
        for (int part = 0; part < parts; ++part) (*made)->write(ByteBuf::of("x"));
        (*made)->flush();
      });
      byHand->runNow();
    }
    (*made)->close();
    byHand->runNow();
    byHand->runNow();
    EXPECT_FALSE((*made)->isOpen());
  }
  byHand->shutdownGracefully();
  while (!byHand->isTerminated()) byHand->runNow();
}

// F22: no memory in the kernel is no reason to close
TEST_P(SocketWrite, TriesAgainWhenTheKernelHasNoMemory) {
  if (isByRing()) return;  // nobody calls send(): see stream_ring_fault_test.cc
  for (const int error : {ENOBUFS, ENOMEM}) {
    auto [channel, peer] = link(recording(log_));
    FaultScript script;
    script.fail("send", 1, error, 3).fail("sendmsg", 1, error, 2);

    const Future<void> sent = channel->send(ByteBuf::of("patience"));

    EXPECT_EQ(peer.receive(8), "patience");
    EXPECT_TRUE(succeeds(sent));
    EXPECT_GE(script.faults(), 3U);
    EXPECT_TRUE(channel->isOpen());
  }
}

// F24: told once per crossing, in both directions
TEST_P(SocketWrite, TellsOfEachCrossingOfTheWaterMarksOnce) {
  auto [channel, peer] = link(recording(log_), smallBuffer, 4096);
  EXPECT_TRUE(channel->isWritable());

  for (std::size_t round = 1; round <= 3; ++round) {
    for (int i = 0; i < 4; ++i) channel->writeAndFlush(ByteBuf::of(pattern(128 * 1024)));
    ASSERT_TRUE(log_->await("unwritable", round));
    EXPECT_FALSE(channel->isWritable());
    settle();
    EXPECT_EQ(log_->count("unwritable"), round);
    EXPECT_EQ(inLoop([ch = channel] { return ch->bytesBeforeUnwritable(); }), 0U);
    EXPECT_GT(inLoop([ch = channel] { return ch->bytesBeforeWritable(); }), 0U);
    EXPECT_EQ(peer.receive(512 * 1024).size(), 512U * 1024);
    ASSERT_TRUE(log_->await("writable", round));
    settle();
    EXPECT_EQ(log_->count("writable"), round);
  }
}

// F25: a handler that writes when it may runs level by level, not into itself
TEST_P(SocketWrite, CallsWritabilityChangedOnOneLevelOnly) {
  struct Fills : ChannelHandler {
    void channelActive(Context& ctx) override { fill(ctx); }
    void channelWritabilityChanged(Context& ctx) override {
      deepest = std::max(deepest, ++depth);
      if (ctx.channel().isWritable() && rounds < 20) fill(ctx);
      --depth;
    }
    void fill(Context& ctx) {
      ++rounds;
      while (ctx.channel().isWritable()) {
        ctx.write(ByteBuf::of(std::string(20'000, 'x')));
        bytes += 20'000;
      }
      ctx.flush();
    }
    int depth = 0;
    int deepest = 0;
    int rounds = 0;
    std::size_t bytes = 0;
  };
  auto handler = std::make_unique<Fills>();
  Fills* fills = handler.get();
  auto [channel, peer] =
      link([&](Channel& ch) { ch.pipeline().addLast(std::move(handler)); }, smallBuffer, 4096);

  std::size_t got = 0;
  while (inLoop([&] { return fills->rounds < 20 || got < fills->bytes; })) {
    got += peer.receive(1).size();
    got += peer.receive(inLoop([&] { return fills->bytes; }) - got).size();
  }

  EXPECT_EQ(inLoop([&] { return fills->deepest; }), 1);
}

// F26: flushed again by the listener of each write
TEST_P(SocketWrite, MayBeFlushedFromListeners) {
  constexpr int kCount = 10'000;
  auto [channel, peer] = link(recording(log_));
  std::string wanted;

  inLoop([&, ch = channel] {
    for (int i = 0; i < kCount; ++i) {
      const std::string part(1, static_cast<char>('a' + i % 26));
      wanted += part;
      Promise<void> done(loop());
      done.future().addListener([ch] {
        ch->flush();
        ch->flushNow();
      });
      ch->write(ByteBuf::of(part), std::move(done));
    }
    ch->flush();
  });

  EXPECT_TRUE(same(peer.receive(wanted.size()), wanted));
  settle();
}

// F27: each listener writes the next message
TEST_P(SocketWrite, MayBeChainedByListenersWithoutEnd) {
  constexpr int kCount = 50'000;
  auto [channel, peer] = link(recording(log_));
  int left = kCount;
  std::function<void()> next = [&, ch = channel] {
    if (left-- > 0) ch->send(ByteBuf::of("x")).addListener([&] { next(); });
  };

  inLoop([&] { next(); });

  EXPECT_EQ(peer.receive(kCount), std::string(kCount, 'x'));
  EXPECT_TRUE(test::eventually([&] { return inLoop([&] { return left < 0; }); }));
}

// F30: waiting for the loop on the loop
TEST_P(SocketWrite, RefusesToWaitOnItsOwnLoop) {
  auto [channel, peer] = link(recording(log_), smallBuffer, 4096);

  const std::string text = inLoop([&, ch = channel] {
    const Future<void> sent = ch->send(ByteBuf::of(pattern(1 << 20)));
    return test::textOf<BlockingOperation>([&] { sent.sync(); });
  });

  EXPECT_NE(text, "nothing was thrown");
  EXPECT_THAT(text, testing::Not(HasSubstr("another type")));
}

// A cancelled write does not go; its neighbours do.
TEST_P(SocketWrite, LeavesOutWhatWasCancelled) {
  auto [channel, peer] = link(recording(log_));
  inLoop([&, ch = channel] {
    ch->write(ByteBuf::of("a"));
    Promise<void> done(loop());
    const Future<void> cancelled = done.future();
    ch->write(ByteBuf::of("b"), std::move(done));
    EXPECT_TRUE(cancelled.cancel());
    ch->write(ByteBuf::of("c"));
    ch->flush();
  });
  EXPECT_TRUE(succeeds(channel->close()));

  EXPECT_EQ(peer.receiveAll(), "ac");
}

// What no encoder turned into bytes is refused, and says so.
TEST_P(SocketWrite, RefusesOtherMessages) {
  auto [channel, peer] = link(recording(log_));

  const Future<void> sent = channel->send(Message(std::string("text")));

  EXPECT_TRUE(test::failsWith(sent, Errc::notSupported));
  EXPECT_THAT(sent.cause().message(), HasSubstr("encoder"));
  EXPECT_TRUE(channel->isOpen());
}

// Must show 5: order per thread, nothing lost, few system calls
TEST_P(SocketWrite, JoinsTinyWritesOfManyThreads) {
  constexpr int kThreads = 8;
  constexpr int kWrites = 2000;
  auto [channel, peer] = link(recording(log_));
  FaultScript script;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, ch = channel] {
      for (int i = 0; i < kWrites; ++i) {
        char text[9];
        std::snprintf(text, sizeof text, "%d:%05d;", t, i);
        ch->writeAndFlush(ByteBuf::of(text));
      }
    });
  }
  const std::string all = peer.receive(kThreads * kWrites * 8);
  for (std::thread& each : threads) each.join();

  ASSERT_EQ(all.size(), static_cast<std::size_t>(kThreads * kWrites * 8));
  std::vector<int> next(kThreads, 0);
  for (std::size_t at = 0; at < all.size(); at += 8) {
    const int thread = all[at] - '0';
    ASSERT_EQ(std::stoi(all.substr(at + 2, 5)), next[static_cast<std::size_t>(thread)]++);
  }
  EXPECT_LT(script.count("send") + script.count("sendmsg"), kThreads * kWrites / 2U);
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketWrite, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
