// SPDX-License-Identifier: Apache-2.0
// Which loop of a group gets the next piece of work.
#include "support/engines.h"

#include <millrace/concurrent/chooser.h>

#include <gtest/gtest.h>

#include <latch>
#include <map>

namespace millrace {
namespace {

std::size_t indexOf(const EventLoopGroup& group, const EventLoop& loop) {
  std::size_t i = 0;
  for (const EventLoop& each : group) {
    if (&each == &loop) return i;
    ++i;
  }
  return i;
}

// C180
TEST(GroupChooser, GoesRoundInOrder) {
  for (const int n : {1, 2, 3, 4, 7, 8}) {
    EventLoopGroup group(n, io::parking());
    for (std::size_t i = 0; i < 3 * group.size(); ++i) {
      EXPECT_EQ(indexOf(group, group.next()), i % group.size()) << "of " << n;
    }
  }
}

// C181: issue 10423 of Netty
TEST(GroupChooser, KeepsItsOrderBeyondTwoToThe31AndBeyondTwoToThe32) {
  for (const std::uint64_t start :
       {(std::uint64_t{1} << 31) - 5, (std::uint64_t{1} << 32) - 5, (std::uint64_t{1} << 63) - 5}) {
    for (const int n : {3, 4, 7}) {
      EventLoopGroup group(
          LoopOptions().loops(n).io(io::parking()).chooser(roundRobinFromForTest(start)));
      std::size_t last = indexOf(group, group.next());
      for (int i = 0; i < 20; ++i) {
        const std::size_t now = indexOf(group, group.next());
        ASSERT_EQ(now, (last + 1) % group.size());
        last = now;
      }
    }
  }
}

// C182: also from several threads at once
TEST(GroupChooser, SpreadsWorkWithinOne) {
  EventLoopGroup group(3, io::parking());
  std::vector<std::map<std::size_t, int>> counts(4);
  std::vector<std::thread> threads;
  for (auto& mine : counts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 250; ++i) ++mine[indexOf(group, *group.acquireLoop())];
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::map<std::size_t, int> sum;
  for (const auto& mine : counts) {
    for (const auto& [loop, times] : mine) sum[loop] += times;
  }
  EXPECT_EQ(sum, (std::map<std::size_t, int>{{0, 334}, {1, 333}, {2, 333}}));
}

// C183
TEST(GroupChooser, CanLookForTheLeastPendingTasks) {
  std::latch go(1);
  std::latch held(2);
  EventLoopGroup group(LoopOptions().loops(3).chooser(leastLoaded()));
  std::vector<EventLoop*> loops;
  for (EventLoop& loop : group) loops.push_back(&loop);
  for (const std::size_t busy : {std::size_t{0}, std::size_t{2}}) {
    loops[busy]->execute([&] {
      held.count_down();
      go.wait();
    });
  }
  held.wait();
  for (int i = 0; i < 5; ++i) loops[0]->execute([] {});
  for (int i = 0; i < 9; ++i) loops[2]->execute([] {});

  for (int i = 0; i < 10; ++i) EXPECT_EQ(&group.next(), loops[1]);
  EXPECT_EQ(loops[0]->load(), 5U);
  EXPECT_EQ(loops[2]->load(), 9U);
  EXPECT_EQ(group.load(), 14U);
  go.count_down();
}

// C183: watched descriptors are load, too
TEST(GroupChooser, CanLookForTheFewestDescriptors) {
  const test::Pipe pipe;
  EventLoopGroup group(LoopOptions().loops(2).chooser(leastLoaded()));
  EventLoop& first = *group.begin();
  EventLoop& second = *++group.begin();
  const Watch watch =
      test::watchInLoop(first, pipe.readEnd(), kReadable, [](int, std::uint32_t) {});

  for (int i = 0; i < 10; ++i) EXPECT_EQ(&group.next(), &second);
  watch.unwatch();
  first.submit([] {}).sync();

  EXPECT_TRUE(test::eventually([&] { return &group.next() == &first; }));
}

}  // namespace
}  // namespace millrace
