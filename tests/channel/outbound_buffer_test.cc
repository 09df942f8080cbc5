// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/outbound_buffer.h>
#include <millrace/concurrent/executor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>
#include <sys/uio.h>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using testing::ElementsAre;

constexpr std::size_t kOverhead = OutboundBuffer::kOverhead;
constexpr std::size_t kNoLimit = std::size_t{1} << 30;

class OutboundBufferTest : public testing::Test {
 protected:
  Future<void> add(Message msg) {
    Promise<void> promise(immediateExecutor());
    Future<void> future = promise.future();
    out_.add(std::move(msg), std::move(promise));
    return future;
  }
  void addPlain(Message msg) { out_.add(std::move(msg), {}); }
  /// The parts that a gathering write would get.
  std::vector<std::string> gathered(std::size_t maxParts = 1024, std::size_t maxBytes = kNoLimit) {
    std::vector<iovec> parts(maxParts);
    std::size_t bytes = 0;
    const std::size_t count = out_.gather(parts.data(), maxParts, maxBytes, bytes);
    std::vector<std::string> texts;
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      texts.emplace_back(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
      sum += parts[i].iov_len;
    }
    EXPECT_EQ(sum, bytes);
    return texts;
  }

  OutboundBuffer out_;
};

// behaviour 3.10 item 1
TEST_F(OutboundBufferTest, HasNothingToWriteWhenItIsEmpty) {
  EXPECT_TRUE(out_.empty());
  EXPECT_FALSE(out_.hasFlushed());
  EXPECT_THAT(gathered(), ElementsAre());
  out_.addFlush();
  out_.removeBytes(0);
  EXPECT_EQ(out_.pendingBytes(), 0U);
}

// behaviour 3.10 item 3
TEST_F(OutboundBufferTest, ShowsOnlyWhatWasFlushed) {
  addPlain(ByteBuf::of("a"));
  addPlain(ByteBuf::of("b"));
  EXPECT_THAT(gathered(), ElementsAre());
  out_.addFlush();
  addPlain(ByteBuf::of("c"));

  EXPECT_THAT(gathered(), ElementsAre("a", "b"));
  EXPECT_EQ(out_.flushedCount(), 2U);
  EXPECT_EQ(out_.size(), 3U);
  out_.removeBytes(2);
  EXPECT_FALSE(out_.hasFlushed());
  EXPECT_FALSE(out_.empty());
}

// behaviour 3.10 item 2
TEST_F(OutboundBufferTest, LeavesOutWhatWasCancelledBeforeTheFlush) {
  const ByteBuf middle = ByteBuf::of("b");
  const Future<void> first = add(ByteBuf::of("a"));
  const Future<void> cancelled = add(middle.share());
  const Future<void> last = add(ByteBuf::of("c"));
  EXPECT_TRUE(cancelled.cancel());

  out_.addFlush();
  EXPECT_THAT(gathered(), ElementsAre("a", "c"));
  EXPECT_FALSE(middle.isShared());  // released
  EXPECT_FALSE(first.cancel());     // too late: it may be on its way
  out_.removeBytes(2);

  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(out_.pendingBytes(), 0U);
  EXPECT_TRUE(first.isSuccess() && last.isSuccess() && cancelled.isCancelled());
}

// behaviour 3.10 items 4 6, F19
TEST_F(OutboundBufferTest, GathersNoMorePartsOrBytesThanAsked) {
  for (int i = 0; i < 5000; ++i) addPlain(ByteBuf::of("x"));
  out_.addFlush();

  EXPECT_EQ(gathered(1024).size(), 1024U);
  EXPECT_EQ(gathered(10).size(), 10U);
  EXPECT_EQ(gathered(1024, 64).size(), 64U);
  std::size_t writes = 0;
  while (out_.hasFlushed()) {
    out_.removeBytes(gathered(1024).size());
    ++writes;
  }
  EXPECT_EQ(writes, 5U);
  EXPECT_EQ(out_.pendingBytes(), 0U);
}

// F20: nothing is waited for, and the promises come in order
TEST_F(OutboundBufferTest, CompletesEmptyBuffersInTheirTurn) {
  std::vector<int> order;
  const auto note = [&](int i, Message msg) {
    add(std::move(msg)).addListener([&order, i] { order.push_back(i); });
  };
  note(0, ByteBuf());
  note(1, ByteBuf::of("a"));
  note(2, ByteBuf(10));
  note(3, ByteBuf::of("b"));
  note(4, ByteBuf());
  out_.addFlush();
  EXPECT_THAT(gathered(), ElementsAre("a", "b"));

  out_.removeBytes(0);
  EXPECT_THAT(order, ElementsAre(0));
  out_.removeBytes(1);
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  out_.removeBytes(1);

  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(out_.empty());
}

TEST_F(OutboundBufferTest, GoesOnWhereAPartialWriteStopped) {
  const Future<void> first = add(ByteBuf::of("hello"));
  add(ByteBuf::of("world"));
  out_.addFlush();

  out_.removeBytes(2);
  EXPECT_THAT(gathered(), ElementsAre("llo", "world"));
  EXPECT_FALSE(first.isDone());
  out_.removeBytes(4);
  EXPECT_TRUE(first.isSuccess());
  EXPECT_THAT(gathered(), ElementsAre("orld"));
  EXPECT_EQ(out_.readableBytes(), 4U);
}

TEST_F(OutboundBufferTest, StopsAtMessagesOfOtherTypes) {
  addPlain(ByteBuf::of("a"));
  addPlain(7);
  addPlain(ByteBuf::of("b"));
  out_.addFlush();

  EXPECT_THAT(gathered(), ElementsAre("a"));
  out_.removeBytes(1);
  EXPECT_THAT(gathered(), ElementsAre());
  EXPECT_EQ(*out_.flushed().as<int>(), 7);
  out_.removeFront();
  EXPECT_THAT(gathered(), ElementsAre("b"));
}

// behaviour 3.10 item 7: what it counts
TEST_F(OutboundBufferTest, CountsTheMemoryThatIsKeptAndEachEntry) {
  ByteBuf large(1000);
  large.writeBytes("tiny");
  const std::size_t pinned = large.pinnedBytes();
  addPlain(std::move(large));
  EXPECT_EQ(out_.pendingBytes(), pinned + kOverhead);
  addPlain(42);
  EXPECT_EQ(out_.pendingBytes(), pinned + 2 * kOverhead);
  addPlain(ByteBuf());
  EXPECT_EQ(out_.pendingBytes(), pinned + 3 * kOverhead);

  out_.addFlush();
  out_.removeBytes(4);
  out_.removeFront();
  out_.removeFront();
  EXPECT_EQ(out_.pendingBytes(), 0U);
}

TEST_F(OutboundBufferTest, CountsABlockOnceHoweverManySlicesItHas) {
  ByteBuf block(4096);
  block.writeZero(4096);
  const std::size_t pinned = block.pinnedBytes();
  for (int i = 0; i < 10; ++i) addPlain(block.readSlice(10));

  EXPECT_EQ(out_.pendingBytes(), pinned + 9 * 10 + 10 * kOverhead);
}

TEST_F(OutboundBufferTest, CountsABlockAnewBehindSomethingElse) {
  ByteBuf block(4096);
  block.writeZero(20);
  const std::size_t pinned = block.pinnedBytes();
  addPlain(block.readSlice(10));
  addPlain(1);
  out_.addFlush();
  out_.removeBytes(10);  // the block may be gone, and its memory somebody else's
  addPlain(block.readSlice(10));

  EXPECT_EQ(out_.pendingBytes(), pinned + 2 * kOverhead);
}

TEST_F(OutboundBufferTest, CopiesWhatUsesLittleOfTheMemoryItKeeps) {
  ByteBuf block(4096);
  block.writeZero(3000);
  addPlain(block.readSlice(10));
  addPlain(block.readSlice(2000));

  EXPECT_EQ(out_.compact(), 1U);
  EXPECT_EQ(out_.compact(), 0U);  // looked at once
  EXPECT_LT(out_.pendingBytes(), 2000 + 10 + 4096U);
  EXPECT_EQ(out_.readableBytes(), 2010U);
  out_.addFlush();
  out_.removeBytes(2010);
  EXPECT_EQ(out_.pendingBytes(), 0U);
}

// behaviour 3.10: close(cause) releases all and fails promises
TEST_F(OutboundBufferTest, FailsAllInOrderAndLetsThemGo) {
  const ByteBuf bytes = ByteBuf::of("x");
  std::vector<int> order;
  add(bytes.share()).addListener([&](const Result<void>& result) {
    EXPECT_EQ(result.error().errnoValue(), EPIPE);
    order.push_back(1);
  });
  out_.addFlush();
  add(bytes.share()).addListener([&] { order.push_back(2); });
  addPlain(bytes.share());

  out_.failAll(Error::fromErrno(EPIPE, "write"));

  EXPECT_THAT(order, ElementsAre(1, 2));
  EXPECT_FALSE(bytes.isShared());
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(out_.pendingBytes(), 0U);
  EXPECT_EQ(out_.takeFailures(), 1U);  // nobody waited for the third
  EXPECT_EQ(out_.takeFailures(), 0U);
}

// behaviour 3.10: re-entrancy
TEST_F(OutboundBufferTest, TakesWhatListenersAddMeanwhile) {
  int left = 100;
  std::function<void()> addAnother = [&] {
    if (left-- == 0) return;
    add(ByteBuf::of("y")).addListener([&] { addAnother(); });
    out_.addFlush();
  };
  addAnother();
  std::size_t written = 0;
  while (out_.hasFlushed()) {
    ++written;
    out_.removeBytes(1);
  }

  EXPECT_EQ(written, 100U);
  EXPECT_EQ(out_.pendingBytes(), 0U);
}

TEST_F(OutboundBufferTest, GoesRoundInItsRingAndGrows) {
  int next = 0;
  int seen = 0;
  for (int round = 1; round < 40; ++round) {
    for (int i = 0; i < round; ++i) addPlain(next++);
    out_.addFlush();
    for (int i = 0; i < round / 2; ++i) {
      EXPECT_EQ(*out_.flushed().as<int>(), seen++);
      out_.removeFront();
    }
  }
  while (out_.hasFlushed()) {
    EXPECT_EQ(*out_.flushed().as<int>(), seen++);
    out_.removeFront();
  }
  EXPECT_EQ(seen, next);
  EXPECT_GE(out_.capacity(), 64U);
}

}  // namespace
}  // namespace millrace
