// SPDX-License-Identifier: Apache-2.0
// Sends without a copy (options::zeroCopyFrom): when they are used, and how long their memory lives.
#include "support/ring_script.h"
#include "transport/stream_ring_fixture.h"

#include <gmock/gmock.h>

#include <cerrno>

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

class StreamRingZeroCopy : public test::StreamRingTest {
 protected:
  void SetUp() override {
    StreamRingTest::SetUp();
    heapBlocks_ = internal::liveHeapBlocks();
  }
  static void fromThousand(Channel& channel) {
    EXPECT_TRUE(channel.applyOption(options::zeroCopyFrom, OptionValue(1000)).ok());
    EXPECT_TRUE(channel.applyOption(options::pauseReadsWhenUnwritable, OptionValue(false)).ok());
  }
  static void fromThousandAndNarrow(Channel& channel) {
    fromThousand(channel);
    narrow(channel);
  }
  std::uint64_t inPlace() const {
    return script_.count(IORING_OP_SEND_ZC) + script_.count(IORING_OP_SENDMSG_ZC);
  }
  std::uint64_t copied() const {
    return script_.count(IORING_OP_SEND) + script_.count(IORING_OP_SENDMSG);
  }
  bool allMemoryIsHome() {
    return test::eventually(
        [this] {
          settle();
          return usedBlocks() == 0 && internal::liveHeapBlocks() == heapBlocks_;
        },
        30s);
  }

  test::RingScript script_;  // before the loops
  std::int64_t heapBlocks_ = 0;
};

TEST_P(StreamRingZeroCopy, IsOffUnlessItIsAskedFor) {
  const std::string bytes = pattern(100'000);
  auto [channel, peer] = link(recording(log_));

  const Future<void> sent = channel->send(ByteBuf::of(bytes));

  EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));
  EXPECT_TRUE(succeeds(sent));
  EXPECT_EQ(inPlace(), 0U);
}

TEST_P(StreamRingZeroCopy, IsForSendsOfThatSizeAndMore) {
  auto [channel, peer] = link(recording(log_), fromThousand);

  EXPECT_TRUE(succeeds(channel->send(ByteBuf::of(pattern(999)))));
  EXPECT_EQ(inPlace(), 0U);
  EXPECT_TRUE(succeeds(channel->send(ByteBuf::of(pattern(1000)))));
  EXPECT_EQ(inPlace(), 1U);
  EXPECT_EQ(copied(), 1U);

  EXPECT_TRUE(same(peer.receive(1999), pattern(999) + pattern(1000)));
  EXPECT_TRUE(allMemoryIsHome());
  EXPECT_EQ(script_.notifications(), 1U);
}

// Messages that the ring is handed one by one, and several at once.
TEST_P(StreamRingZeroCopy, KeepsEveryByteInOrder) {
  auto [channel, peer] = link(echoing(), fromThousand);
  for (unsigned i = 0; i < 50; ++i) {
    const std::string message = pattern(500 + 70 * i, i);
    peer.send(message);
    ASSERT_TRUE(same(peer.receive(message.size()), message)) << i;
  }
  EXPECT_GT(script_.count(IORING_OP_SEND_ZC), 0U);
  const std::string bytes = pattern(1'000'000);
  std::vector<Future<void>> sent;
  inLoop([&, ch = channel] {
    for (std::size_t at = 0; at < bytes.size(); at += 10'000) {
      sent.push_back(ch->send(ByteBuf::of(bytes.substr(at, 10'000))));
    }
  });

  EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));
  for (const Future<void>& each : sent) EXPECT_TRUE(succeeds(each));
  EXPECT_GT(script_.count(IORING_OP_SENDMSG_ZC), 0U);
  EXPECT_TRUE(allMemoryIsHome());
}

// F71: the kernel has taken the bytes, and has not sent them: whoever wrote them is done, the memory not
TEST_P(StreamRingZeroCopy, KeepsTheMemoryUntilTheKernelIsDoneWithIt) {
  const std::string bytes =
      pattern(300'000);  // more than the peer takes, less than the kernel does
  auto [channel, peer] = link(recording(log_), [](Channel& ch) {
    fromThousand(ch);
    EXPECT_TRUE(ch.applyOption(options::sendBuffer, OptionValue(1 << 20)).ok());
  });

  const Future<void> sent = channel->send(ByteBuf::of(bytes));
  EXPECT_TRUE(succeeds(sent));
  settle();

  EXPECT_EQ(pendingBytes(channel), 0U);
  EXPECT_GT(internal::liveHeapBlocks(), heapBlocks_);
  EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));
  EXPECT_TRUE(allMemoryIsHome());
}

// The same while others follow: each waits for its own notification.
TEST_P(StreamRingZeroCopy, KeepsNoMemoryLongerThanThat) {
  auto [channel, peer] = link(recording(log_), fromThousand);
  for (unsigned round = 0; round < 100; ++round) {
    const std::string bytes = pattern(20'000, round);
    const Future<void> sent = channel->send(ByteBuf::of(bytes));
    ASSERT_TRUE(same(peer.receive(bytes.size()), bytes)) << round;
    ASSERT_TRUE(succeeds(sent));
    ASSERT_LE(internal::liveHeapBlocks(), heapBlocks_ + 5);
  }
  EXPECT_TRUE(allMemoryIsHome());
}

// F18
TEST_P(StreamRingZeroCopy, LosesNothingToShortSends) {
  script_.shorten(IORING_OP_SEND_ZC, 1500).shorten(IORING_OP_SENDMSG_ZC, 1500);
  auto [channel, peer] = link(echoing(), fromThousand);
  for (unsigned i = 0; i < 10; ++i) {
    const std::string message = pattern(4000, i);
    peer.send(message);
    ASSERT_TRUE(same(peer.receive(message.size()), message)) << i;
  }
  const std::string bytes = pattern(60'000);
  const Future<void> sent = channel->send(ByteBuf::of(bytes));

  EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));
  EXPECT_TRUE(succeeds(sent));
  EXPECT_GT(script_.faults(), 40U);
  EXPECT_TRUE(allMemoryIsHome());
}

// F72: a kernel that does not know it, a limit on pinned memory
TEST_P(StreamRingZeroCopy, FallsBackToCopies) {
  for (const int error : {ENOMEM, ENOBUFS, EOPNOTSUPP, EINVAL}) {
    auto [channel, peer] = link(echoing(), fromThousand);
    settle();
    const std::uint64_t before = copied();
    script_.fail(IORING_OP_SEND_ZC, error).fail(IORING_OP_SENDMSG_ZC, error);
    const std::string bytes = pattern(50'000);

    const Future<void> sent = channel->send(ByteBuf::of(bytes));
    EXPECT_TRUE(same(peer.receive(bytes.size()), bytes)) << error;
    EXPECT_TRUE(succeeds(sent));
    peer.send(pattern(3000));
    EXPECT_TRUE(same(peer.receive(3000), pattern(3000))) << error;

    EXPECT_GT(copied(), before);
    EXPECT_TRUE(channel->isOpen());
    script_.fail(IORING_OP_SEND_ZC, error, 0).fail(IORING_OP_SENDMSG_ZC, error, 0);
  }
  EXPECT_TRUE(allMemoryIsHome());
}

TEST_P(StreamRingZeroCopy, ClosesWithTheCauseOfAFailure) {
  auto [channel, peer] = link(recording(log_), fromThousand);
  settle();
  script_.fail(IORING_OP_SENDMSG_ZC, EPIPE);

  const Future<void> sent = channel->send(ByteBuf::of(pattern(5000)));

  EXPECT_EQ(test::errnoOf(sent), EPIPE);
  ASSERT_TRUE(log_->await("removed"));
  EXPECT_TRUE(allMemoryIsHome());
}

// F71: the connection ends before the kernel is done
TEST_P(StreamRingZeroCopy, MayBeClosedInTheMiddle) {
  const std::string bytes = pattern(2 << 20);
  for (unsigned round = 0; round < 20; ++round) {
    const LogPtr log = std::make_shared<EventLog>();
    auto [channel, peer] = link(recording(log), fromThousandAndNarrow, 16384);
    channel->send(ByteBuf::of(bytes));
    if (round % 2 == 0) settle();
    if (round % 4 < 2) {
      EXPECT_TRUE(succeeds(channel->close()));
      const std::string got = peer.receiveAll();
      EXPECT_TRUE(same(got, std::string_view(bytes).substr(0, got.size())));
    } else {
      peer.reset();
    }
    ASSERT_TRUE(log->await("removed"));
  }
  EXPECT_TRUE(allMemoryIsHome());
}

TEST_P(StreamRingZeroCopy, MayLeaveTheRingInTheMiddle) {
  const std::string bytes = pattern(1 << 20);
  for (unsigned round = 0; round < 5; ++round) {
    auto [channel, peer] = link(recording(log_), fromThousandAndNarrow, 16384);
    const Future<void> sent = channel->send(ByteBuf::of(bytes));
    if (round % 2 == 0) settle();
    inLoop([ch = channel] { ch->setAutoRead(false); });

    EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));
    EXPECT_TRUE(succeeds(sent));
  }
  EXPECT_TRUE(allMemoryIsHome());
}

// F71: the loop ends while the kernel holds memory, and does not wait for it without end
TEST_P(StreamRingZeroCopy, EndsWithItsLoop) {
  {
    std::vector<Link> all;
    for (int i = 0; i < 10; ++i) {
      all.push_back(link(recording(log_), fromThousandAndNarrow, 16384));
      all.back().channel->send(ByteBuf::of(pattern(1 << 20)));
    }
    settle();

    EXPECT_TRUE(succeeds(group().shutdownGracefully(0s, 0s)));
  }
  endGroup();

  EXPECT_EQ(internal::liveHeapBlocks(), heapBlocks_);
}

INSTANTIATE_TEST_SUITE_P(Rings, StreamRingZeroCopy, testing::ValuesIn(test::ringRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
