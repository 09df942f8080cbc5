// SPDX-License-Identifier: Apache-2.0
// Nodes and timers on their way home: the pools' lock-free stacks, and who frees what last.
#include "expect_explored.h"

#include <millrace/concurrent/inbox.h>
#include <millrace/concurrent/timer_queue.h>

#include <gtest/gtest.h>

#include <vector>

namespace millrace::explorer {
namespace {

// A producer with a cache of its own and a loop that returns what it has run.
struct PoolState {
  ::millrace::Inbox inbox;
  NodeCache caches[2];
  Atomic<uint32_t> finished{0};
  int ran = 0;               // loop only
  int lastOf[2] = {-1, -1};  // loop only

  ~PoolState() {
    for (NodeCache& cache : caches) cache.clear();
  }
  void post(NodeCache& cache, int count) {
    for (int i = 0; i < count; ++i) {
      TaskNode* node = cache.get(inbox.pool());
      EXPLORE_CHECK(!node->task, "a node that is given out is empty");
      node->task = [this, &cache, i] {
        ++ran;
        int& last = lastOf[&cache - caches];
        EXPLORE_CHECK(last + 1 == i, "the tasks of a producer run in order");
        last = i;
      };
      EXPLORE_CHECK(inbox.push(node, TaskNode::user, cache), "the inbox is open");
    }
    finished.fetch_add(1, std::memory_order_seq_cst);
  }
  void consume(uint32_t producers) {
    NodeReturn used;
    for (;;) {
      const bool last = finished.load(std::memory_order_seq_cst) == producers;
      TaskChain chain = inbox.take().chain;
      if (chain.empty()) {
        if (last) return;
        cpuRelax();
        continue;
      }
      while (TaskNode* node = chain.popFront()) {
        node->task();
        node->task.reset();
        used.add(node, inbox.pool());
      }
      used.flush(inbox.pool());
    }
  }
};

// C055
TEST(ProductionPool, NodesComeHomeWholeAndAreReused) {
  expectClean("one producer, more posts than a slab has nodes", [](Execution& run) {
    auto& s = run.make<PoolState>();
    run.thread("loop", [&s] { s.consume(1); });
    run.thread("producer", [&s] { s.post(s.caches[0], 5); });
    run.finally([&s] { EXPLORE_CHECK(s.ran == 5, "each ran once"); });
  });
}

TEST(ProductionPool, TwoProducersTakeTheUsedSlabs) {
  Options options;
  options.preemptionBound = 2;
  expectClean(
      "two producers",
      [](Execution& run) {
        auto& s = run.make<PoolState>();
        run.thread("loop", [&s] { s.consume(2); });
        run.thread("first", [&s] { s.post(s.caches[0], 3); });
        run.thread("second", [&s] { s.post(s.caches[1], 3); });
        run.finally([&s] { EXPLORE_CHECK(s.ran == 6, "each ran once"); });
      },
      options);
}

// Slabs that two loops give back while a producer takes, in both ways.
struct SlabState {
  NodePool pool;
  NodeSlab* slabs[3] = {};
  int seen[3] = {};  // who has the slab writes: the explorer finds two at a time

  SlabState() {
    for (NodeSlab*& slab : slabs) slab = NodeSlab::make();
  }
  ~SlabState() {
    for (NodeSlab* slab : slabs) NodeSlab::free(slab);
  }
  void give(int index) {
    slabs[index]->nodes[0].link.write() = 1;
    pool.give(*slabs[index]);
  }
  void has(NodeSlab* slab) {
    slab->nodes[0].link.write() = 2;
    for (int i = 0; i < 3; ++i) {
      if (slabs[i] == slab) ++seen[i];
    }
  }
  void takeAll() {
    for (NodeSlab* slab = pool.takeAll(); slab != nullptr; slab = slab->next.read()) has(slab);
  }
};

TEST(ProductionPool, ASlabHasOneOwnerWhicheverWayItGoes) {
  expectClean("give, give || give || take the last, take all", [](Execution& run) {
    auto& s = run.make<SlabState>();
    run.thread("loop", [&s] {
      s.give(0);
      s.give(1);
    });
    run.thread("another loop", [&s] { s.give(2); });
    run.thread("producer", [&s] {
      if (NodeSlab* last = s.pool.takeLast()) s.has(last);
      s.takeAll();
    });
    run.finally([&s] {
      s.takeAll();
      for (const int times : s.seen) EXPLORE_CHECK(times == 1, "each slab is taken once");
    });
  });
  expectClean("give, give || take || take", [](Execution& run) {
    auto& s = run.make<SlabState>();
    auto& got = run.make<std::vector<NodeSlab*>>(2, nullptr);
    run.thread("loop", [&s] {
      s.give(0);
      s.give(1);
      s.give(2);
    });
    const auto take = [&s, &got](std::size_t index) {
      if (NodeSlab* last = s.pool.takeLast()) {
        last->nodes[0].link.write() = 2;
        got[index] = last;
      }
    };
    run.thread("first", [take] { take(0); });
    run.thread("second", [take] { take(1); });
    run.finally([&s, &got] {
      s.takeAll();
      for (NodeSlab* slab : got) {
        if (slab != nullptr) s.has(slab);
      }
      for (const int times : s.seen) EXPLORE_CHECK(times == 1, "each slab is taken once");
    });
  });
}

// The owner of a queue; its thread-local is shared by the virtual threads, so it is set in setup
// only.
struct Owner final : Executor {
  void execute(::millrace::Task task) override { task(); }
  bool tryExecute(::millrace::Task task) override {
    task();
    return true;
  }
  bool inEventLoop() const noexcept override { return true; }
};

struct TimerState {
  Owner owner;
  std::unique_ptr<TimerQueue> queue = std::make_unique<TimerQueue>(owner);
  std::vector<Ref<TimerNode>> timers;
  TaskChain due;
  int ran = 0;

  void make(TimerNode::Repeat repeat, int count = 1) {
    internal::tlsCurrentExecutor = &owner;
    for (int i = 0; i < count; ++i) {
      timers.push_back(queue->make(i, 1000, repeat, [this] { ++ran; }));
      queue->add(*timers.back());
    }
    due = queue->takeDue(count);
    internal::tlsCurrentExecutor = nullptr;
  }
};

// I5
TEST(ProductionTimer, ATimerRunsOrIsCancelledNeverBoth) {
  expectClean("run || cancel || cancel", [](Execution& run) {
    auto& s = run.make<TimerState>();
    auto& won = run.make<std::vector<int>>(2, 0);
    s.make(TimerNode::Repeat::no);
    run.thread("loop", [&s] { s.queue->run(TimerNode::of(*s.due.popFront()), Clock::real()); });
    run.thread("first", [&s, &won] { won[0] = s.timers[0]->cancel() ? 1 : 0; });
    run.thread("second", [&s, &won] { won[1] = s.timers[0]->cancel() ? 1 : 0; });
    run.finally([&s, &won] {
      EXPLORE_CHECK(s.ran + won[0] + won[1] == 1, "exactly one of run, cancel, cancel");
    });
  });
}

TEST(ProductionTimer, ItsFutureIsCompletedWhoeverIsFirst) {
  expectClean("run || future", [](Execution& run) {
    auto& s = run.make<TimerState>();
    s.make(TimerNode::Repeat::no);
    run.thread("loop", [&s] { s.queue->run(TimerNode::of(*s.due.popFront()), Clock::real()); });
    run.thread("asker", [&s] { static_cast<void>(s.timers[0]->future()); });
    run.finally([&s] { EXPLORE_CHECK(s.timers[0]->future().isSuccess(), "it ran: success"); });
  });
  expectClean("run || cancel || future", [](Execution& run) {
    auto& s = run.make<TimerState>();
    s.make(TimerNode::Repeat::atFixedRate);
    run.thread("loop", [&s] { s.queue->run(TimerNode::of(*s.due.popFront()), Clock::real()); });
    run.thread("canceller", [&s] {
      EXPLORE_CHECK(s.timers[0]->cancel(), "a repeating timer can always be cancelled");
    });
    run.thread("asker", [&s] { static_cast<void>(s.timers[0]->future()); });
    run.finally([&s] { EXPLORE_CHECK(s.timers[0]->future().isCancelled(), "and says so"); });
  });
}

// I8
TEST(ProductionTimer, ThePoolGoesWithTheLastHandle) {
  expectClean("drop || drop || the queue ends", [](Execution& run) {
    auto& s = run.make<TimerState>();
    s.make(TimerNode::Repeat::no, 2);
    run.thread("loop", [&s] {
      while (TaskNode* node = s.due.popFront()) TimerNode::of(*node).unrefQueued();
      s.queue.reset();
    });
    run.thread("first", [&s] { s.timers[0] = nullptr; });
    run.thread("second", [&s] { s.timers[1] = nullptr; });
  });
  expectClean("two handles of one timer || the queue ends", [](Execution& run) {
    auto& s = run.make<TimerState>();
    s.make(TimerNode::Repeat::no);
    s.timers.push_back(s.timers[0]);
    run.thread("loop", [&s] {
      TimerNode::of(*s.due.popFront()).unrefQueued();
      s.queue.reset();
    });
    run.thread("first", [&s] { s.timers[0] = nullptr; });
    run.thread("second", [&s] { s.timers[1] = nullptr; });
  });
}

TEST(ProductionTimer, AHandleMayBeCopiedWhileOthersDropTheirs) {
  expectClean("cancel and drop || copy and drop || run", [](Execution& run) {
    auto& s = run.make<TimerState>();
    auto& won = run.make<int>(0);
    s.make(TimerNode::Repeat::no);
    s.timers.push_back(s.timers[0]);
    run.thread("loop", [&s] { s.queue->run(TimerNode::of(*s.due.popFront()), Clock::real()); });
    run.thread("first", [&s, &won] {
      won = s.timers[0]->cancel() ? 1 : 0;
      s.timers[0] = nullptr;
    });
    run.thread("second", [&s] {
      const Ref<TimerNode> copy = s.timers[1];
      s.timers[1] = nullptr;
    });
    run.finally([&s, &won] {
      EXPLORE_CHECK(s.ran + won == 1, "it ran or was cancelled");
      s.queue.reset();  // with the pool, if every reference came back
    });
  });
}

}  // namespace
}  // namespace millrace::explorer
