// SPDX-License-Identifier: Apache-2.0
// Who a channel is, what hangs on it, and its options.
#include "support/log_capture.h"
#include "support/loop_test.h"
#include "support/recorder.h"

#include <millrace/base/attribute_map.h>
#include <millrace/channel/channel_metrics.h>
#include <millrace/channel/channel_option.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// behaviour 3.11 items 3 to 5: ours are numbers of this process
TEST(Channel, HasAnIdOfItsOwn) {
  std::set<std::uint64_t> ids;
  for (int i = 0; i < 100; ++i) {
    EmbeddedChannel channel({.registered = false});
    EXPECT_NE(channel.id(), 0U);
    ids.insert(channel.id());
  }
  EXPECT_EQ(ids.size(), 100U);
}

TEST(Channel, DescribesItself) {
  EmbeddedChannel channel({.connected = false});
  const std::string number = std::to_string(channel.id());
  channel.run([&] {
    static_cast<void>(
        channel.connect(SocketAddress::loopback4(80), SocketAddress::loopback4(1024)));
  });
  EXPECT_EQ(channel.describe(), "[" + number + " embedded 127.0.0.1:1024 -> 127.0.0.1:80]");
  channel.close();
  EXPECT_THAT(channel.describe(), HasSubstr(", closed]"));
}

TEST(Channel, CarriesAttributesFromAnyThread) {
  static const AttributeKey<int> key("answer");
  EmbeddedChannel channel;
  std::vector<std::thread> threads;
  std::vector<AttributeMap*> maps(4);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    threads.emplace_back([&, i] { maps[i] = &channel.attributes(); });
  }
  for (std::thread& thread : threads) thread.join();

  for (const AttributeMap* map : maps) EXPECT_EQ(map, maps[0]);
  channel.attributes().set(key, 42);
  EXPECT_EQ(*channel.attributes().get(key), 42);
}

TEST(Channel, LetsItsCloseFutureBeAskedForAtAnyTime) {
  EmbeddedChannel channel;
  const Future<void> early = channel.closeFuture();
  EXPECT_EQ(channel.closeFuture(), early);
  EXPECT_FALSE(early.isDone());
  channel.close();
  EXPECT_TRUE(early.isSuccess());
  EXPECT_TRUE(channel.closeFuture().isSuccess());
  EmbeddedChannel other;
  other.close();
  EXPECT_TRUE(other.closeFuture().isSuccess());
}

// C190: the future's executor is the loop; C192: another loop is refused by name
TEST(Channel, BelongsToOneLoop) {
  EmbeddedChannel one;
  EmbeddedChannel two({.registered = false});
  EXPECT_EQ(&two.start().executor(), &two.loop());
  EmbeddedChannel three({.registered = false});

  const Future<void> wrong = registerChannel(one.loop(), ChannelPtr(&three));

  EXPECT_TRUE(wrong.cause().is(Errc::notSupported));
  EXPECT_THAT(wrong.cause().message(), HasSubstr(three.loop().name()));
  EXPECT_TRUE(three.isOpen());
  EXPECT_FALSE(three.isRegistered());
}

// C194
TEST(Channel, IsClosedByALoopThatCannotHaveIt) {
  test::LogCapture quiet("warn");
  EmbeddedChannel channel({.registered = false});
  static_cast<void>(channel.loop().shutdownGracefully());
  ASSERT_TRUE(channel.loop().isTerminated());

  const Future<void> refused = registerChannel(channel.loop(), ChannelPtr(&channel));

  EXPECT_TRUE(refused.cause().is(Errc::rejected));
  EXPECT_FALSE(channel.isOpen());
  EXPECT_TRUE(channel.closeFuture().isSuccess());
}

// --- reading ---

TEST(AutoRead, OffBringsOneBurstPerRead) {
  test::Log log;
  EmbeddedChannel channel(
      [&](Channel& ch) { ch.pipeline().emplaceLast<test::Recorder>("h", log); });
  channel.setAutoRead(false);
  channel.writeInbound(1, 2);
  EXPECT_FALSE(channel.isAutoRead());
  EXPECT_THAT(test::whoSaw(log, "channelRead"), ElementsAre());

  channel.read();
  channel.runPendingTasks();
  EXPECT_EQ(test::whoSaw(log, "channelRead").size(), 1U);
  EXPECT_EQ(test::whoSaw(log, "channelReadComplete").size(), 1U);
  channel.read();
  channel.runPendingTasks();
  EXPECT_EQ(test::whoSaw(log, "channelRead").size(), 2U);
}

TEST(AutoRead, TurnedOffInTheMiddleOfABurstEndsIt) {
  test::Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().addLast(std::make_unique<test::Recorder>(
        "h", log, "channelRead", [](Context& ctx) { ctx.channel().setAutoRead(false); }));
  });

  channel.writeInbound(1, 2, 3);

  EXPECT_EQ(channel.inboundSize(), 1U);
  EXPECT_EQ(channel.waitingSize(), 2U);
}

TEST(AutoRead, IsSeenByHandlersThatWantToDecide) {
  struct Holds : ChannelHandler {
    void read(Context& ctx) override {
      if (open) ctx.read();
    }
    bool open = true;
  };
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<Holds>(); });
  channel.handler<Holds>()->open = false;
  channel.writeInbound(1);  // the read() of before is still good for one burst
  channel.writeInbound(2);
  EXPECT_EQ(channel.inboundSize(), 1U);

  channel.handler<Holds>()->open = true;
  channel.read();
  channel.runPendingTasks();

  EXPECT_EQ(channel.inboundSize(), 2U);
}

// behaviour 3.9 item 1
TEST(DroppedMessage, IsDestroyedAndCounted) {
  struct Ignores : ChannelHandler {
    void channelRead(Context&, Message&&) override {}
  };
  auto token = std::make_shared<int>();
  EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<Ignores>(); });

  EXPECT_FALSE(channel.writeInbound(token));

  EXPECT_EQ(token.use_count(), 1);
  EXPECT_EQ(channelMetrics(channel.loop()).droppedMessages, 1U);
}

// --- options ---

class ChannelOptions : public testing::Test {
 protected:
  template <class T>
  void roundTrip(const ChannelOption<T>& option, T value) {
    SCOPED_TRACE(option.name());
    channel_.run([&] {
      EXPECT_NE(channel_.option(option).get(), value);
      EXPECT_TRUE(channel_.setOption(option, value).isSuccess());
      EXPECT_EQ(channel_.option(option).get(), value);
    });
  }
  template <class T>
  void refused(const ChannelOption<T>& option, T value) {
    const Future<void> set = channel_.run([&] { return channel_.setOption(option, value); });
    EXPECT_EQ(set.cause().errnoValue(), EINVAL);
    EXPECT_THAT(set.cause().message(), HasSubstr(std::string(option.name())));
  }

  EmbeddedChannel channel_;
};

TEST_F(ChannelOptions, AreReadBackAsTheyWereSet) {
  roundTrip(options::autoRead, false);
  roundTrip(options::waterMarks, WaterMarks{1, 2});
  roundTrip(options::receiveSizes, ReceiveSizes{64, 128, 4096});
  roundTrip(options::connectTimeout, Duration(1s));
  roundTrip(options::lingerOnDrain, Duration(3s));
  roundTrip(options::maxMessagesPerRead, 3);
  roundTrip(options::writeSpinCount, 4);
  roundTrip(options::allowHalfClosure, true);
  roundTrip(options::pauseReadsWhenUnwritable, false);
  roundTrip(options::zeroCopyFrom, 65536);
}

// behaviour 3.12 items 7 to 9, F66: no size of an option can exhaust the memory
TEST_F(ChannelOptions, RefuseValuesThatMakeNoSense) {
  refused(options::waterMarks, WaterMarks{3, 2});
  refused(options::receiveSizes, ReceiveSizes{64, 8192, 4096});
  refused(options::receiveSizes, ReceiveSizes{1024, 512, 4096});
  refused(options::receiveSizes, ReceiveSizes{8192, 8192, 4096});
  refused(options::receiveSizes, ReceiveSizes{0, 512, 4096});
  refused(options::receiveSizes, ReceiveSizes{64, 512, 1u << 30});
  refused(options::maxMessagesPerRead, 0);
  refused(options::writeSpinCount, 0);
}

TEST_F(ChannelOptions, OfOtherKindsOfChannelsAreNotSupported) {
  channel_.run([&] {
    const Error set = channel_.setOption(options::tcpNoDelay, true).cause();
    EXPECT_TRUE(set.is(Errc::notSupported));
    EXPECT_THAT(set.message(), testing::AllOf(HasSubstr("tcpNoDelay"), HasSubstr("embedded")));
    EXPECT_TRUE(channel_.option(options::tcpNoDelay).cause().is(Errc::notSupported));
  });
}

TEST_F(ChannelOptions, AreSetFromAnyThread) {
  Future<void> set;
  Future<WaterMarks> got;
  std::thread([&] {
    set = channel_.setOption(options::waterMarks, {5, 6});
    got = channel_.option(options::waterMarks);
  }).join();
  EXPECT_FALSE(set.isDone());

  channel_.runPendingTasks();

  EXPECT_TRUE(set.isSuccess());
  EXPECT_EQ(got.get(), (WaterMarks{5, 6}));
}

}  // namespace
}  // namespace millrace
