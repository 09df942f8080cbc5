// SPDX-License-Identifier: Apache-2.0
// What is particular to loops on io_uring: rings that are too small, operations and their
// clients.
#include "loop/uring_fixture.h"

#include <algorithm>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using Client = test::RingClient;
using test::Pipe;
using test::watchInLoop;

class UringEngine : public test::UringEngineTest {};
class UringOperations : public test::UringOperationsTest {};

// --- rings that are too small ---

// Every pipe gets a message in every round, and its watch must see each.
void sendThroughWatches(EventLoop& loop, Trigger trigger) {
  constexpr std::size_t kPipes = 300;
  constexpr std::size_t kRounds = 20;
  std::vector<Pipe> pipes(kPipes);
  std::vector<Watch> watches;
  std::vector<std::size_t> seen(kPipes, 0);
  for (std::size_t i = 0; i < kPipes; ++i) {
    watches.push_back(watchInLoop(
        loop, pipes[i].readEnd(), kReadable,
        [&seen, i](int fd, std::uint32_t) { seen[i] += test::readAll(fd).size(); }, trigger));
  }
  for (std::size_t round = 1; round <= kRounds; ++round) {
    for (const Pipe& each : pipes) each.put();
    const Deadline until = Deadline::after(30s);
    while (seen != std::vector<std::size_t>(kPipes, round)) {
      ASSERT_FALSE(until.isDue(Clock::real().nanos())) << "lost in round " << round;
      loop.run(Deadline::after(20ms));
    }
  }
  loop.execute([&] {
    for (const Watch& each : watches) each.unwatch();
  });
  loop.runNow();
}

// F67 F68 F70: 6000 events through a queue of two; polls that the overflow ended are begun anew
TEST_F(UringEngine, LosesNoEdgeWithoutRoomForCompletions) {
  begin({.entries = 1, .completions = 2});
  sendThroughWatches(*loop_, Trigger::edge);
}

// F67 F68
TEST_F(UringEngine, LosesNoLevelWithoutRoomForCompletions) {
  begin({.entries = 1, .completions = 1});
  sendThroughWatches(*loop_, Trigger::level);
}

// F68
TEST_F(UringEngine, TakesMoreWatchesInOneTurnThanTheRingHasEntries) {
  begin({.entries = 1, .completions = 4096});
  std::vector<Pipe> pipes(500);
  std::vector<Future<Watch>> begun;
  std::size_t told = 0;
  loop_->execute([&] {
    for (const Pipe& each : pipes) {
      each.put();
      begun.push_back(loop_->watch(each.readEnd(), kReadable, [&](int fd, std::uint32_t) {
        test::readAll(fd);
        ++told;
      }));
    }
  });

  EXPECT_TRUE(turnUntil([&] { return told >= pipes.size(); }));
  EXPECT_EQ(told, pipes.size());
  for (const Future<Watch>& each : begun) each.get().unwatch();
  turn();
}

// F67: wakeups of other threads are among what may overflow
TEST_F(UringEngine, LosesNoWakeupWithoutRoomForCompletions) {
  EventLoopGroup group(LoopOptions().loops(1).io(io::uring({.entries = 1, .completions = 1})));
  EventLoop& loop = *group.begin();
  const Pipe pipe;
  const Watch watch = watchInLoop(loop, pipe.readEnd(), kReadable,
                                  [](int fd, std::uint32_t) { test::readAll(fd); });

  for (int i = 0; i < 2000; ++i) {
    pipe.put();
    ASSERT_TRUE(loop.submit([] {}).await(Deadline::after(30s))) << i;
  }
}

// --- operations and their clients ---

TEST_F(UringOperations, ReceiveAgainAndAgain) {
  begin();
  const Pair pair = pairOf();
  Client client;
  const std::uint64_t id = ring().enter(pair.ours.get(), client);
  EXPECT_TRUE(ring().receive(id, pool_));
  std::string sent;

  for (int i = 0; i < 100; ++i) {
    put(pair.peer, std::to_string(i));
    sent += std::to_string(i);
    ASSERT_TRUE(turnUntil([&] { return client.text.size() == sent.size(); }));
  }

  EXPECT_EQ(client.text, sent);
  EXPECT_EQ(client.lasts, 0);
  ring().leave(id);
  turn();
}

// F71: what was begun is the engine's, the client may go at any time
TEST_F(UringOperations, CompleteNothingAfterTheClientHasLeft) {
  begin();
  Pair pair = pairOf();
  auto client = std::make_unique<Client>();
  const std::uint64_t id = ring().enter(pair.ours.get(), *client);
  EXPECT_TRUE(ring().receive(id, pool_));
  ring().send(id, ByteBuf::of(std::string(8 << 20, 'x')));
  turn();
  put(pair.peer, "found already, perhaps");

  ring().leave(id);
  pair.ours.reset();
  EXPECT_TRUE(client->results.empty());
  client.reset();
  turn();

  EXPECT_EQ(pool_.figures().live, static_cast<std::int64_t>(ring().waitingBlocks()));
}

// F71: the number of the descriptor, and the place of the client, are another one's at once
TEST_F(UringOperations, NeverReachAnotherDescriptorOfTheSameNumber) {
  begin();
  for (int round = 0; round < 100; ++round) {
    Pair old = pairOf();
    Client before;
    const std::uint64_t id = ring().enter(old.ours.get(), before);
    EXPECT_TRUE(ring().receive(id, pool_));
    ring().send(id, ByteBuf::of("old " + std::string(1 << 20, 'x')));
    if (round % 2 == 0) turn(1);
    const int number = old.ours.get();
    ring().leave(id);
    old.ours.reset();
    const Pair fresh = pairOf();
    ASSERT_EQ(fresh.ours.get(), number);
    Client after;
    const std::uint64_t next = ring().enter(number, after);
    EXPECT_NE(next, id);
    EXPECT_TRUE(ring().receive(next, pool_));
    ring().send(next, ByteBuf::of("new"));
    static_cast<void>(::send(old.peer.get(), "for nobody", 10, MSG_DONTWAIT | MSG_NOSIGNAL));
    put(fresh.peer, "for the new one");

    ASSERT_TRUE(turnUntil([&] { return after.text.size() == 15; }));
    EXPECT_EQ(after.text, "for the new one");
    EXPECT_EQ(take(fresh.peer), "new");
    EXPECT_TRUE(before.results.empty());
    ring().leave(next);
  }
  turn();
}

TEST_F(UringOperations, OfAStoppedReceiveEndWithOneLastCompletion) {
  begin();
  const Pair pair = pairOf();
  Client client;
  const std::uint64_t id = ring().enter(pair.ours.get(), client);
  EXPECT_TRUE(ring().receive(id, pool_));
  turn();

  put(pair.peer, "before");
  ring().stop(id);
  ASSERT_TRUE(turnUntil([&] { return client.lasts == 1; }));
  put(pair.peer, "behind");
  turn();

  EXPECT_TRUE(client.text.empty() || client.text == "before") << client.text;
  EXPECT_TRUE(ring().receive(id, pool_));
  EXPECT_TRUE(turnUntil([&] { return client.text == "beforebehind"; }));
  ring().leave(id);
  turn();
}

// The kernel finds bytes before it watches the socket: for a moment a cancel finds nothing to end.
TEST_F(UringOperations, OfAReceiveThatIsStoppedAtOnceEndToo) {
  begin();
  const Pair pair = pairOf();
  Client client;
  const std::uint64_t id = ring().enter(pair.ours.get(), client);
  put(pair.peer, "before");

  EXPECT_TRUE(ring().receive(id, pool_));
  ring().stop(id);
  turn();
  EXPECT_EQ(client.lasts, 1);
  put(pair.peer, "behind");
  turn();

  EXPECT_TRUE(client.text.empty() || client.text == "before") << client.text;
  ring().leave(id);
  turn();
}

// Found by a client that leaves, and told with the next turn: once, as one who reads once expects.
TEST_F(UringOperations, OfOthersTellALevelOnce) {
  begin();
  const Pair pair = pairOf();
  const Pipe pipe;
  RingIo& all = ring();
  int told = 0;
  const Watch watch = watchInLoop(
      *loop_, pipe.readEnd(), kReadable,
      [&](int fd, std::uint32_t) {
        ++told;
        char byte = 0;
        EXPECT_EQ(::read(fd, &byte, 1), 1);
      },
      Trigger::level);
  for (int round = 1; round <= 10; ++round) {
    Client client;
    const std::uint64_t id = all.enter(pair.ours.get(), client);
    EXPECT_TRUE(all.receive(id, pool_));
    turn();
    loop_->execute([&] {
      pipe.put();
      all.leave(id);
    });
    turn();
    ASSERT_EQ(told, round);
  }
  watch.unwatch();
  turn();
}

// Bytes on their way to a peer that reads little by little: all of them, in order, told once.
TEST_F(UringOperations, SendAllOfIt) {
  begin();
  const Pair pair = pairOf();
  Client client;
  const std::uint64_t id = ring().enter(pair.ours.get(), client);
  std::string wanted(3 << 20, '\0');
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<char>(i * i >> 9);
  const ByteBuf first = ByteBuf::of(std::string_view(wanted).substr(0, 1'000'000));
  const ByteBuf none = ByteBuf::of("");
  const ByteBuf rest = ByteBuf::of(std::string_view(wanted).substr(1'000'000));
  const ByteBuf* parts[] = {&first, &none, &rest};
  std::string got;

  ring().send(id, parts);
  ASSERT_TRUE(turnUntil([&] {
    got += take(pair.peer);
    return got.size() == wanted.size();
  }));
  ASSERT_TRUE(turnUntil([&] { return !client.results.empty(); }));

  EXPECT_TRUE(got == wanted);
  EXPECT_EQ(client.results, std::vector<int>{3 << 20});
  ring().leave(id);
  turn();
}

// F69: nobody who waits has a block of his own
TEST_F(UringOperations, OfIdleClientsHoldNoBlock) {
  begin();
  std::vector<Pair> pairs;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 1000; ++i) {
    pairs.push_back(pairOf());
    clients.push_back(std::make_unique<Client>());
    ids.push_back(ring().enter(pairs.back().ours.get(), *clients.back()));
    EXPECT_TRUE(ring().receive(ids.back(), pool_));
    turn(1);
  }
  const std::size_t waiting = ring().waitingBlocks();

  EXPECT_LE(waiting, 16U);
  EXPECT_EQ(pool_.figures().live, static_cast<std::int64_t>(waiting));
  for (const std::uint64_t id : ids) ring().leave(id);
  turn();
}

// F69: more messages at once than there are blocks
TEST_F(UringOperations, FindMoreBlocksWhenTheyRunOut) {
  begin();
  std::vector<Pair> pairs;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 200; ++i) {
    pairs.push_back(pairOf());
    clients.push_back(std::make_unique<Client>());
    ids.push_back(ring().enter(pairs.back().ours.get(), *clients.back()));
    EXPECT_TRUE(ring().receive(ids.back(), pool_));
  }
  turn();
  const std::size_t before = ring().waitingBlocks();
  const std::string message(6000, 'm');

  for (const Pair& each : pairs) put(each.peer, message);

  EXPECT_TRUE(turnUntil([&] {
    return std::all_of(clients.begin(), clients.end(),
                       [&](const auto& each) { return each->text.size() >= message.size(); });
  }));
  for (const auto& each : clients) {
    EXPECT_TRUE(each->text == message);
    EXPECT_EQ(each->lasts, 0) << "it goes on by itself";
  }
  EXPECT_GT(ring().waitingBlocks(), before);
  for (const std::uint64_t id : ids) ring().leave(id);
  turn();
  EXPECT_EQ(pool_.figures().live, static_cast<std::int64_t>(ring().waitingBlocks()));
}

}  // namespace
}  // namespace millrace
