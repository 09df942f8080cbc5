// SPDX-License-Identifier: Apache-2.0
// The end of operations on io_uring. The kernel may find nothing to cancel for a moment, or be about to
// hand the operation over on another processor: who leaves has to be gone all the same.
#include "loop/uring_fixture.h"
#include "support/log_capture.h"
#include "support/ring_script.h"

#include <cerrno>
#include <climits>
#include <string>
#include <sys/socket.h>
#include <utility>

namespace millrace {
namespace {

using test::Pipe;
using test::RingClient;

/// What becomes of the first cancels.
struct Obstacle {
  const char* name;
  unsigned late = 0;
  unsigned lost = 0;
  int error = ENOENT;
};

class UringCancel : public test::UringOperationsTest, public testing::WithParamInterface<Obstacle> {
 protected:
  ~UringCancel() override { end(); }
  void obstruct() {
    script_.delayCancels(GetParam().late);
    script_.fail(IORING_OP_ASYNC_CANCEL, GetParam().error, GetParam().lost);
  }
  /// Nobody has the other end open.
  static bool isGone(const Fd& peer) {
    char byte = 0;
    const ssize_t end = ::recv(peer.get(), &byte, 1, MSG_DONTWAIT);
    return end == 0 || (end < 0 && errno == ECONNRESET);
  }

  /// Reads what is there; true when nothing comes any more.
  static bool takeAll(const Fd& peer) {
    std::string bytes(1 << 20, '\0');
    const ssize_t got = ::recv(peer.get(), bytes.data(), bytes.size(), 0);
    return got <= 0;
  }

  test::RingScript script_;  // before the loop
};

// F71: the file is closed when its descriptor is, whether there are bytes or none
TEST_P(UringCancel, OfAReceiveLetsGoOfItsFile) {
  begin();
  for (int round = 0; round < 8; ++round) {
    Pair pair = pairOf();
    RingClient client;
    const std::uint64_t id = ring().enter(pair.ours.get(), client);
    if (round % 2 != 0) put(pair.peer, "before");
    EXPECT_TRUE(ring().receive(id, pool_));
    if (round % 4 >= 2) turn(1);

    obstruct();
    ring().leave(id);
    pair.ours.reset();

    EXPECT_TRUE(isGone(pair.peer)) << round;
    turn();
  }
}

// F71
TEST_P(UringCancel, OfASendLetsGoOfItsFile) {
  begin();
  for (const SendMode mode : {SendMode::copied, SendMode::inPlace}) {
    Pair pair = tcpPair();
    RingClient client;
    const std::uint64_t id = ring().enter(pair.ours.get(), client);
    EXPECT_TRUE(ring().receive(id, pool_));
    ring().send(id, ByteBuf::of(std::string(8 << 20, 'x')), mode);
    turn();

    obstruct();
    ring().leave(id);
    pair.ours.reset();

    while (!takeAll(pair.peer)) {
    }
    EXPECT_TRUE(isGone(pair.peer));
    turn();
  }
  EXPECT_GE(script_.count(IORING_OP_SEND_ZC), 1U);
  EXPECT_TRUE(turnUntil([&] { return script_.notifications() >= 1; }));
}

// F71: somebody leaves when he hears of something
TEST_P(UringCancel, InACompletionLetsGoOfItsFile) {
  begin();
  Pair pair = pairOf();
  RingClient client;
  const std::uint64_t id = ring().enter(pair.ours.get(), client);
  EXPECT_TRUE(ring().receive(id, pool_));
  bool isFree = false;
  client.onCompleted = [&] {
    obstruct();
    ring().leave(id);
    pair.ours.reset();
    isFree = isGone(pair.peer);
  };

  put(pair.peer, "one");

  EXPECT_TRUE(turnUntil([&] { return isFree; }));
  turn();
  EXPECT_EQ(client.results.size(), 1U);
}

TEST_P(UringCancel, OfAStoppedReceiveIsNotForgotten) {
  begin();
  const Pair pair = pairOf();
  RingClient client;
  const std::uint64_t id = ring().enter(pair.ours.get(), client);
  EXPECT_TRUE(ring().receive(id, pool_));
  turn();

  obstruct();
  ring().stop(id);

  EXPECT_TRUE(turnUntil([&] { return client.lasts == 1; }));
  put(pair.peer, "behind");
  turn();
  EXPECT_EQ(client.text, "");
  ring().leave(id);
  turn();
}

TEST_P(UringCancel, OfAStoppedSendIsNotForgotten) {
  begin();
  const Pair pair = pairOf();
  RingClient client;
  const std::uint64_t id = ring().enter(pair.ours.get(), client);
  ring().send(id, ByteBuf::of(std::string(8 << 20, 'x')));
  turn();

  obstruct();
  ring().stopSending(id);

  EXPECT_TRUE(turnUntil([&] { return client.lasts == 1; }));
  ring().leave(id);
  turn();
}

// A kernel that does not let go: the loop does not wait for ever, says so, and does not forget it.
class UringRefusedCancel : public UringCancel {};

TEST_P(UringRefusedCancel, IsGivenUpAndRepeated) {
  begin();
  test::LogCapture logs("warn");
  Pair pair = pairOf();
  RingClient client;
  const std::uint64_t id = ring().enter(pair.ours.get(), client);
  EXPECT_TRUE(ring().receive(id, pool_));
  turn();

  script_.fail(IORING_OP_ASYNC_CANCEL, GetParam().error, UINT_MAX);
  ring().leave(id);
  pair.ours.reset();
  EXPECT_FALSE(isGone(pair.peer));
  EXPECT_TRUE(logs.contains("the kernel does not end an operation"));
  turn();

  script_.fail(IORING_OP_ASYNC_CANCEL, GetParam().error, 0);
  turn();
  EXPECT_TRUE(isGone(pair.peer));
  EXPECT_TRUE(client.results.empty());
}

// A poll is found as long as it goes on, but may end late.
class UringPollCancel : public UringCancel {};

TEST_P(UringPollCancel, LetsGoOfItsFile) {
  begin();
  for (const Trigger trigger : {Trigger::edge, Trigger::level}) {
    Pair pair = pairOf();
    const Watch watch = test::watchInLoop(
        *loop_, pair.ours.get(), kReadable, [](int, std::uint32_t) {}, trigger);
    turn();
    bool isFree = false;

    obstruct();
    loop_->execute([&] {
      watch.unwatch();
      pair.ours.reset();
      isFree = isGone(pair.peer);
    });
    turn();

    EXPECT_TRUE(isFree);
  }
}

constexpr Obstacle kNone{"None"};
constexpr Obstacle kLate{"Late", 1, 0};
constexpr Obstacle kLateTwice{"LateTwice", 2, 0};
constexpr Obstacle kLost{"Lost", 0, 1};
constexpr Obstacle kLostOften{"LostOften", 0, 5};
constexpr Obstacle kBusy{"Busy", 0, 3, EALREADY};

std::string nameOf(const testing::TestParamInfo<Obstacle>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Obstacles, UringCancel,
                         testing::Values(kNone, kLate, kLateTwice, kLost, kLostOften, kBusy),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Obstacles, UringRefusedCancel, testing::Values(kLost, kBusy), nameOf);
INSTANTIATE_TEST_SUITE_P(Obstacles, UringPollCancel, testing::Values(kNone, kLate), nameOf);

}  // namespace
}  // namespace millrace
