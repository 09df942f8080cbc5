// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/channel.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/handler/offload_handler.h>
#include <millrace/transport/embedded_channel.h>

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;

/// Runs what comes back from the pool until `condition` holds; false if that takes too long.
template <class F>
bool runUntil(EmbeddedChannel& channel, F&& condition) {
  const Deadline limit = Deadline::after(30s);
  for (;;) {
    channel.runPendingTasks();
    if (condition()) return true;
    if (limit.isDue(Clock::real().nanos())) return false;
    std::this_thread::yield();
  }
}

auto offloading(ThreadPool& pool, OffloadHandler::Function function, std::size_t limit = 64) {
  return [&pool, function = std::move(function), limit](Channel& channel) {
    channel.pipeline().emplaceLast<OffloadHandler>(pool, function, limit);
  };
}

TEST(OffloadHandler, KeepsTheOrderAndWorksOnOneAtATime) {
  std::atomic<int> atOnce{0};
  std::atomic<int> most{0};
  std::atomic<bool> onLoop{false};
  ThreadPool pool(4);
  const std::thread::id loop = std::this_thread::get_id();
  EmbeddedChannel channel(offloading(pool, [&](Message&& msg) -> Message {
    most = std::max(most.load(), ++atOnce);
    if (std::this_thread::get_id() == loop) onLoop = true;
    const int number = msg.take<int>();
    --atOnce;
    return number * 2;
  }));

  for (int i = 0; i < 50; ++i) channel.writeInbound(i);

  ASSERT_TRUE(runUntil(channel, [&] { return channel.inboundSize() == 50; }));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(*channel.readInbound<int>(), i * 2);
  EXPECT_EQ(most, 1);
  EXPECT_FALSE(onLoop);
}

TEST(OffloadHandler, PassesOnWhatTheFunctionThrowsAndGoesOn) {
  std::latch goOn(1);
  ThreadPool pool(1);
  EmbeddedChannel channel(offloading(pool, [&goOn](Message&& msg) -> Message {
    goOn.wait();
    const int number = msg.take<int>();
    if (number == 1) throw std::runtime_error("one is too many");
    return number;
  }));

  channel.writeInbound(1, 2);
  goOn.count_down();  // not before: writeInbound() throws what has come already

  ASSERT_TRUE(runUntil(channel, [&] { return channel.inboundSize() == 1; }));
  EXPECT_EQ(*channel.readInbound<int>(), 2);
  EXPECT_NE(channel.takeException().message().find("one is too many"), std::string::npos);
}

TEST(OffloadHandler, PassesNothingOnForAnEmptyMessage) {
  ThreadPool pool(1);
  EmbeddedChannel channel(offloading(pool, [](Message&& msg) -> Message {
    return msg.take<int>() == 1 ? Message() : Message(7);
  }));

  channel.writeInbound(1, 2);

  ASSERT_TRUE(runUntil(channel, [&] { return channel.inboundSize() == 1; }));
  EXPECT_EQ(*channel.readInbound<int>(), 7);
}

// Reading pauses above the limit and goes on when the pool has caught up.
TEST(OffloadHandler, PausesReadingWhileTooManyWait) {
  std::latch goOn(1);
  ThreadPool pool(1);
  EmbeddedChannel channel(offloading(
      pool,
      [&goOn](Message&& msg) -> Message {
        goOn.wait();
        return std::move(msg);
      },
      4));

  for (int i = 0; i < 20; ++i) channel.writeInbound(i);

  EXPECT_FALSE(channel.isAutoRead());
  EXPECT_GT(channel.waitingSize(), 0u);
  goOn.count_down();
  ASSERT_TRUE(runUntil(channel, [&] { return channel.inboundSize() == 20; }));
  EXPECT_TRUE(channel.isAutoRead());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(*channel.readInbound<int>(), i);
}

TEST(OffloadHandler, LeavesThoseWhoReadByThemselvesAlone) {
  std::latch goOn(1);
  ThreadPool pool(1);
  EmbeddedChannel channel(offloading(
      pool,
      [&goOn](Message&& msg) -> Message {
        goOn.wait();
        return std::move(msg);
      },
      1));
  channel.run([&] { channel.setAutoRead(false); });

  for (int i = 0; i < 5; ++i) channel.writeOneInbound(i);
  goOn.count_down();

  ASSERT_TRUE(runUntil(channel, [&] { return channel.inboundSize() == 5; }));
  EXPECT_FALSE(channel.isAutoRead());
}

TEST(OffloadHandler, DropsWhatIsUnderWayWhenItsChannelCloses) {
  std::latch working(1);
  std::latch goOn(1);
  std::atomic<int> calls{0};
  ThreadPool pool(1);
  {
    EmbeddedChannel channel(offloading(pool, [&](Message&& msg) -> Message {
      if (++calls == 1) working.count_down();
      goOn.wait();
      return std::move(msg);
    }));
    channel.writeInbound(ByteBuf::of("first"), ByteBuf::of("second"));
    working.wait();

    channel.close();
    goOn.count_down();
    pool.submit([] {}).sync();
    channel.runPendingTasks();

    EXPECT_EQ(channel.inboundSize(), 0u);
  }
  EXPECT_EQ(calls, 1);
}

TEST(OffloadHandler, LetsReadingGoOnWhenItLeavesWhilePaused) {
  std::latch goOn(1);
  ThreadPool pool(1);
  EmbeddedChannel channel(offloading(
      pool,
      [&goOn](Message&& msg) -> Message {
        goOn.wait();
        return std::move(msg);
      },
      2));
  channel.writeInbound(1, 2, 3, 4);
  EXPECT_FALSE(channel.isAutoRead());

  channel.run([&] { channel.pipeline().remove<OffloadHandler>(); });

  EXPECT_TRUE(channel.isAutoRead());
  goOn.count_down();
  pool.shutdownGracefully().sync();  // it holds the channel until its work is done
  channel.runPendingTasks();
}

TEST(OffloadHandler, ClosesTheChannelWhenThePoolIsFull) {
  std::latch working(1);
  std::latch goOn(1);
  ThreadPool pool(ThreadPoolOptions().threads(1).capacity(1));
  pool.execute([&] {
    working.count_down();
    goOn.wait();
  });
  working.wait();
  while (pool.tryExecute([] {})) {
  }
  EmbeddedChannel channel(
      offloading(pool, [](Message&& msg) -> Message { return std::move(msg); }));

  try {
    channel.writeInbound(1);
    ADD_FAILURE() << "a message was lost";
  } catch (const Exception& e) {
    EXPECT_TRUE(e.error().is(Errc::rejected));
  }

  EXPECT_FALSE(channel.isOpen());
  goOn.count_down();
}

}  // namespace
}  // namespace millrace
