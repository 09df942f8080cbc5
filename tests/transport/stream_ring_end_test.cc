// SPDX-License-Identifier: Apache-2.0
// How TCP streams on io_uring end: with bytes in flight, by halves, and with another connection that
// gets their descriptor's number at once.
#include "transport/stream_ring_fixture.h"

#include <millrace/channel/file_region.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::echoing;
using test::EventLog;
using test::LogPtr;
using test::pattern;
using test::recording;
using test::same;
using test::succeeds;

class StreamRingEnd : public test::StreamRingTest {
 protected:
  void SetUp() override {
    StreamRingTest::SetUp();
    heapBlocks_ = internal::liveHeapBlocks();
  }
  /// Nothing that was received or sent is kept by anybody.
  bool allMemoryIsHome() {
    return test::eventually(
        [this] {
          settle();
          return usedBlocks() == 0 && internal::liveHeapBlocks() == heapBlocks_;
        },
        30s);
  }
  static void expectNothingBehindTheEnd(const EventLog& log) {
    const std::vector<std::string> events = log.events();
    const auto end = std::find(events.begin(), events.end(), "inactive");
    ASSERT_NE(end, events.end());
    EXPECT_EQ(std::vector<std::string>(end, events.end()),
              (std::vector<std::string>{"inactive", "unregistered", "removed"}));
  }

  std::int64_t heapBlocks_ = 0;
};

// --- with bytes in flight ---

// F71
TEST_P(StreamRingEnd, WithALargeSendInFlightFreesItsMemory) {
  for (int round = 0; round < 10; ++round) {
    const LogPtr log = std::make_shared<EventLog>();
    auto [channel, peer] = link(recording(log), narrowAndReading, 4096);
    const Future<void> sent = channel->send(ByteBuf::of(pattern(8 << 20)));
    settle();
    EXPECT_TRUE(isOnRing(channel));
    EXPECT_FALSE(sent.isDone());

    EXPECT_TRUE(succeeds(channel->close()));

    EXPECT_TRUE(test::failsWith(sent, Errc::closed));
    ASSERT_TRUE(log->await("removed"));
    const std::string got = peer.receiveAll();
    EXPECT_TRUE(same(got, std::string_view(pattern(8 << 20)).substr(0, got.size())));
    EXPECT_TRUE(allMemoryIsHome());
    expectNothingBehindTheEnd(*log);
  }
}

// F71: bytes come while it closes
TEST_P(StreamRingEnd, WithReceivesInFlightTellsNobodyAnyMore) {
  for (int round = 0; round < 50; ++round) {
    const LogPtr log = std::make_shared<EventLog>();
    auto [channel, peer] = link(recording(log));
    std::thread sender([&peer = peer] {
      for (int i = 0; i < 50; ++i) static_cast<void>(peer.sendSome("some bytes"));
    });

    EXPECT_TRUE(succeeds(channel->close()));
    sender.join();

    ASSERT_TRUE(log->await("removed"));
    settle();
    expectNothingBehindTheEnd(*log);
  }
  EXPECT_TRUE(allMemoryIsHome());
}

// F71: a number that is another connection's before the ring has heard of the end of the first
TEST_P(StreamRingEnd, LeavesNothingToTheNextWithItsNumber) {
  int reused = 0;
  for (int round = 0; round < 50; ++round) {
    Link old = link(recording(log_), narrowAndReading, 4096);
    old.channel->send(ByteBuf::of(std::string(1 << 20, 'o')));
    settle();
    const LogPtr log = std::make_shared<EventLog>();
    test::Pair pair;
    const ChannelPtr next = inLoop([&] {
      const int number = old.channel->descriptor();
      old.peer.send("for the old one");
      old.channel->close();
      pair = test::makePair(true);
      // The lowest free number: ours, unless the pair's first socket took it.
      reused += pair.ours.get() == number || pair.peer.fd() == number ? 1 : 0;
      if (pair.ours.get() != number && pair.peer.fd() == number) {
        const int other = ::dup(number);
        pair.peer = test::Peer(Fd(other));
        EXPECT_EQ(::dup3(pair.ours.get(), number, O_CLOEXEC), number);
        pair.ours = Fd(number);
      }
      const ChannelPtr made = adopt(std::move(pair.ours));
      recording(log)(*made);
      made->pipeline().emplaceLast<test::EchoHandler>();
      EXPECT_TRUE(made->registerNow({}));
      return made;
    });

    ASSERT_TRUE(pingPong(pair.peer, 5));
    EXPECT_EQ(log->bytes(), "ping 0ping 1ping 2ping 3ping 4");
    const std::string last = old.peer.receiveAll();
    EXPECT_EQ(last.find_first_not_of('o'), std::string::npos);
    EXPECT_TRUE(succeeds(next->close()));
  }
  EXPECT_GT(reused, 0);
  EXPECT_TRUE(allMemoryIsHome());
}

// F71: the loop ends with everything in flight
TEST_P(StreamRingEnd, OfTheLoopFreesEverything) {
  std::vector<Link> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(link(recording(log_), narrowAndReading, 4096));
    all.back().channel->send(ByteBuf::of(pattern(1 << 20)));
    all.back().peer.send("a few bytes");
  }

  EXPECT_TRUE(succeeds(group().shutdownGracefully(0s, 0s)));
  all.clear();
  endGroup();

  EXPECT_EQ(internal::liveHeapBlocks(), heapBlocks_);
}

/// Answers whatever comes with as much as may be handed over at once.
constexpr std::size_t kLargeAnswer = 60000;
struct LargeAnswer final : ChannelHandler {
  void channelRead(Context& ctx, Message&&) override {
    ctx.writeAndFlush(Message(ByteBuf::of(pattern(kLargeAnswer))));
  }
};

// What was cut is counted in bytes, not in memory that they hold.
TEST_P(StreamRingEnd, OfTheLoopSaysHowManyBytesWereLost) {
  auto [channel, peer] = link([](Channel& each) { each.pipeline().emplaceLast<LargeAnswer>(); },
                              narrowAndReading, 4096);
  peer.send("more than is read");
  ASSERT_TRUE(test::eventually([&, &one = channel] { return pendingBytes(one) > kLargeAnswer; }));

  const ShutdownReport report = group().shutdownGracefully(0s, 0s).get();

  EXPECT_EQ(report.channelsCut, 1U);
  EXPECT_GT(report.bytesCut, 0U);
  EXPECT_LE(report.bytesCut, kLargeAnswer);
}

// F71 F20
TEST_P(StreamRingEnd, ByAResetWithASendInFlight) {
  for (int round = 0; round < 10; ++round) {
    const LogPtr log = std::make_shared<EventLog>();
    auto [channel, peer] = link(recording(log), narrowAndReading, 4096);
    const Future<void> sent = channel->send(ByteBuf::of(pattern(4 << 20)));
    settle();

    peer.reset();

    EXPECT_FALSE(succeeds(sent));
    ASSERT_TRUE(log->await("removed"));
    EXPECT_EQ(log->count("inactive"), 1U);
    EXPECT_TRUE(allMemoryIsHome());
  }
}

// --- leaving the ring with a send in flight ---

// The socket becomes one that does not block while the ring still sends.
TEST_P(StreamRingEnd, OfReadingLeavesASendInFlightWhole) {
  const std::string bytes = pattern(8 << 20);
  auto [channel, peer] = link(recording(log_), narrowAndReading, 4096);
  const Future<void> sent = channel->send(ByteBuf::of(bytes));
  settle();
  ASSERT_TRUE(isOnRing(channel));

  inLoop([ch = channel] { ch->setAutoRead(false); });
  std::string got;
  while (got.size() < bytes.size()) {
    const std::string part = peer.receive(std::min<std::size_t>(10'000, bytes.size() - got.size()));
    if (part.empty()) break;
    got += part;
  }

  EXPECT_TRUE(same(got, bytes));
  EXPECT_TRUE(succeeds(sent));
}

// The same for several messages, and for one that an echo has handed over.
TEST_P(StreamRingEnd, OfReadingLeavesAnswersInFlightWhole) {
  for (unsigned round = 0; round < 5; ++round) {
    auto [channel, peer] = link(echoing(), narrow, 4096);
    const std::string message = pattern(3000, round);
    std::string sent;
    while (pendingBytes(channel) == 0) {
      peer.send(message);
      sent += message;
      ASSERT_TRUE(test::eventually([&, ch = channel] {
        settle();
        return pendingBytes(ch) != 0 || usedBlocks() == 0;
      }));
    }

    inLoop([ch = channel] { ch->setAutoRead(false); });
    std::string got;
    while (got.size() < sent.size()) {
      const std::string part = peer.receive(std::min<std::size_t>(700, sent.size() - got.size()));
      if (part.empty()) break;
      got += part;
    }
    ASSERT_TRUE(same(got, sent)) << "round " << round;
    inLoop([ch = channel] { ch->setAutoRead(true); });
    EXPECT_TRUE(pingPong(peer, 3));
  }
}

// Files go by calls of their own, behind what the ring has.
TEST_P(StreamRingEnd, OfAFileComesBehindWhatTheRingSends) {
  const std::string head = pattern(2 << 20, 1);
  const std::string content = pattern(1 << 20, 2);
  char name[] = "/tmp/millrace-ring-XXXXXX";
  Fd file(::mkostemp(name, O_CLOEXEC));
  ::unlink(name);
  ASSERT_EQ(::write(file.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  auto [channel, peer] = link(recording(log_), narrowAndReading, 4096);

  channel->send(ByteBuf::of(head));
  settle();
  channel->write(FileRegion(std::move(file), 0, content.size()));
  const Future<void> sent = channel->send(ByteBuf::of("tail"));

  EXPECT_TRUE(same(peer.receive(head.size() + content.size() + 4), head + content + "tail"));
  EXPECT_TRUE(succeeds(sent));
}

// --- by halves ---

TEST_P(StreamRingEnd, OfTheOutputWaitsForASendInFlight) {
  const std::string bytes = pattern(4 << 20);
  auto [channel, peer] = link(recording(log_), narrowAndReading, 4096);
  channel->send(ByteBuf::of(bytes));
  settle();

  const Future<void> ended = channel->shutdownOutput();
  peer.send("still read");
  EXPECT_TRUE(same(peer.receiveAll(), bytes));

  EXPECT_EQ(peer.error(), 0);
  EXPECT_TRUE(succeeds(ended));
  EXPECT_TRUE(log_->awaitBytes(10));
  peer.send(" and on");
  EXPECT_TRUE(log_->awaitBytes(17));
  EXPECT_EQ(log_->bytes(), "still read and on");
}

TEST_P(StreamRingEnd, OfThePeersOutputLeavesOursWhole) {
  const std::string bytes = pattern(4 << 20);
  auto [channel, peer] = link(
      recording(log_),
      [](Channel& ch) {
        narrowAndReading(ch);
        EXPECT_TRUE(ch.applyOption(options::allowHalfClosure, OptionValue(true)).ok());
      },
      4096);
  const Future<void> sent = channel->send(ByteBuf::of(bytes));
  settle();

  peer.send("last words");
  peer.shutdownWrite();
  ASSERT_TRUE(log_->await("event InputShutdown"));
  const Future<void> more = channel->send(ByteBuf::of("more"));

  EXPECT_EQ(log_->bytes(), "last words");
  EXPECT_TRUE(same(peer.receive(bytes.size() + 4), bytes + "more"));
  EXPECT_TRUE(succeeds(sent));
  EXPECT_TRUE(succeeds(more));
  EXPECT_TRUE(succeeds(channel->shutdownOutput()));
  ASSERT_TRUE(log_->await("removed"));
}

// The same for answers that an echo has handed over one by one.
TEST_P(StreamRingEnd, OfThePeersOutputLeavesAnswersWhole) {
  for (unsigned round = 0; round < 5; ++round) {
    auto [channel, peer] = link(
        echoing(),
        [](Channel& ch) {
          narrow(ch);
          EXPECT_TRUE(ch.applyOption(options::allowHalfClosure, OptionValue(true)).ok());
        },
        4096);
    const std::string message = pattern(3000, round);
    std::string sent;
    do {
      peer.send(message);
      sent += message;
      settle();
    } while (pendingBytes(channel) == 0);

    peer.shutdownWrite();
    settle();
    std::string got;
    while (got.size() < sent.size()) {
      const std::string part = peer.receive(std::min<std::size_t>(700, sent.size() - got.size()));
      if (part.empty()) break;
      got += part;
    }

    ASSERT_TRUE(same(got, sent)) << "round " << round;
    EXPECT_TRUE(succeeds(channel->close()));
  }
}

TEST_P(StreamRingEnd, GracefullySendsEverything) {
  const std::string bytes = pattern(4 << 20);
  auto [channel, peer] = link(recording(log_), narrowAndReading, 4096);
  peer.send("unread, perhaps");
  channel->send(ByteBuf::of(bytes));
  settle();

  const Future<void> closed = channel->closeGracefully();
  EXPECT_TRUE(same(peer.receiveAll(), bytes));
  EXPECT_EQ(peer.error(), 0);
  peer.close();

  EXPECT_TRUE(succeeds(closed));
  EXPECT_TRUE(allMemoryIsHome());
}

// --- at once ---

// C136: what was flushed gets a last attempt, also behind a send that the ring has just got
TEST_P(StreamRingEnd, SendsWhatWasFlushedBehindASendInFlight) {
  auto [channel, peer] = link(recording(log_));

  inLoop([ch = channel] {
    ch->writeAndFlush(ByteBuf::of("good"));
    ch->flushNow();
    ch->writeAndFlush(ByteBuf::of("bye"));
    ch->close();
  });

  EXPECT_EQ(peer.receiveAll(), "goodbye");
  EXPECT_EQ(peer.error(), 0);
}

// C136: two requests come at once, the second one is answered and the last
TEST_P(StreamRingEnd, SendsTheAnswersToAllThatCameAtOnce) {
  struct AnswersTwice : ChannelHandler {
    void channelRead(Context& ctx, Message&&) override {
      ctx.writeAndFlush(ByteBuf::of(++answers == 1 ? "one" : "two"));
      if (answers == 2) ctx.close();
    }
    int answers = 0;
  };
  auto [channel, peer] = link([](Channel& ch) { ch.pipeline().emplaceLast<AnswersTwice>(); });

  peer.send(pattern(5000));  // more than one block of the ring

  EXPECT_EQ(peer.receiveAll(), "onetwo");
}

// What the ring still does for it is ended by name: the number is nobody's, or another file's.
TEST_P(StreamRingEnd, IsSeenByThePeerThoughSomebodyElseClosedTheDescriptor) {
  Link one = link([](Channel&) {});
  settle();
  ASSERT_TRUE(isOnRing(one.channel));
  inLoop([&] { ::close(one.channel->descriptor()); });

  EXPECT_FALSE(succeeds(one.channel->send(ByteBuf::of("x"))));
  EXPECT_TRUE(succeeds(one.channel->closeFuture()));

  one.peer.receiveAll();  // an end or a reset, and no timeout
}

TEST_P(StreamRingEnd, IsSeenAtOnceWhenAChannelLeavesItsLoopAndCloses) {
  Link one = link([](Channel&) {}, noAutoRead);
  settle();
  ASSERT_FALSE(isOnRing(one.channel));

  inLoop([&] {
    one.channel->deregister();
    one.channel->close();
    // The loop is here: nobody but close() itself can have told the peer.
    EXPECT_EQ(one.peer.receiveAll(), "");
    EXPECT_EQ(one.peer.error(), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Rings, StreamRingEnd, testing::ValuesIn(test::ringRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
