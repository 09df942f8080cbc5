// SPDX-License-Identifier: Apache-2.0
#include "concurrent/inbox_support.h"

#include <millrace/concurrent/inbox.h>

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::nodeFor;
using test::post;
using test::runAndRecycle;

std::vector<int> valuesOf(Inbox& inbox, TaskChain chain, std::vector<int>& sink) {
  sink.clear();
  runAndRecycle(inbox, chain);
  return sink;
}

TEST(TaskChain, KeepsTheOrderOfAppendsAndOfWholeChains) {
  TaskNode a, b, c, d;
  TaskChain first, second;
  first.append(&a);
  first.append(TaskChain{});
  second.append(&b);
  second.append(&c);

  TaskChain all;
  all.append(first);
  all.append(second);
  all.append(&d);

  for (TaskNode* expected : {&a, &b, &c, &d}) EXPECT_EQ(all.popFront(), expected);
  EXPECT_EQ(all.popFront(), nullptr);
  EXPECT_TRUE(all.empty());
  all.append(&a);  // usable again
  EXPECT_EQ(all.popFront(), &a);
}

TEST(TaskNode, KeepsItsKindWhenItsLinkChanges) {
  TaskNode a, b;

  a.set(&b, TaskNode::framework | TaskNode::timer);
  a.setNext(nullptr);

  EXPECT_EQ(a.next(), nullptr);
  EXPECT_EQ(a.kind(), TaskNode::framework | TaskNode::timer);
}

TEST(Inbox, GivesTasksOutInTheOrderTheyCame) {
  Inbox inbox;
  std::vector<int> ran;
  EXPECT_TRUE(inbox.isEmpty());
  for (int i = 0; i < 5; ++i) post(inbox, [i, &ran] { ran.push_back(i); });
  EXPECT_FALSE(inbox.isEmpty());

  Inbox::Taken taken = inbox.take();

  EXPECT_TRUE(inbox.isEmpty());
  EXPECT_EQ(taken.userTasks, 5U);
  EXPECT_EQ(valuesOf(inbox, taken.chain, ran), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(inbox.take().chain.empty());
}

// C065
TEST(Inbox, CountsUsersTasksOnly) {
  Inbox inbox;
  post(inbox, [] {});
  post(
      inbox, [] {}, TaskNode::framework);
  post(
      inbox, [] {}, TaskNode::tail);

  EXPECT_EQ(inbox.userTasks(), 2U);
  Inbox::Taken taken = inbox.take();
  EXPECT_EQ(inbox.userTasks(), 0U);
  EXPECT_EQ(taken.userTasks, 2U);
  EXPECT_EQ(runAndRecycle(inbox, taken.chain), 3U);
}

TEST(Inbox, RefusesEveryPushOnceClosedAndStaysClosed) {
  Inbox inbox;
  std::vector<int> ran;
  post(inbox, [&] { ran.push_back(1); });

  Inbox::Taken last = inbox.close();

  EXPECT_TRUE(inbox.isClosed());
  EXPECT_EQ(last.userTasks, 1U);
  EXPECT_EQ(valuesOf(inbox, last.chain, ran), std::vector<int>{1});
  EXPECT_FALSE(post(inbox, [] {}));
  EXPECT_FALSE(post(
      inbox, [] {}, TaskNode::framework));
  EXPECT_TRUE(inbox.take().chain.empty());  // does not open it again
  EXPECT_TRUE(inbox.isClosed());
  EXPECT_FALSE(post(inbox, [] {}));
  EXPECT_EQ(inbox.userTasks(), 0U);
  Inbox::Taken again = inbox.close();
  EXPECT_TRUE(again.chain.empty());
  EXPECT_EQ(again.userTasks, 0U);
}

// C055 I1 I2
TEST(Inbox, LosesAndDoublesNothingAndIsFifoPerProducer) {
  constexpr int kProducers = 4;
  constexpr int kEach = 25'000;
  Inbox inbox;
  std::vector<int> next(kProducers, 0);
  bool inOrder = true;
  std::latch start(kProducers);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      start.arrive_and_wait();
      auto& mine = next[static_cast<std::size_t>(p)];
      for (int i = 0; i < kEach; ++i) {
        // Only the consumer runs them.
        post(inbox, [&inOrder, &mine, i] { inOrder = inOrder && mine++ == i; });
      }
    });
  }

  std::size_t ran = 0;
  while (ran < kProducers * kEach) ran += runAndRecycle(inbox, inbox.take().chain);
  for (std::thread& each : producers) each.join();

  EXPECT_TRUE(inOrder);
  EXPECT_EQ(next, std::vector<int>(kProducers, kEach));
  EXPECT_TRUE(inbox.isEmpty());
}

// I1
TEST(Inbox, RunsExactlyWhatItAcceptedBeforeItClosed) {
  constexpr int kProducers = 3;
  constexpr int kEach = 300;
  for (int round = 0; round < 200; ++round) {
    Inbox inbox;
    std::atomic<std::size_t> accepted{0};
    std::latch start(kProducers + 1);
    std::vector<std::thread> producers;
    for (int p = 0; p < kProducers; ++p) {
      producers.emplace_back([&] {
        start.arrive_and_wait();
        for (int i = 0; i < kEach && post(inbox, [] {}); ++i) accepted.fetch_add(1);
      });
    }
    start.arrive_and_wait();

    std::size_t ran = 0;
    const auto some = static_cast<std::size_t>(round % 10) * kEach / 10;
    while (accepted.load() < some) ran += runAndRecycle(inbox, inbox.take().chain);
    ran += runAndRecycle(inbox, inbox.close().chain);
    for (std::thread& each : producers) each.join();

    ASSERT_EQ(ran, accepted.load());
  }
}

TEST(Inbox, RemovesOneNodeAndLeavesTheRestInOrder) {
  Inbox inbox;
  std::vector<int> ran;
  std::vector<TaskNode*> nodes;
  for (int i = 0; i < 4; ++i) {
    nodes.push_back(nodeFor(inbox, [i, &ran] { ran.push_back(i); }));
    inbox.push(nodes.back(), i == 3 ? TaskNode::framework : TaskNode::user, NodeCache::ofThread());
  }

  EXPECT_TRUE(inbox.remove(nodes[1]));
  EXPECT_FALSE(inbox.remove(nodes[1]));

  EXPECT_EQ(inbox.userTasks(), 2U);
  EXPECT_EQ(valuesOf(inbox, inbox.take().chain, ran), (std::vector<int>{0, 2, 3}));
  EXPECT_FALSE(inbox.remove(nodes[0]));
  nodes[1]->task.reset();
  NodeCache::ofThread().unget(nodes[1]);
}

TEST(Inbox, JoinsNoRunToANodeThatWasRemoved) {
  Inbox inbox;
  NodeCache& mine = NodeCache::ofThread();
  std::vector<int> ran;
  std::vector<TaskNode*> nodes;
  const auto push = [&](int value) {
    nodes.push_back(nodeFor(inbox, [value, &ran] { ran.push_back(value); }));
    inbox.push(nodes.back(), TaskNode::user, mine);
  };
  push(0);
  push(1);
  EXPECT_TRUE(inbox.remove(nodes[0]));

  push(2);  // follows 1 in memory and in the inbox, but 1 has lost the node before it

  EXPECT_EQ(valuesOf(inbox, inbox.take().chain, ran), (std::vector<int>{1, 2}));
  nodes[0]->task.reset();
  mine.unget(nodes[0]);
}

// C055
TEST(Inbox, TakesRunsOfSeveralThreadsInOrder) {
  constexpr int kEach = 300;  // several slabs
  constexpr int kThreads = 3;
  Inbox inbox;
  std::vector<std::vector<int>> ran(kThreads);
  // One after the other in turns of every length, so that runs are cut anywhere.
  std::vector<std::thread> threads;
  std::atomic<int> turn{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto& mine = ran[static_cast<std::size_t>(t)];
      for (int i = 0, length = 1; i < kEach; ++length) {
        while (turn.load() % kThreads != t) std::this_thread::yield();
        for (int k = 0; k < length && i < kEach; ++k, ++i) {
          post(inbox, [&mine, i] { mine.push_back(i); });
        }
        turn.fetch_add(1);
      }
    });
  }
  for (std::thread& each : threads) each.join();

  EXPECT_EQ(inbox.userTasks(), std::size_t{kEach} * kThreads);
  EXPECT_EQ(runAndRecycle(inbox, inbox.take().chain), std::size_t{kEach} * kThreads);
  std::vector<int> expected(kEach);
  for (int i = 0; i < kEach; ++i) expected[static_cast<std::size_t>(i)] = i;
  for (const std::vector<int>& each : ran) EXPECT_EQ(each, expected);
}

TEST(Inbox, RemovesItsOnlyNode) {
  Inbox inbox;
  TaskNode* node = nodeFor(inbox, [] {});
  inbox.push(node, TaskNode::user);

  EXPECT_TRUE(inbox.remove(node));

  EXPECT_TRUE(inbox.isEmpty());
  EXPECT_EQ(inbox.userTasks(), 0U);
  node->task.reset();
  NodeCache::ofThread().unget(node);
}

// I1 I2
TEST(Inbox, KeepsTheOrderOfPushesThatComeDuringARemoval) {
  constexpr int kEach = 2'000;
  constexpr int kProducers = 2;
  Inbox inbox;
  std::vector<int> next(kProducers, 0);
  bool inOrder = true;
  std::atomic<int> finished{0};
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      auto& mine = next[static_cast<std::size_t>(p)];
      for (int i = 0; i < kEach; ++i) {
        post(inbox, [&inOrder, &mine, i] { inOrder = inOrder && mine++ == i; });
      }
      finished.fetch_add(1);
    });
  }

  bool removedAll = true;
  while (finished.load() < kProducers) {
    TaskNode* own = nodeFor(inbox, [] {});
    inbox.push(own, TaskNode::user);
    removedAll = removedAll && inbox.remove(own);
    own->task.reset();
    NodeCache::ofThread().unget(own);
  }
  for (std::thread& each : producers) each.join();

  EXPECT_TRUE(removedAll);
  EXPECT_EQ(inbox.userTasks(), std::size_t{kProducers} * kEach);
  EXPECT_EQ(runAndRecycle(inbox, inbox.take().chain), std::size_t{kProducers} * kEach);
  EXPECT_TRUE(inOrder);
}

}  // namespace
}  // namespace millrace
