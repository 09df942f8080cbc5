// SPDX-License-Identifier: Apache-2.0
// The blocks that wait for bytes: who owns them, how many there are, and what happens when they run
// out.
#include "loop/uring/receive_buffers.h"

#include <millrace/buffer/buffer_pool.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace millrace {
namespace {

class ReceiveBuffersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const UringSupport found = probeUring({}); !found.usable) GTEST_SKIP() << found.why;
    uring_ = std::move(Uring::open({64, 128})).orThrow();
    ASSERT_TRUE(buffers_.open(uring_, pool_).ok());
    buffers_.publish();
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = Fd(ends[0]);
    peer_ = Fd(ends[1]);
  }

  struct Received {
    int result = 0;
    std::string text;
    std::uint16_t number = 0;
    bool hasBlock = false;
  };

  void put(std::string_view text) const {
    ASSERT_EQ(::send(peer_.get(), text.data(), text.size(), MSG_DONTWAIT),
              static_cast<ssize_t>(text.size()));
  }
  /// One receive of what is there already. Its block is taken, and dropped unless somebody keeps it.
  Received receive(std::vector<internal::Block*>* keep = nullptr) {
    io_uring_sqe* entry = uring_.next();
    entry->opcode = IORING_OP_RECV;
    entry->fd = ours_.get();
    entry->flags = IOSQE_BUFFER_SELECT;
    entry->msg_flags = MSG_DONTWAIT;
    entry->buf_group = ReceiveBuffers::kGroup;
    while (!uring_.hasCompletions()) EXPECT_EQ(uring_.enter(-1), 0);
    Received got;
    uring_.drain([&](const io_uring_cqe& each) {
      got.result = each.res;
      got.hasBlock = (each.flags & IORING_CQE_F_BUFFER) != 0;
      got.number = static_cast<std::uint16_t>(each.flags >> IORING_CQE_BUFFER_SHIFT);
    });
    if (!got.hasBlock) return got;
    internal::Block* block = buffers_.take(got.number);
    got.text.assign(reinterpret_cast<const char*>(block->bytes),
                    static_cast<std::size_t>(got.result < 0 ? 0 : got.result));
    if (keep == nullptr) {
      block->drop();
    } else {
      keep->push_back(block);
    }
    return got;
  }

  void runDry(int times) {
    for (int i = 0; i < times; ++i) {
      buffers_.ranDry();
      buffers_.ranDry();  // of the same turn: counts once
      buffers_.publish();
    }
  }

  BufferPool pool_;
  Uring uring_;
  ReceiveBuffers buffers_;
  Fd ours_;
  Fd peer_;
};

TEST_F(ReceiveBuffersTest, BeginWithFewBlocksOfThePool) {
  EXPECT_EQ(buffers_.waiting(), ReceiveBuffers::kFewest);
  EXPECT_EQ(pool_.figures().live, static_cast<std::int64_t>(ReceiveBuffers::kFewest));
}

TEST_F(ReceiveBuffersTest, GoBackToThePoolWhenTheyAreClosed) {
  uring_.close();

  buffers_.close();

  EXPECT_EQ(buffers_.waiting(), 0U);
  EXPECT_EQ(pool_.figures().live, 0);
}

TEST_F(ReceiveBuffersTest, CanBeOpenedAgain) {
  uring_.close();
  buffers_.close();
  uring_ = std::move(Uring::open({64, 128})).orThrow();

  ASSERT_TRUE(buffers_.open(uring_, pool_).ok());
  buffers_.publish();
  put("again");

  EXPECT_EQ(receive().text, "again");
  EXPECT_EQ(buffers_.waiting(), ReceiveBuffers::kFewest);
}

// F69: whoever keeps his bytes cannot make the ring run dry
TEST_F(ReceiveBuffersTest, ReplaceEveryBlockThatIsTaken) {
  std::vector<internal::Block*> kept;
  for (unsigned i = 0; i < 4 * ReceiveBuffers::kFewest; ++i) {
    put("kept");
    ASSERT_EQ(receive(&kept).text, "kept");
    buffers_.publish();
  }

  EXPECT_EQ(buffers_.waiting(), ReceiveBuffers::kFewest);
  put("still room");
  EXPECT_EQ(receive().text, "still room");
  for (internal::Block* each : kept) each->drop();
  EXPECT_EQ(pool_.figures().live, static_cast<std::int64_t>(ReceiveBuffers::kFewest));
}

// F69: the numbers and the places go round, far beyond the size of the ring
TEST_F(ReceiveBuffersTest, BringTheRightBytesForEver) {
  for (unsigned i = 0; i < 3 * ReceiveBuffers::kCapacity; ++i) {
    const std::string text = "message " + std::to_string(i);
    put(text);
    const Received got = receive();
    ASSERT_EQ(got.text, text);
    buffers_.publish();
  }
  EXPECT_EQ(buffers_.waiting(), ReceiveBuffers::kFewest);
}

// F69
TEST_F(ReceiveBuffersTest, AreMoreAfterTheyRanOut) {
  // Not published: the kernel has what it was shown at first, and no more.
  for (unsigned i = 0; i < ReceiveBuffers::kFewest; ++i) {
    put("x");
    ASSERT_EQ(receive().text, "x");
  }
  put("too many");
  const Received none = receive();
  ASSERT_EQ(none.result, -ENOBUFS);
  ASSERT_FALSE(none.hasBlock);

  buffers_.ranDry();
  buffers_.publish();

  EXPECT_EQ(buffers_.waiting(), 2 * ReceiveBuffers::kFewest);
  EXPECT_EQ(receive().text, "too many") << "nothing was lost";
}

// F69
TEST_F(ReceiveBuffersTest, AreNeverMoreThanTheRingHasRoomFor) {
  runDry(100);

  EXPECT_EQ(buffers_.waiting(), ReceiveBuffers::kCapacity);
  EXPECT_EQ(buffers_.wanted(), ReceiveBuffers::kCapacity);
}

// F69: a burst, then one message at a time: the memory goes back
TEST_F(ReceiveBuffersTest, AreFewerAgainWhenTheyAreNotUsed) {
  runDry(6);
  ASSERT_EQ(buffers_.waiting(), ReceiveBuffers::kCapacity);

  for (int i = 0; i < 20'000 && buffers_.waiting() > ReceiveBuffers::kFewest; ++i) {
    put("x");
    ASSERT_EQ(receive().text, "x");
    buffers_.publish();
  }

  EXPECT_EQ(buffers_.waiting(), ReceiveBuffers::kFewest);
  EXPECT_EQ(buffers_.wanted(), ReceiveBuffers::kFewest);
  EXPECT_EQ(pool_.figures().live, static_cast<std::int64_t>(ReceiveBuffers::kFewest));
}

// F69: as many as are used at once stay
TEST_F(ReceiveBuffersTest, StayAsManyAsAreUsedAtOnce) {
  runDry(2);
  const unsigned grown = buffers_.waiting();
  ASSERT_EQ(grown, 4 * ReceiveBuffers::kFewest);

  for (int round = 0; round < 3000; ++round) {
    for (unsigned i = 0; i < grown / 2; ++i) {
      put("x");
      ASSERT_EQ(receive().result, 1);
    }
    buffers_.publish();
  }

  EXPECT_EQ(buffers_.waiting(), grown);
}

}  // namespace
}  // namespace millrace
