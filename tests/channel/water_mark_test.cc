// SPDX-License-Identifier: Apache-2.0
// When a channel is writable, who is told, and what that does to its reads.
#include "support/recorder.h"

#include <millrace/channel/channel_metrics.h>
#include <millrace/channel/outbound_buffer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using testing::ElementsAre;

constexpr std::size_t kOverhead = OutboundBuffer::kOverhead;

/// Notes what isWritable() is whenever it changes.
struct Watcher : ChannelHandler {
  void channelWritabilityChanged(Context& ctx) override {
    told.push_back(ctx.channel().isWritable());
    if (then) then(ctx);
  }
  std::vector<bool> told;
  std::function<void(Context&)> then;
};

class WaterMarksTest : public testing::Test {
 protected:
  WaterMarksTest() {
    setMarks({.low = 1000, .high = 2000});
    channel_.stall();
  }
  void setMarks(WaterMarks marks) {
    EXPECT_TRUE(
        channel_.run([&] { return channel_.setOption(options::waterMarks, marks); }).isSuccess());
  }
  /// A buffer that counts exactly `cost`.
  static ByteBuf costing(std::size_t cost) {
    static const std::string memory(1 << 20, 'x');
    return ByteBuf::wrap(memory.data(), cost - kOverhead);
  }
  void write(std::size_t cost) {
    channel_.run([&] { channel_.writeAndFlush(costing(cost)); });
  }
  std::vector<bool>& told() { return channel_.handler<Watcher>()->told; }
  std::size_t pending() {
    return channel_.run([&] { return channel_.pendingBytes(); });
  }

  EmbeddedChannel channel_{[](Channel& ch) { ch.pipeline().emplaceLast<Watcher>(); }};
};

// behaviour 3.10 item 7, F24: once per crossing
TEST_F(WaterMarksTest, AreReportedOncePerCrossing) {
  write(1500);
  EXPECT_TRUE(channel_.isWritable());
  write(500);
  EXPECT_TRUE(channel_.isWritable());  // at the mark is not above it
  EXPECT_THAT(told(), ElementsAre());
  write(kOverhead + 1);
  EXPECT_FALSE(channel_.isWritable());
  write(500);
  EXPECT_THAT(told(), ElementsAre(false));

  channel_.takeBytes(1500 - kOverhead);
  EXPECT_GT(pending(), 1000U);
  EXPECT_FALSE(channel_.isWritable());
  EXPECT_THAT(told(), ElementsAre(false));
  channel_.takeBytes(500 - kOverhead);

  EXPECT_LE(pending(), 1000U);
  EXPECT_TRUE(channel_.isWritable());
  EXPECT_THAT(told(), ElementsAre(false, true));
}

// behaviour 3.10: bytesBeforeUnwritable/Writable
TEST_F(WaterMarksTest, SayHowFarAwayTheyAre) {
  channel_.run([&] {
    EXPECT_EQ(channel_.bytesBeforeUnwritable(), 2000U);
    EXPECT_EQ(channel_.bytesBeforeWritable(), 0U);
    channel_.write(costing(500));
    EXPECT_EQ(channel_.bytesBeforeUnwritable(), 1500U);
    channel_.write(costing(2000));
    EXPECT_EQ(channel_.bytesBeforeUnwritable(), 0U);
    EXPECT_EQ(channel_.bytesBeforeWritable(), 1500U);
  });
}

// behaviour 3.10: defaults 64 and 32 KiB
TEST_F(WaterMarksTest, Are32And64KiBUnlessTheyAreSet) {
  EmbeddedChannel channel;
  channel.stall();
  channel.run([&] { channel.writeAndFlush(costing(64 * 1024)); });
  EXPECT_TRUE(channel.isWritable());
  channel.run([&] { channel.writeAndFlush(costing(kOverhead + 1)); });
  EXPECT_FALSE(channel.isWritable());
  EXPECT_EQ(WaterMarks().low, 32U * 1024);
}

TEST_F(WaterMarksTest, TakeEffectWhenTheyAreChanged) {
  write(1500);
  setMarks({.low = 100, .high = 1000});
  EXPECT_FALSE(channel_.isWritable());
  setMarks({.low = 1500, .high = 1600});

  EXPECT_TRUE(channel_.isWritable());
  EXPECT_THAT(told(), ElementsAre(false, true));
}

TEST_F(WaterMarksTest, FollowWhatFails) {
  write(3000);
  EXPECT_FALSE(channel_.isWritable());
  channel_.failNextWrites(Error(Errc::timedOut, "write"));

  channel_.resume();

  EXPECT_TRUE(channel_.isWritable());
  EXPECT_EQ(pending(), 0U);
  EXPECT_THAT(told(), ElementsAre(false, true));
}

// Whoever saw that it is not writable has stopped, and waits to be told.
TEST_F(WaterMarksTest, CrossedBothWaysInOneEventAreReportedOnce) {
  channel_.run([&] {
    channel_.write(costing(3000));
    EXPECT_FALSE(channel_.isWritable());
    channel_.resume();
    channel_.flushNow();
    EXPECT_TRUE(channel_.isWritable());
  });
  EXPECT_THAT(told(), ElementsAre(true));
}

TEST_F(WaterMarksTest, AreNotReportedByAClosedChannel) {
  write(3000);
  EXPECT_THAT(told(), ElementsAre(false));
  Watcher* watcher = channel_.handler<Watcher>();
  channel_.run([&] {
    watcher->then = [&](Context&) { ADD_FAILURE() << "after the close"; };
    static_cast<void>(channel_.Channel::close());
  });
  EXPECT_FALSE(channel_.isWritable());
  EXPECT_EQ(pending(), 0U);
}

// F25: the handler crosses a mark whenever it is told of one; nothing recurses
TEST_F(WaterMarksTest, AreReportedWithoutRecursion) {
  Watcher* watcher = channel_.handler<Watcher>();
  int depth = 0;
  int deepest = 0;
  watcher->then = [&](Context& ctx) {
    deepest = std::max(deepest, ++depth);
    if (!ctx.channel().isWritable()) {
      ctx.channel().flushNow();
      EXPECT_TRUE(ctx.channel().isWritable());
    } else if (watcher->told.size() < 1000) {
      ctx.write(costing(3000));
      EXPECT_FALSE(ctx.channel().isWritable());
    }
    --depth;
  };
  channel_.resume();

  channel_.run([&] { channel_.write(costing(3000)); });

  EXPECT_EQ(deepest, 1);
  EXPECT_EQ(watcher->told.size(), 1000U);
  EXPECT_EQ(watcher->told[0], false);
  EXPECT_EQ(watcher->told[1], true);
  EXPECT_EQ(pending(), 0U);
  watcher->then = nullptr;
}

// F24 F25: a producer that honours them stays below the high mark plus one message
TEST_F(WaterMarksTest, HoldAProducerThatHonoursThem) {
  const auto produce = [this] {
    while (channel_.isWritable()) channel_.write(costing(300));
    channel_.flush();
  };
  channel_.handler<Watcher>()->then = [&](Context&) {
    if (channel_.isWritable()) produce();
  };
  channel_.run(produce);
  std::size_t most = 0;
  for (int i = 0; i < 100; ++i) {
    most = std::max(most, pending());
    channel_.takeBytes(100);
  }
  EXPECT_LE(most, 2000U + 300);
  channel_.handler<Watcher>()->then = nullptr;
}

// F24: a peer that sends and does not read
TEST_F(WaterMarksTest, PauseTheReadsOfAnEcho) {
  struct Echo : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
    void channelReadComplete(Context& ctx) override { ctx.flush(); }
  };
  channel_.pipeline().emplaceLast<Echo>();
  for (int i = 0; i < 20; ++i) channel_.writeInbound(costing(400));

  EXPECT_FALSE(channel_.isWritable());
  EXPECT_LE(pending(), 2000U + 400);
  EXPECT_EQ(channel_.waitingSize(), 14U);
  EXPECT_EQ(channelMetrics(channel_.loop()).pausedReads, 1U);
  channel_.resume();

  EXPECT_EQ(channel_.waitingSize(), 0U);
  EXPECT_EQ(channel_.outboundText().size(), 20 * (400 - kOverhead));
}

TEST_F(WaterMarksTest, LeaveReadsAloneIfTheyAreTold) {
  channel_.setOption(options::pauseReadsWhenUnwritable, false);
  write(3000);
  EXPECT_FALSE(channel_.isWritable());

  EXPECT_TRUE(channel_.writeInbound(1));

  EXPECT_EQ(channelMetrics(channel_.loop()).pausedReads, 0U);
}

}  // namespace
}  // namespace millrace
