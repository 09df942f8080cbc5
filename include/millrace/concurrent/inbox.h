// SPDX-License-Identifier: Apache-2.0
// Inbox: how tasks from any thread reach a loop. A lock-free stack that its loop takes whole.
//
//   producers  --push-->  [head]->c->b->a        loop takes all at once and reverses: a, b, c
//                            ^ one compare-exchange each
//
// Why a stack taken whole: a node is complete when it becomes visible (queues that claim a place
// first and publish later hide whatever comes behind an unfinished push), the consumer pays one
// exchange per batch instead of one per task, and nothing is popped singly, so there is no ABA
// problem.
//
// Nodes lie side by side in slabs of one page: node_pool.h.
//
// Runs: a producer that finds its own previous node on top, right before the new one in memory,
// notes in the new one how many nodes it follows in this way. The loop then reverses the stack run
// by run instead of node by node, and comes to each node once, when it runs it.
//
//   head -> [n5 run 2] [n4] [n3 run 0] -> [m9 run 1] [m8] -> null     two steps instead of five
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/export.h>
#include <millrace/concurrent/node_pool.h>
#include <millrace/concurrent/task_node.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace millrace {

/// The stack itself, with its node pool.
class Inbox {
 public:
  /// Tasks in the order of their pushes, and how many of them are users' (see userTasks()).
  struct Taken {
    TaskChain chain;
    std::size_t userTasks = 0;
  };

  Inbox() noexcept = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox() = default;  // the owner has closed it, or takes what is left and frees it

  /// Adds `node`. False if the inbox is closed: the node is still the caller's. Any thread.
  /// The compare-exchange is point P1 of the wakeup protocol (docs/design/wakeup.md).
  bool push(TaskNode* node, std::uintptr_t kind) noexcept {
    return push(node, kind, [](TaskNode*) { return 0u; });
  }
  /// The same for a node that the calling thread's cache gave: joins it to the run on top. `mine`
  /// knows the run of its last push, and a node on top is where it was pushed: with the same node
  /// there before, the nodes that its run counts lie below it in order.
  bool push(TaskNode* node, std::uintptr_t kind, NodeCache& mine) noexcept {
    std::uint32_t run = 0;
    const bool pushed = push(node, kind, [&](TaskNode* top) {
      return run = top == mine.pushed_ && top != nullptr && top + 1 == node ? mine.run_ + 1 : 0;
    });
    if (pushed) {
      mine.pushed_ = node;
      mine.run_ = run;
    }
    return pushed;
  }

  /// Everything that was pushed, in order; nothing once it is closed. Loop thread (or whoever holds
  /// the start lock).
  Taken take() noexcept {
    if (internal::CountedHead::isBare(head_.load(std::memory_order_relaxed))) return {};
    return takeOpen();
  }
  /// The same without a look before, which would fetch the head's line twice. Cheaper if something
  /// is there. REQUIRES: not closed.
  Taken takeOpen() noexcept {
    const std::uint64_t word = head_.exchange(0, std::memory_order_acq_rel);
    prefetchEnds(word);
    return taken(word);
  }
  /// Takes everything and rejects every later push.
  Taken close() noexcept {
    return taken(head_.exchange(internal::CountedHead::kClosed, std::memory_order_acq_rel));
  }
  /// Takes `node` out again and leaves the rest in order; false if it is not there.
  /// REQUIRES: nobody takes meanwhile. Pushes of other threads go on.
  MILLRACE_API bool remove(TaskNode* node) noexcept;

  /// Point L2 of the wakeup protocol.
  bool isEmpty() const noexcept {
    return internal::CountedHead::node(head_.load(std::memory_order_seq_cst)) == nullptr;
  }
  bool isClosed() const noexcept {
    return internal::CountedHead::isClosed(head_.load(std::memory_order_acquire));
  }
  /// User tasks that wait here, exact up to four million. Any thread.
  std::size_t userTasks() const noexcept {
    return internal::CountedHead::count(head_.load(std::memory_order_acquire));
  }

  NodePool& pool() noexcept { return pool_; }

 private:
  template <class RunOn>
  bool push(TaskNode* node, std::uintptr_t kind, RunOn&& runOn) noexcept {
    using internal::CountedHead;
    const std::uint64_t more = (kind & TaskNode::framework) != 0 ? 0 : 1;
    std::uint64_t seen = head_.load(std::memory_order_relaxed);
    std::uint64_t wanted = 0;
    do {
      if (CountedHead::isClosed(seen)) return false;
      TaskNode* top = CountedHead::node(seen);
      node->set(top, kind, runOn(top));
      wanted = CountedHead::pack(node, CountedHead::plus(CountedHead::count(seen), more));
    } while (!head_.compare_exchange_weak(seen, wanted, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
    return true;
  }
  // Fetches the last node and the first ones, as they lie if all are one run. The loop would learn
  // where they are from the last one, when that one's line has come.
  static void prefetchEnds(std::uint64_t word) noexcept {
    const TaskNode* last = internal::CountedHead::node(word);
    const std::uint64_t count = internal::CountedHead::count(word);
    internal::prefetchForWrite(last);
    if (count < 2 || last == nullptr) return;
    const TaskNode* begin = NodeSlab::of(last).nodes;
    const TaskNode* first =
        count - 1 <= static_cast<std::uint64_t>(last - begin) ? last - (count - 1) : begin;
    const TaskNode* end = std::min(first + internal::kNodesAhead, last);
    for (; first < end; ++first) internal::prefetchForWrite(first);
  }
  static TaskChain reversed(std::uint64_t word) noexcept;
  static Taken taken(std::uint64_t word) noexcept {
    return {reversed(word), internal::CountedHead::isClosed(word)
                                ? 0
                                : static_cast<std::size_t>(internal::CountedHead::count(word))};
  }

  Atomic<std::uint64_t> head_{0};
  alignas(64) NodePool pool_;  // written by the loop, read by producers that ran out: a line apart
};

inline TaskChain Inbox::reversed(std::uint64_t word) noexcept {
  if (internal::CountedHead::isClosed(word)) return {};
  TaskNode* last = internal::CountedHead::node(word);
  TaskChain chain;
  chain.last = last;
  while (last != nullptr) {
    const std::uint32_t run = last->run();
    TaskNode* first = last - run;
    TaskNode* older = first->next();
    last->setNext(chain.first, chain.run);
    chain.first = first;
    chain.run = run;
    last = older;
  }
  return chain;
}

}  // namespace millrace
