// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/outbound_buffer.h>
#include <millrace/channel/pending_writes.h>
#include <millrace/loop/event_loop.h>
#include <millrace/transport/embedded_channel.h>

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

namespace millrace {
namespace {

/// Holds every write back until it is told.
struct Gate : ChannelHandler {
  void handlerAdded(Context& ctx) override {
    context = &ctx;
    held.emplace(ctx);
  }
  void write(Context&, Message&& msg, Promise<void>&& done) override {
    held->add(std::move(msg), std::move(done));
  }
  Context* context = nullptr;
  std::optional<PendingWrites> held;
};

class PendingWritesTest : public testing::Test {
 protected:
  PendingWrites& held() { return *gate_.held; }
  template <class F>
  void inLoop(F fn) {
    channel_.run([&] {
      fn();
      gate_.context->flush();
    });
  }

  EmbeddedChannel channel_{[](Channel& ch) { ch.pipeline().emplaceLast<Gate>(); }};
  Gate& gate_ = *channel_.handler<Gate>();
};

// behaviour 3.9: PendingWriteQueueTest
TEST_F(PendingWritesTest, WritesAllInOrderWhenItIsTold) {
  const Future<void> first = channel_.writeOneOutbound(ByteBuf::of("a"));
  const Future<void> second = channel_.writeOneOutbound(2);
  channel_.flushOutbound();
  EXPECT_EQ(channel_.outboundSize(), 0U);
  EXPECT_EQ(held().size(), 2U);
  EXPECT_EQ(held().front().as<ByteBuf>()->text(), "a");

  inLoop([&] { held().removeAndWriteAll(); });

  EXPECT_EQ(channel_.readOutbound<ByteBuf>()->text(), "a");
  EXPECT_EQ(channel_.readOutbound<int>(), 2);
  EXPECT_TRUE(first.isSuccess() && second.isSuccess());
  EXPECT_TRUE(held().empty());
  EXPECT_EQ(held().bytes(), 0U);
}

TEST_F(PendingWritesTest, WritesFailsOrGivesBackTheFirst) {
  const Future<void> written = channel_.writeOneOutbound(1);
  const Future<void> failed = channel_.writeOneOutbound(2);
  const Future<void> taken = channel_.writeOneOutbound(3);

  inLoop([&] {
    EXPECT_TRUE(held().removeAndWrite());
    EXPECT_TRUE(held().removeAndFail(Error(Errc::timedOut, "write")));
    held().remove().trySuccess();
    EXPECT_FALSE(held().removeAndWrite());
    EXPECT_FALSE(held().removeAndFail(Error(Errc::timedOut, "write")));
  });

  EXPECT_EQ(channel_.readOutbound<int>(), 1);
  EXPECT_EQ(channel_.outboundSize(), 0U);
  EXPECT_TRUE(written.isSuccess() && taken.isSuccess());
  EXPECT_TRUE(failed.cause().is(Errc::timedOut));
}

TEST_F(PendingWritesTest, FailsAllAndLetsTheirMemoryGo) {
  const ByteBuf bytes = ByteBuf::of("hello");
  const Future<void> first = channel_.writeOneOutbound(bytes.share());
  const Future<void> second = channel_.writeOneOutbound(bytes.share());
  EXPECT_TRUE(bytes.isShared());

  inLoop([&] { held().removeAndFailAll(Error(Errc::timedOut, "handshake")); });

  EXPECT_TRUE(first.cause().is(Errc::timedOut) && second.cause().is(Errc::timedOut));
  EXPECT_FALSE(bytes.isShared());
  EXPECT_TRUE(held().empty());
}

TEST_F(PendingWritesTest, TakesWhatIsAddedWhileItWritesOrFails) {
  int added = 0;
  const auto addAnother = [&](const Result<void>&) {
    if (++added < 3) gate_.held->add(added, {});
  };
  const auto hold = [&] {
    Promise<void> promise(channel_.loop());
    promise.future().addListener(addAnother);
    return promise;
  };
  inLoop([&] {
    held().add(100, hold());
    held().removeAndFailAll(Error(Errc::timedOut, "write"));
    EXPECT_TRUE(held().empty());
    held().add(200, hold());
  });
  EXPECT_EQ(added, 1);

  inLoop([&] { held().removeAndWriteAll(); });

  EXPECT_EQ(channel_.readOutbound<int>(), 200);
  EXPECT_EQ(added, 2);
  EXPECT_EQ(held().size(), 1U);  // its listener ran with the flush
}

TEST_F(PendingWritesTest, DropsWhatWasCancelled) {
  const ByteBuf bytes = ByteBuf::of("hello");
  const Future<void> cancelled = channel_.writeOneOutbound(bytes.share());
  EXPECT_TRUE(cancelled.cancel());

  inLoop([&] { held().removeAndWriteAll(); });

  EXPECT_EQ(channel_.outboundSize(), 0U);
  EXPECT_TRUE(cancelled.isCancelled());
  EXPECT_FALSE(bytes.isShared());
}

// behaviour 3.9: PendingWriteQueueTest; F24
TEST_F(PendingWritesTest, CountsAgainstTheWaterMarks) {
  const std::size_t high = WaterMarks().high;
  channel_.writeOneOutbound(ByteBuf(high));
  EXPECT_EQ(held().bytes(), high + OutboundBuffer::kOverhead);
  EXPECT_EQ(channel_.run([&] { return channel_.pendingBytes(); }), held().bytes());
  EXPECT_FALSE(channel_.isWritable());

  inLoop([&] { held().removeAndFailAll(Error(Errc::timedOut, "write")); });

  EXPECT_TRUE(channel_.isWritable());
  EXPECT_EQ(channel_.run([&] { return channel_.pendingBytes(); }), 0U);
}

TEST_F(PendingWritesTest, CountsWhatItHandsOnOnce) {
  const std::size_t size = WaterMarks().high - 1000;
  channel_.stall();
  channel_.writeOneOutbound(ByteBuf(size));
  EXPECT_TRUE(channel_.isWritable());

  inLoop([&] { held().removeAndWriteAll(); });

  EXPECT_TRUE(channel_.isWritable());
  EXPECT_GE(channel_.run([&] { return channel_.pendingBytes(); }), OutboundBuffer::kOverhead);
}

TEST_F(PendingWritesTest, FailsWhatIsLeftWhenItsHandlerGoes) {
  const Future<void> left = channel_.writeOneOutbound(1);

  channel_.run([&] { channel_.pipeline().remove<Gate>(); });

  EXPECT_TRUE(left.cause().is(Errc::closed));
  EXPECT_EQ(channel_.run([&] { return channel_.pendingBytes(); }), 0U);
}

// behaviour 3.9 item 17: what a handler held back goes on when it is removed
TEST(PendingWritesOfAHandler, CanBeHandedOnInHandlerRemoved) {
  struct LettingGo : Gate {
    void handlerRemoved(Context& ctx) override {
      held->removeAndWriteAll();
      ctx.flush();
    }
  };
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<LettingGo>(); });
  channel.writeOneOutbound(1);
  channel.writeOneOutbound(2);

  channel.run([&] { channel.pipeline().remove<LettingGo>(); });

  EXPECT_EQ(channel.readOutbound<int>(), 1);
  EXPECT_EQ(channel.readOutbound<int>(), 2);
}

}  // namespace
}  // namespace millrace
