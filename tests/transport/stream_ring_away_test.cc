// SPDX-License-Identifier: Apache-2.0
// TCP streams that have left their loop while its ring still works for them: who keeps them, and until
// when.
#include "transport/stream_ring_fixture.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::pattern;
using test::same;
using test::succeeds;

class StreamRingAway : public test::StreamRingTest {
 protected:
  /// Lives as long as its channel.
  struct Token : ChannelHandler {
    explicit Token(std::shared_ptr<int> mine) : token(std::move(mine)) {}
    std::shared_ptr<int> token;
  };
  /// A link whose channel has a large send in flight.
  Link busyLink(std::weak_ptr<int>& alive) {
    auto token = std::make_shared<int>(0);
    alive = token;
    Link made =
        link([&](Channel& ch) { ch.pipeline().emplaceLast<Token>(token); }, narrowAndReading, 4096);
    made.channel->send(ByteBuf::of(bytes_));
    settle();
    EXPECT_TRUE(isOnRing(made.channel));
    return made;
  }

  const std::string bytes_ = pattern(4 << 20);
};

// F71: the ring keeps it until it has ended what it does, and not longer
TEST_P(StreamRingAway, GoesWithTheLastReferenceAndTheLastOperation) {
  for (int round = 0; round < 10; ++round) {
    std::weak_ptr<int> alive;
    Link busy = busyLink(alive);

    EXPECT_TRUE(succeeds(busy.channel->deregister()));
    busy.channel = nullptr;

    EXPECT_TRUE(test::eventually([&] { return alive.expired(); }));
    const std::string got = busy.peer.receiveAll();
    EXPECT_TRUE(same(got, std::string_view(bytes_).substr(0, got.size())));
  }
  EXPECT_TRUE(test::eventually([&] { return usedBlocks() == 0; }));
}

TEST_P(StreamRingAway, GoesWithTheLastReferenceWhileItReceives) {
  std::weak_ptr<int> alive;
  auto token = std::make_shared<int>(0);
  alive = token;
  Link idle = link([&](Channel& ch) { ch.pipeline().emplaceLast<Token>(std::move(token)); });
  token.reset();

  EXPECT_TRUE(succeeds(idle.channel->deregister()));
  idle.channel = nullptr;

  EXPECT_TRUE(test::eventually([&] { return alive.expired(); }));
  EXPECT_EQ(idle.peer.receiveAll(), "");
}

// F71: the loop ends in the very turn
TEST_P(StreamRingAway, GoesWithItsLoop) {
  for (int round = 0; round < 10; ++round) {
    std::weak_ptr<int> alive;
    Link busy = busyLink(alive);
    ASSERT_TRUE(loop().beforeShutdown([channel = busy.channel] { channel->deregister(); }));
    busy.channel = nullptr;

    EXPECT_TRUE(succeeds(group().shutdownGracefully(0s, 0s)));
    endGroup();

    EXPECT_TRUE(alive.expired());
    busy.peer.receiveAll();
  }
}

// Whoever brings it back too late closes it, on a thread of his own.
TEST_P(StreamRingAway, MayBeBroughtBackWhileTheLoopEnds) {
  for (int round = 0; round < 20; ++round) {
    std::weak_ptr<int> alive;
    Link busy = busyLink(alive);
    std::atomic<bool> gone{false};
    ASSERT_TRUE(loop().beforeShutdown([&gone, channel = busy.channel] {
      channel->deregister();
      gone = true;
    }));
    std::thread late([&, channel = std::move(busy.channel)] {
      while (!gone) std::this_thread::yield();
      while (!channel->loop().isShutdown()) std::this_thread::yield();
      EXPECT_FALSE(succeeds(registerChannel(channel->loop(), channel)));
      EXPECT_FALSE(channel->isOpen());
    });

    EXPECT_TRUE(succeeds(group().shutdownGracefully(0s, 0s)));
    late.join();
    endGroup();

    EXPECT_TRUE(alive.expired());
    busy.peer.receiveAll();
  }
}

// The failure of its receive was taken from the ring before it left the loop, and is told afterwards: the ring's is the
// last reference then, and goes in the middle of that.
TEST_P(StreamRingAway, OutlivesTheFailureThatEndsIt) {
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> alive = token;
  Link away = link([&](Channel& ch) { ch.pipeline().emplaceLast<Token>(std::move(token)); });
  token.reset();
  Link other = link([](Channel&) {});
  settle();
  ASSERT_TRUE(isOnRing(away.channel));
  ASSERT_TRUE(isOnRing(other.channel));

  inLoop([&] {
    away.peer.reset();
    other.channel->close();  // takes what has completed
    away.channel->deregister();
    away.channel = nullptr;
  });

  EXPECT_TRUE(test::eventually([&] { return alive.expired(); }));
  settle();
}

// Nobody reads from it, and it has not been on the loop all the time.
TEST_P(StreamRingAway, SeesAResetWhenItIsBackAndPaused) {
  struct Pauses : ChannelHandler {
    void handlerAdded(Context& ctx) override {
      ctx.channel().changeReadPause(Channel::ReadPause::automatic, Channel::ReadPause::always);
    }
  };
  Link one = link([](Channel& ch) { ch.pipeline().emplaceLast<Pauses>(); });
  settle();
  ASSERT_TRUE(succeeds(one.channel->deregister()));
  ASSERT_TRUE(succeeds(registerChannel(loop(), one.channel)));

  one.peer.reset();

  EXPECT_TRUE(succeeds(one.channel->closeFuture()));
}

INSTANTIATE_TEST_SUITE_P(Rings, StreamRingAway, testing::ValuesIn(test::ringRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
