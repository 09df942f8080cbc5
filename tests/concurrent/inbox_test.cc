// SPDX-License-Identifier: Apache-2.0
#include <millrace/concurrent/inbox.h>

#include "concurrent/allocations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::allocationsOfThread;

TaskNode* nodeFor(Inbox& inbox, Task task) {
  TaskNode* node = NodeCache::ofThread().get(inbox.pool());
  node->task = std::move(task);
  return node;
}

bool post(Inbox& inbox, Task task, std::uintptr_t kind = TaskNode::user) {
  TaskNode* node = nodeFor(inbox, std::move(task));
  if (inbox.push(node, kind)) return true;
  node->task.reset();
  NodeCache::ofThread().unget(node);
  return false;
}

// Runs the tasks and gives the nodes back, as a loop does; returns how many.
std::size_t runAndRecycle(Inbox& inbox, TaskChain chain) {
  TaskChain used;
  std::size_t count = 0;
  while (TaskNode* node = chain.popFront()) {
    if (node->task) node->task();
    node->task.reset();
    node->set(nullptr, TaskNode::user);
    used.append(node);
    ++count;
  }
  if (count != 0) inbox.pool().give(used, count);
  return count;
}

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
  post(inbox, [] {}, TaskNode::framework);
  post(inbox, [] {}, TaskNode::tail);

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
  EXPECT_FALSE(post(inbox, [] {}, TaskNode::framework));
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
    inbox.push(nodes.back(), i == 3 ? TaskNode::framework : TaskNode::user);
  }

  EXPECT_TRUE(inbox.remove(nodes[1]));
  EXPECT_FALSE(inbox.remove(nodes[1]));

  EXPECT_EQ(inbox.userTasks(), 2U);
  EXPECT_EQ(valuesOf(inbox, inbox.take().chain, ran), (std::vector<int>{0, 2, 3}));
  EXPECT_FALSE(inbox.remove(nodes[0]));
  nodes[1]->task.reset();
  NodeCache::ofThread().unget(nodes[1]);
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

TEST(NodePool, GivesBackTheNodesThatWereUsed) {
  Inbox inbox;
  std::set<TaskNode*> used;
  for (int i = 0; i < 10; ++i) {
    TaskNode* node = nodeFor(inbox, [] {});
    used.insert(node);
    inbox.push(node, TaskNode::user);
  }
  runAndRecycle(inbox, inbox.take().chain);

  std::set<TaskNode*> again;
  TaskNode* all = inbox.pool().takeAll();
  for (TaskNode* each = all; each != nullptr; each = each->next()) again.insert(each);

  EXPECT_EQ(again, used);
  EXPECT_EQ(inbox.pool().takeAll(), nullptr);
  while (all != nullptr) delete std::exchange(all, all->next());
}

TEST(NodePool, FreesWhatIsAboveItsBound) {
  Inbox inbox;
  const auto fill = [&inbox](std::uint64_t count) {
    TaskChain chain;
    for (std::uint64_t i = 0; i < count; ++i) chain.append(new TaskNode);
    inbox.pool().give(chain, count);
  };
  fill(NodePool::kMaxNodes);
  fill(1);  // one too many: freed (or LeakSanitizer says so)

  std::uint64_t kept = 0;
  for (TaskNode* all = inbox.pool().takeAll(); all != nullptr; ++kept) {
    delete std::exchange(all, all->next());
  }

  EXPECT_EQ(kept, NodePool::kMaxNodes);
}

TEST(Inbox, AllocatesNothingInTheSteadyState) {
  Inbox inbox;
  const auto turn = [&inbox] {
    for (int i = 0; i < 100; ++i) post(inbox, [] {});
    runAndRecycle(inbox, inbox.take().chain);
  };
  turn();

  const std::uint64_t before = allocationsOfThread();
  for (int i = 0; i < 100; ++i) turn();

  EXPECT_EQ(allocationsOfThread() - before, 0U);
}

TEST(Inbox, AllocatesNothingForAnotherThreadInTheSteadyState) {
  constexpr int kBatch = 100;
  Inbox inbox;
  std::atomic<int> round{0};
  std::uint64_t allocated = 1;
  std::thread producer([&] {
    std::uint64_t before = 0;
    for (int r = 1; r <= 20; ++r) {
      while (round.load() < r) std::this_thread::yield();
      if (r == 3) before = allocationsOfThread();
      for (int i = 0; i < kBatch; ++i) post(inbox, [] {});
    }
    allocated = allocationsOfThread() - before;
  });

  for (int r = 1; r <= 20; ++r) {
    round.store(r);
    while (inbox.userTasks() < kBatch) std::this_thread::yield();
    runAndRecycle(inbox, inbox.take().chain);
  }
  producer.join();

  EXPECT_EQ(allocated, 0U);
}

TEST(NodeCache, KeepsABoundedNumberOfNodes) {
  std::thread([] {
    Inbox inbox;
    NodeCache& cache = NodeCache::ofThread();
    cache.keep(cache.get(inbox.pool()));
    std::uint32_t kept = 1;
    for (;; ++kept) {
      auto* node = new TaskNode;
      if (cache.keep(node)) continue;
      delete node;
      break;
    }
    EXPECT_EQ(kept, NodeCache::kKept);
  }).join();  // and the thread's end frees them
}

TEST(NodeCache, KeepsNothingOnAThreadThatOnlyConsumes) {
  std::thread([] {
    TaskNode node;
    // The end of the thread would not free it.
    EXPECT_FALSE(NodeCache::ofThread().keep(&node));
  }).join();
}

// A thread-local that is older than the cache, so that it dies after the cache was cleared.
struct PostsAtThreadEnd {
  Inbox* inbox = nullptr;
  bool kept = true;
  ~PostsAtThreadEnd() {
    if (inbox == nullptr) return;
    TaskNode* node = NodeCache::ofThread().get(inbox->pool());
    inbox->push(node, TaskNode::user);
    TaskNode other;
    EXPECT_FALSE(NodeCache::ofThread().keep(&other));
    NodeCache::ofThread().unget(new TaskNode);
  }
};

TEST(NodeCache, CachesNothingMoreOnceItsThreadHasClearedIt) {
  Inbox inbox;
  TaskChain spare;  // what the late post must not take into a cache that nobody clears
  for (int i = 0; i < 3; ++i) spare.append(new TaskNode);

  std::thread([&] {
    thread_local PostsAtThreadEnd last;
    last.inbox = &inbox;
    NodeCache::ofThread().keep(NodeCache::ofThread().get(inbox.pool()));
    inbox.pool().give(spare, 3);
  }).join();

  EXPECT_EQ(inbox.userTasks(), 1U);
  EXPECT_EQ(runAndRecycle(inbox, inbox.take().chain), 1U);
}

}  // namespace
}  // namespace millrace
