// SPDX-License-Identifier: Apache-2.0
// The nodes that tasks travel in: where they come from and where they go.
#include "concurrent/inbox_support.h"
#include "support/heap_count.h"

#include <millrace/concurrent/inbox.h>

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using test::heapCallsOfThread;
using test::nodeFor;
using test::post;
using test::runAndRecycle;

TEST(NodePool, GivesBackTheSlabsThatWereUsed) {
  NodePool pool;
  EXPECT_EQ(pool.takeAll(), nullptr);
  auto* one = new NodeSlab;
  auto* two = new NodeSlab;

  pool.give(*one);
  pool.give(*two);

  NodeSlab* all = pool.takeAll();
  EXPECT_EQ(all, two);
  EXPECT_EQ(all->next.read(), one);
  EXPECT_EQ(one->next.read(), nullptr);
  EXPECT_EQ(pool.takeAll(), nullptr);
  delete one;
  delete two;
}

TEST(NodePool, FreesWhatIsAboveItsBound) {
  NodePool pool;
  for (std::uint64_t i = 0; i < NodePool::kMaxSlabs + 5; ++i) pool.give(*new NodeSlab);

  std::uint64_t kept = 0;
  for (NodeSlab* all = pool.takeAll(); all != nullptr; ++kept) {
    delete std::exchange(all, all->next.read());
  }

  EXPECT_EQ(kept, NodePool::kMaxSlabs);  // and LeakSanitizer knows of no others
}

TEST(NodePool, GetsASlabBackFromWhoeverFinishesItsLastNode) {
  Inbox first;
  Inbox second;
  std::thread([&] {
    // The whole slab, to two inboxes in turn.
    for (std::uint32_t i = 0; i < NodeSlab::kNodes; ++i) post(i % 2 == 0 ? first : second, [] {});
  }).join();

  runAndRecycle(first, first.take().chain);
  EXPECT_EQ(first.pool().takeAll(), nullptr);
  runAndRecycle(second, second.take().chain);

  NodeSlab* slab = second.pool().takeAll();
  ASSERT_NE(slab, nullptr);
  EXPECT_EQ(slab->finished.load(), 0U);  // ready for the next round
  delete slab;
}

TEST(NodePool, AllocatesNothingInTheSteadyState) {
  Inbox inbox;
  const auto turn = [&inbox] {
    for (int i = 0; i < 100; ++i) post(inbox, [] {});
    runAndRecycle(inbox, inbox.take().chain);
  };
  const std::uint64_t start = heapCallsOfThread();
  std::thread([] {}).join();
  for (int i = 0; i < 5; ++i) turn();  // until there are slabs for both sides

  const std::uint64_t before = heapCallsOfThread();
  for (int i = 0; i < 100; ++i) turn();

  EXPECT_EQ(heapCallsOfThread() - before, 0U);
  EXPECT_EQ(before > start, test::countsHeap());  // the count does count
}

TEST(NodePool, AllocatesNothingForAnotherThreadInTheSteadyState) {
  constexpr int kBatch = 100;
  Inbox inbox;
  std::atomic<int> round{0};
  std::uint64_t allocated = 1;
  std::thread producer([&] {
    std::uint64_t before = 0;
    for (int r = 1; r <= 20; ++r) {
      while (round.load() < r) std::this_thread::yield();
      if (r == 3) before = heapCallsOfThread();
      for (int i = 0; i < kBatch; ++i) post(inbox, [] {});
    }
    allocated = heapCallsOfThread() - before;
  });

  for (int r = 1; r <= 20; ++r) {
    round.store(r);
    while (inbox.userTasks() < kBatch) std::this_thread::yield();
    runAndRecycle(inbox, inbox.take().chain);
  }
  producer.join();

  EXPECT_EQ(allocated, 0U);
}

// What one backlog has needed does not go round for ever: few slabs stay in the nearest caches.
TEST(NodePool, GivesTheLastSlabFirst) {
  std::thread([] {
    Inbox inbox;
    const auto turn = [&inbox](std::uint32_t count) {
      for (std::uint32_t i = 0; i < count; ++i) post(inbox, [] {});
      std::set<NodeSlab*> slabs;
      TaskChain chain = inbox.take().chain;
      for (TaskChain each = chain; TaskNode* node = each.popFront();) {
        slabs.insert(&NodeSlab::of(node));
      }
      runAndRecycle(inbox, chain);
      return slabs;
    };
    EXPECT_EQ(turn(20 * NodeSlab::kNodes).size(), 20U);

    std::set<NodeSlab*> used;
    for (int i = 0; i < 100; ++i) used.merge(turn(NodeSlab::kNodes / 2));

    EXPECT_LE(used.size(), 3U);
  }).join();
}

// The slab that comes next is asked for once, however often the node before it is put back.
TEST(NodeCache, KeepsTheUpcomingSlabWhenANodeIsPutBack) {
  std::thread([] {
    Inbox inbox;
    for (std::uint32_t i = 0; i < 4 * NodeSlab::kNodes; ++i) post(inbox, [] {});
    runAndRecycle(inbox, inbox.take().chain);
    for (std::uint32_t i = 0; i < NodeSlab::kNodes; ++i) {
      for (int again = 0; again < 3; ++again) {
        NodeCache::ofThread().unget(NodeCache::ofThread().get(inbox.pool()));
      }
      post(inbox, [] {});
    }
    EXPECT_EQ(runAndRecycle(inbox, inbox.take().chain), NodeSlab::kNodes);
  }).join();  // LeakSanitizer knows of no slab that was forgotten
}

TEST(NodeCache, GivesNodesThatLieSideBySide) {
  std::thread([] {
    NodePool pool;
    TaskNode* last = NodeCache::ofThread().get(pool);
    std::vector<TaskNode*> all{last};
    for (std::uint32_t i = 1; i < NodeSlab::kNodes; ++i) {
      all.push_back(NodeCache::ofThread().get(pool));
      ASSERT_EQ(all.back(), last + 1);
      ASSERT_FALSE(all.back()->task);
      last = all.back();
    }
    NodeReturn used;
    for (TaskNode* each : all) used.add(each, pool);
    used.flush(pool);
  }).join();
}

TEST(NodeCache, TakesBackANodeThatWasNotUsed) {
  Inbox inbox;
  TaskNode* node = NodeCache::ofThread().get(inbox.pool());

  NodeCache::ofThread().unget(node);

  EXPECT_EQ(NodeCache::ofThread().get(inbox.pool()), node);
  NodeCache::ofThread().unget(node);
}

// A refused task may post when it is destroyed, before its own node is put back.
TEST(NodeCache, TakesBackANodeAlthoughOthersWereGivenMeanwhile) {
  for (std::uint32_t between = 1; between < 2 * NodeSlab::kNodes; between += 31) {
    std::thread([between] {
      Inbox inbox;
      TaskNode* refused = NodeCache::ofThread().get(inbox.pool());
      std::set<TaskNode*> inUse;
      for (std::uint32_t i = 0; i < between; ++i) {
        TaskNode* node = nodeFor(inbox, [] {});
        inUse.insert(node);
        inbox.push(node, TaskNode::user);
      }

      NodeCache::ofThread().unget(refused);

      for (std::uint32_t i = 0; i < 2 * NodeSlab::kNodes; ++i) {
        TaskNode* node = nodeFor(inbox, [] {});
        ASSERT_TRUE(inUse.insert(node).second) << "a node was given twice";
        inbox.push(node, TaskNode::user);
      }
      EXPECT_EQ(runAndRecycle(inbox, inbox.take().chain), inUse.size());
    }).join();  // LeakSanitizer knows whether every slab is gone
  }
}

// The refused node is the last of its slab: whoever puts it back frees the slab.
TEST(NodeCache, FreesASlabThatIsFinishedWithTheNodeTakenBack) {
  std::thread([] {
    Inbox inbox;
    TaskNode* refused = NodeCache::ofThread().get(inbox.pool());
    for (std::uint32_t i = 1; i < NodeSlab::kNodes; ++i) post(inbox, [] {});
    EXPECT_EQ(runAndRecycle(inbox, inbox.take().chain), NodeSlab::kNodes - 1);
    post(inbox, [] {});  // from another slab

    NodeCache::ofThread().unget(refused);

    EXPECT_EQ(inbox.pool().takeAll(), nullptr);
    EXPECT_EQ(runAndRecycle(inbox, inbox.take().chain), 1U);
  }).join();
}

// A thread-local that is older than the cache, so that it dies after the cache was cleared.
struct FillsInboxAtThreadEnd {
  Inbox* inbox = nullptr;
  ~FillsInboxAtThreadEnd() {
    if (inbox == nullptr) return;
    for (int i = 0; i < 3; ++i) post(*inbox, [] {});
    NodeCache::ofThread().unget(NodeCache::ofThread().get(inbox->pool()));
  }
};

TEST(NodeCache, CachesNothingMoreOnceItsThreadHasClearedIt) {
  Inbox inbox;
  auto* spare = new NodeSlab;  // must not go into a cache that nobody clears any more
  std::thread([&] {
    thread_local FillsInboxAtThreadEnd last;
    last.inbox = &inbox;
    post(inbox, [] {});
    inbox.pool().give(*spare);
  }).join();

  EXPECT_EQ(inbox.userTasks(), 4U);
  EXPECT_EQ(runAndRecycle(inbox, inbox.take().chain), 4U);
  bool stillThere = false;
  for (NodeSlab* each = inbox.pool().takeAll(); each != nullptr;) {
    stillThere = stillThere || each == spare;
    delete std::exchange(each, each->next.read());
  }
  EXPECT_TRUE(stillThere);
}

}  // namespace
}  // namespace millrace
