// SPDX-License-Identifier: Apache-2.0
// The ring of the kernel: full ones, overflowing ones, waits, and machines that have none.
#include "sys/uring.h"

#include "support/fault_script.h"

#include <millrace/base/clock.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <poll.h>
#include <set>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace millrace {
namespace {

using test::FaultScript;
using testing::HasSubstr;

class UringTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const UringSupport found = probeUring({}); !found.usable) GTEST_SKIP() << found.why;
  }

  static Uring open(unsigned entries, unsigned completions) {
    return std::move(Uring::open({entries, completions})).orThrow();
  }
  /// Queues an operation that is done at once; false if there is no room.
  static bool queueNop(Uring& ring, std::uint64_t name) {
    io_uring_sqe* entry = ring.next();
    if (entry == nullptr) return false;
    entry->opcode = IORING_OP_NOP;
    entry->user_data = name;
    return true;
  }
  static std::set<std::uint64_t> take(Uring& ring) {
    std::set<std::uint64_t> names;
    ring.drain([&](const io_uring_cqe& each) { names.insert(each.user_data); });
    return names;
  }
};

// F68
TEST_F(UringTest, GivesNoEntryWhenItIsFullAndRoomAfterACall) {
  Uring ring = open(1, 2);
  unsigned room = 0;
  while (queueNop(ring, room)) ++room;
  ASSERT_GE(room, 1U);
  EXPECT_EQ(ring.queued(), room);

  EXPECT_EQ(ring.submit(), 0);

  EXPECT_EQ(ring.queued(), 0U);
  EXPECT_TRUE(queueNop(ring, 99));
}

// F67
TEST_F(UringTest, KeepsCompletionsForWhichItsQueueHasNoRoom) {
  constexpr std::uint64_t kOperations = 5000;
  Uring ring = open(1, 2);
  for (std::uint64_t name = 0; name < kOperations; ++name) {
    while (!queueNop(ring, name)) ASSERT_EQ(ring.submit(), 0);
  }
  ASSERT_EQ(ring.submit(), 0);
  EXPECT_TRUE(ring.wantsCall());

  std::set<std::uint64_t> seen;
  unsigned count = 0;
  while (ring.hasCompletions() || ring.wantsCall()) {
    ASSERT_EQ(ring.enter(0), 0);
    count += ring.drain([&](const io_uring_cqe& each) { seen.insert(each.user_data); });
  }

  EXPECT_EQ(count, kOperations);
  EXPECT_EQ(seen.size(), kOperations);
}

TEST_F(UringTest, LooksWithoutWaiting) {
  Uring ring = open(8, 16);

  EXPECT_EQ(ring.enter(0), 0);

  EXPECT_FALSE(ring.hasCompletions());
}

TEST_F(UringTest, WaitsNoLongerThanItIsTold) {
  Uring ring = open(8, 16);
  constexpr std::int64_t kNanos = 3'000'000;
  const std::int64_t began = Clock::real().nanos();

  EXPECT_EQ(ring.enter(kNanos), 0);

  EXPECT_GE(Clock::real().nanos() - began, kNanos);
  EXPECT_FALSE(ring.hasCompletions());
}

TEST_F(UringTest, EndsAWaitWithTheFirstCompletion) {
  Uring ring = open(8, 16);
  const Fd event(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  io_uring_sqe* entry = ring.next();
  ASSERT_NE(entry, nullptr);
  entry->opcode = IORING_OP_POLL_ADD;
  entry->fd = event.get();
  entry->poll32_events = POLLIN;
  entry->user_data = 7;

  EXPECT_EQ(ring.enter(-1), 0);

  EXPECT_EQ(take(ring), std::set<std::uint64_t>{7});
}

// F70: room for one completion, which a poll that goes on by itself needs again and again
TEST_F(UringTest, TellsOfAMultishotThatAnOverflowHasEnded) {
  Uring ring = open(1, 1);
  const Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const auto arm = [&] {
    io_uring_sqe* entry = ring.next();
    entry->opcode = IORING_OP_POLL_ADD;
    entry->fd = event.get();
    entry->poll32_events = POLLIN;
    entry->len = IORING_POLL_ADD_MULTI;
    entry->user_data = 7;
  };
  arm();
  ASSERT_EQ(ring.submit(), 0);

  int endings = 0;
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(event.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    // Fills the queue, so that the poll's own completion finds no room.
    while (!queueNop(ring, 1)) ASSERT_EQ(ring.submit(), 0);
    ASSERT_EQ(ring.submit(), 0);
    bool seen = false;
    while (!seen) {
      ASSERT_EQ(ring.enter(1'000'000'000), 0);
      bool ended = false;
      ring.drain([&](const io_uring_cqe& each) {
        if (each.user_data != 7) return;
        seen = true;
        ended = (each.flags & IORING_CQE_F_MORE) == 0;
      });
      if (ended) arm();
      endings += ended ? 1 : 0;
    }
  }

  EXPECT_GT(endings, 0);
}

TEST_F(UringTest, MovesWithEverythingThatIsQueued) {
  Uring first = open(8, 16);
  ASSERT_TRUE(queueNop(first, 1));

  Uring second = std::move(first);
  ASSERT_TRUE(queueNop(second, 2));
  EXPECT_EQ(second.enter(-1), 0);

  EXPECT_FALSE(first.isOpen());  // NOLINT: what is left of it
  EXPECT_EQ(take(second), (std::set<std::uint64_t>{1, 2}));
}

TEST_F(UringTest, IsInterruptedLikeAnyCallAndLosesNothing) {
  Uring ring = open(8, 16);
  FaultScript script;
  script.interruptFirstTries();
  ASSERT_TRUE(queueNop(ring, 1));

  EXPECT_EQ(ring.enter(-1), -EINTR);
  EXPECT_EQ(ring.queued(), 1U);
  EXPECT_EQ(ring.enter(-1), 0);

  EXPECT_EQ(take(ring), std::set<std::uint64_t>{1});
}

TEST_F(UringTest, RefusesBuffersThatTheKernelDoesNotTake) {
  Uring ring = open(8, 16);
  FaultScript script;
  script.failAll("io_uring_register", ENOMEM);

  const Result<void> registered = ring.registerBuffers(nullptr, 8, 0);

  ASSERT_FALSE(registered.ok());
  EXPECT_EQ(registered.error().errnoValue(), ENOMEM);
}

// --- where there is none: F72 ---

// F72: a kernel that does not know the newest flags
TEST_F(UringTest, FallsBackToTheFlagsOfOlderKernels) {
  FaultScript script;
  script.fail("io_uring_setup", 1, EINVAL);

  Uring ring = open(8, 16);
  EXPECT_FALSE(ring.isDeferred());
  ASSERT_TRUE(queueNop(ring, 1));
  EXPECT_EQ(ring.enter(-1), 0);

  EXPECT_EQ(take(ring), std::set<std::uint64_t>{1});
}

// F72
TEST(UringProbe, SaysWhyThereIsNone) {
  const std::pair<int, const char*> cases[] = {
      {ENOSYS, "has no io_uring"}, {EPERM, "kernel.io_uring_disabled"},
      {EACCES, "seccomp"},         {EINVAL, "older than 6.0"},
      {EMFILE, "ulimit -n"},       {ENOMEM, "ulimit -l"}};
  for (const auto& [error, text] : cases) {
    FaultScript script;
    script.failAll("io_uring_setup", error);

    const UringSupport found = probeUring({});

    EXPECT_FALSE(found.usable);
    EXPECT_THAT(found.why, HasSubstr(text));
  }
}

// F72: the calls are there, but not what we need of them
TEST(UringProbe, SaysSoIfTheKernelCannotBeAsked) {
  for (const char* call : {"io_uring_register", "io_uring_enter"}) {
    FaultScript script;
    script.failAll(call, EPERM);

    const UringSupport found = probeUring({});

    EXPECT_FALSE(found.usable) << call;
    EXPECT_THAT(found.why, HasSubstr("seccomp"));
  }
}

}  // namespace
}  // namespace millrace
