// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/channel_group.h>
#include <millrace/transport/embedded_channel.h>

#include <gtest/gtest.h>

#include <barrier>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

ChannelPtr ptr(Channel& channel) { return ChannelPtr(&channel); }

TEST(ChannelGroup, KnowsWhoIsInIt) {
  EmbeddedChannel one;
  EmbeddedChannel two;
  ChannelGroup group;

  EXPECT_TRUE(group.empty());
  EXPECT_TRUE(group.add(ptr(one)));
  EXPECT_FALSE(group.add(ptr(one)));
  EXPECT_TRUE(group.add(ptr(two)));
  EXPECT_EQ(group.size(), 2U);
  EXPECT_TRUE(group.contains(one));
  EXPECT_EQ(group.find(two.id()), ptr(two));
  EXPECT_TRUE(group.remove(one));
  EXPECT_FALSE(group.remove(one));
  EXPECT_FALSE(group.contains(one));
  EXPECT_FALSE(group.find(one.id()));
  EXPECT_EQ(group.size(), 1U);
  EXPECT_TRUE(one.isOpen());
}

TEST(ChannelGroup, LosesAChannelThatCloses) {
  EmbeddedChannel one;
  EmbeddedChannel two;
  ChannelGroup group;
  group.add(ptr(one));
  group.add(ptr(two));

  one.close();

  EXPECT_EQ(group.size(), 1U);
  EXPECT_FALSE(group.contains(one));
  EXPECT_FALSE(group.add(ptr(one)));
  EXPECT_EQ(group.size(), 1U);
}

TEST(ChannelGroup, TakesAChannelAgainAfterItLeft) {
  EmbeddedChannel channel;
  ChannelGroup group;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(group.add(ptr(channel)));
    EXPECT_TRUE(group.remove(channel));
  }
  EXPECT_TRUE(group.add(ptr(channel)));

  channel.close();

  EXPECT_TRUE(group.empty());
}

TEST(ChannelGroup, LeavesItsChannelsOpenWhenItGoes) {
  EmbeddedChannel channel;
  {
    ChannelGroup group;
    group.add(ptr(channel));
  }
  EXPECT_TRUE(channel.isOpen());
}

TEST(ChannelGroup, WritesTheSameBytesToAllWithoutCopyingThem) {
  EmbeddedChannel one;
  EmbeddedChannel two;
  ChannelGroup group;
  group.add(ptr(one));
  group.add(ptr(two));
  const ByteBuf hello = ByteBuf::of("hello");

  group.write(hello);
  one.runPendingTasks();
  EXPECT_EQ(one.outboundSize(), 0U);
  group.flush();
  one.runPendingTasks();
  two.runPendingTasks();

  const auto first = one.readOutbound<ByteBuf>();
  const auto second = two.readOutbound<ByteBuf>();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->text(), "hello");
  EXPECT_EQ(first->storage(), hello.storage());
  EXPECT_EQ(second->storage(), hello.storage());
}

TEST(ChannelGroup, LeavesOutWhomTheFilterOrTheMakerDoesNotWant) {
  EmbeddedChannel one;
  EmbeddedChannel two;
  ChannelGroup group;
  group.add(ptr(one));
  group.add(ptr(two));

  group.writeAndFlush(ByteBuf::of("all but one"), [&](Channel& ch) { return &ch != &one; });
  group.writeAndFlush([&](Channel& ch) { return &ch == &one ? Message(1) : Message(); });
  one.runPendingTasks();
  two.runPendingTasks();

  EXPECT_EQ(one.readOutbound<int>(), 1);
  EXPECT_EQ(two.outboundText(), "all but one");
  EXPECT_EQ(one.outboundSize() + two.outboundSize(), 0U);
}

TEST(ChannelGroup, TellsWhetherAllHaveSent) {
  EmbeddedChannel one;
  EmbeddedChannel two;
  ChannelGroup group;
  group.add(ptr(one));
  group.add(ptr(two));
  const Future<void> good = group.send(ByteBuf::of("a"));
  one.runPendingTasks();
  EXPECT_FALSE(good.isDone());
  two.runPendingTasks();
  one.runPendingTasks();  // where the combined future's callbacks belong
  EXPECT_TRUE(good.isSuccess());

  two.failNextWrites(Error::fromErrno(EMSGSIZE, "write"));
  const Future<void> bad = group.send([](Channel&) { return Message(3); });
  one.runPendingTasks();
  two.runPendingTasks();
  one.runPendingTasks();

  EXPECT_EQ(bad.cause().errnoValue(), EMSGSIZE);
  EXPECT_TRUE(ChannelGroup().send(ByteBuf::of("nobody")).isSuccess());
}

TEST(ChannelGroup, ClosesAll) {
  EmbeddedChannel one;
  EmbeddedChannel two;
  ChannelGroup group;
  group.add(ptr(one));
  group.add(ptr(two));

  const Future<void> closed = group.close();
  EXPECT_FALSE(closed.isDone());
  one.runPendingTasks();
  two.runPendingTasks();

  EXPECT_TRUE(closed.isSuccess());
  EXPECT_FALSE(one.isOpen() || two.isOpen());
  EXPECT_TRUE(group.empty());
  EXPECT_TRUE(group.close().isSuccess());
  EXPECT_TRUE(group.closeGracefully().isSuccess());
}

TEST(ChannelGroup, ClosesThoseThatComeTooLateIfItIsTold) {
  EmbeddedChannel early;
  EmbeddedChannel late;
  ChannelGroup stays(ChannelGroup::AfterClose::closesChannels);
  EXPECT_TRUE(stays.add(ptr(early)));
  stays.closeGracefully();
  early.runPendingTasks();
  EXPECT_FALSE(early.isOpen());

  stays.add(ptr(late));
  late.runPendingTasks();

  EXPECT_FALSE(late.isOpen());
  EXPECT_TRUE(stays.empty());
  EmbeddedChannel again;
  ChannelGroup open;
  open.close();
  EXPECT_TRUE(open.add(ptr(again)));
  again.runPendingTasks();
  EXPECT_TRUE(again.isOpen());
}

TEST(ChannelGroup, MayBeChangedWhileItIsWalkedThrough) {
  EmbeddedChannel one;
  EmbeddedChannel two;
  ChannelGroup group;
  group.add(ptr(one));
  group.add(ptr(two));
  int seen = 0;

  group.forEach([&](Channel& ch) {
    ++seen;
    group.remove(ch);
  });

  EXPECT_EQ(seen, 2);
  EXPECT_TRUE(group.empty());
}

TEST(ChannelGroup, IsForAnyThread) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  ChannelGroup group;
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  std::vector<std::size_t> got(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      EmbeddedChannel steady;
      group.add(ptr(steady));
      together.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        EmbeddedChannel other({.registered = false});
        static_cast<void>(group.size() + group.channels().size());
        group.writeAndFlush(ByteBuf::of("x"));
        steady.runPendingTasks();
      }
      together.arrive_and_wait();  // from here on nobody refers to the channels of others
      steady.runPendingTasks();
      got[static_cast<std::size_t>(t)] = steady.outboundText().size();
      steady.close();
      together.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const std::size_t count : got) EXPECT_EQ(count, std::size_t{kThreads} * kRounds);
  EXPECT_TRUE(group.empty());
}

}  // namespace
}  // namespace millrace
