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
// Nodes lie side by side in slabs of one page that are used in order and recycled whole, through a
// second stack. In the steady state a post allocates nothing, and both sides can fetch the next
// nodes into their cache before they need them: a list whose nodes lie anywhere costs each side a
// cache miss per task.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/export.h>
#include <millrace/base/task.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace millrace {

/// A task on its way. One cache line; the low bits of its link carry its kind.
struct alignas(64) TaskNode {
  enum Kind : std::uintptr_t {
    user = 0,       ///< a user's task: counts against the capacity and in pendingTasks()
    framework = 1,  ///< our own: always accepted until the inbox closes, counted nowhere
    borrowed = 2,   ///< bit: memory belongs to somebody else, not recycled after its run
    timer = 4,      ///< bit: part of a timer, see TimerNode
    arm = 8,        ///< bit: a timer that wants to be armed
    tail = 16,      ///< bit: to run at the end of the turn
  };
  static constexpr std::uintptr_t kKindBits = 31;

  TaskNode* next() const noexcept {
    return reinterpret_cast<TaskNode*>(link.read() & ~kKindBits);  // NOLINT: a tagged pointer
  }
  std::uintptr_t kind() const noexcept { return link.read() & kKindBits; }
  void setNext(TaskNode* node) noexcept {
    link.write() = reinterpret_cast<std::uintptr_t>(node) | kind();
  }
  void set(TaskNode* node, std::uintptr_t kinds) noexcept {
    link.write() = reinterpret_cast<std::uintptr_t>(node) | kinds;
  }

  Plain<std::uintptr_t> link{0};
  Task task;
};

/// Tasks in the order they are to run. Loop thread only; does not own its nodes.
struct TaskChain {
  TaskNode* first = nullptr;
  TaskNode* last = nullptr;

  bool empty() const noexcept { return first == nullptr; }
  void append(TaskNode* node) noexcept {
    node->setNext(nullptr);
    if (last == nullptr) {
      first = node;
    } else {
      last->setNext(node);
    }
    last = node;
  }
  void append(TaskChain chain) noexcept {
    if (chain.empty()) return;
    if (last == nullptr) {
      first = chain.first;
    } else {
      last->setNext(chain.first);
    }
    last = chain.last;
  }
  TaskNode* popFront() noexcept {
    TaskNode* node = first;
    if (node == nullptr) return nullptr;
    first = node->next();
    if (first == nullptr) last = nullptr;
    return node;
  }
};

namespace internal {

/// Fetches the line of `node` for writing. Any address will do: nothing happens if it is no memory.
inline void prefetchForWrite(const TaskNode* node) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*reinterpret_cast<const char*>(node)));
#else
  __builtin_prefetch(node, 1);
#endif
}

/// How many nodes ahead is early enough.
inline constexpr std::ptrdiff_t kNodesAhead = 8;

/// The node `distance` places further on, if the order of the slab holds; else some other address.
inline const TaskNode* guess(const TaskNode* node, std::ptrdiff_t distance) noexcept {
  return reinterpret_cast<const TaskNode*>(  // NOLINT: an address that is only prefetched
      reinterpret_cast<std::uintptr_t>(node) +
      static_cast<std::uintptr_t>(distance * static_cast<std::ptrdiff_t>(sizeof(TaskNode))));
}

/// A pointer to a TaskNode and a count in one word. Nodes are aligned to 64 bytes and user
/// addresses have at most 48 bits, so 22 bits are free; the count stops at its maximum instead of
/// overflowing.
struct CountedHead {
  static constexpr std::uint64_t kLow = 63;
  static constexpr std::uint64_t kAddress = 0x0000'ffff'ffff'ffc0;
  static constexpr std::uint64_t kMaxCount = (std::uint64_t{1} << 22) - 1;
  static constexpr std::uint64_t kClosed = 64;  // an address that no node has

  static std::uint64_t pack(const TaskNode* node, std::uint64_t count) noexcept {
    return reinterpret_cast<std::uintptr_t>(node) | (count & kLow) | ((count >> 6) << 48);
  }
  static TaskNode* node(std::uint64_t word) noexcept {
    return reinterpret_cast<TaskNode*>(word & kAddress);  // NOLINT: a tagged pointer
  }
  static std::uint64_t count(std::uint64_t word) noexcept {
    return (word & kLow) | ((word >> 48) << 6);
  }
  static bool isClosed(std::uint64_t word) noexcept { return (word & kAddress) == kClosed; }
  /// Without a node: empty or closed.
  static bool isBare(std::uint64_t word) noexcept { return (word & kAddress) <= kClosed; }
  static std::uint64_t plus(std::uint64_t count, std::uint64_t more) noexcept {
    return count + more > kMaxCount ? kMaxCount : count + more;
  }
};

}  // namespace internal

/// A page of nodes, used in the order of their addresses and reused as a whole. Nodes of one slab
/// may go to several loops; each loop counts those it has run, and whoever completes the count owns
/// the slab.
struct alignas(4096) NodeSlab {
#if defined(MILLRACE_EXPLORE)
  static constexpr std::uint32_t kNodes = 3;  // the explorer's words are larger
#else
  static constexpr std::uint32_t kNodes = 63;
#endif

  static NodeSlab& of(const TaskNode* node) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(node) & ~(alignof(NodeSlab) - 1);
    return *reinterpret_cast<NodeSlab*>(address);  // NOLINT: slabs are aligned to their size
  }
  /// `count` more of its nodes are not needed any more; true if those were the last.
  bool finish(std::uint32_t count) noexcept {
    return finished.fetch_add(count, std::memory_order_acq_rel) + count == kNodes;
  }

  Atomic<std::uint32_t> finished{0};
  Plain<NodeSlab*> next{nullptr};
  TaskNode nodes[kNodes];
};

static_assert(sizeof(NodeSlab) == 4096);

/// Where the used slabs of one inbox wait for producers: a stack, pushed to and taken whole.
class NodePool {
 public:
  /// 1 MiB: twice the largest backlog that our benchmarks keep in flight. What is above is freed.
  static constexpr std::uint64_t kMaxSlabs = 256;

  NodePool() noexcept = default;
  NodePool(const NodePool&) = delete;
  NodePool& operator=(const NodePool&) = delete;
  MILLRACE_API ~NodePool();

  /// Gives back a slab whose nodes are all finished. Any thread.
  MILLRACE_API void give(NodeSlab& slab) noexcept;
  /// All that is there; null if nothing is. Any thread.
  MILLRACE_API NodeSlab* takeAll() noexcept;

 private:
  Atomic<std::uint64_t> head_{0};
};

/// The nodes that one thread has at hand. One per thread: `NodeCache::ofThread()`.
class NodeCache {
 public:
  constexpr NodeCache() noexcept = default;
  NodeCache(const NodeCache&) = delete;
  NodeCache& operator=(const NodeCache&) = delete;
  ~NodeCache() = default;  // trivial on purpose: see clear()

  /// The calling thread's cache; emptied when the thread ends.
  static NodeCache& ofThread() noexcept { return tls_; }

  /// A node with an empty task: the next one of the slab at hand, of a used one from `pool`, or
  /// new.
  TaskNode* get(NodePool& pool) {
    if (__builtin_expect(next_ == end_, 0)) refill(pool);
    internal::prefetchForWrite(internal::guess(next_, internal::kNodesAhead));
    return next_++;
  }
  /// Puts back a node that get() gave to this thread and that was not used. Other nodes may have
  /// been given meanwhile: destroying a refused task runs user code, which may post.
  MILLRACE_API void unget(TaskNode* node) noexcept;
  /// Lets go of everything.
  MILLRACE_API void clear() noexcept;

 private:
  friend struct ClearAtThreadEnd;
  MILLRACE_API void refill(NodePool& pool);

  TaskNode* next_ = nullptr;
  TaskNode* end_ = nullptr;
  NodeSlab* spare_ = nullptr;
  bool registered_ = false;  // the thread's end will clear()
  bool ended_ = false;       // it has; thread-locals that go later still get nodes, one by one

  // Initial-exec: one instruction instead of a call, also in the shared library.
  [[gnu::tls_model("initial-exec")]] MILLRACE_API static constinit thread_local NodeCache tls_;
};

/// Counts the nodes that a loop has run, slab by slab. Loop thread.
class NodeReturn {
 public:
  /// `node` has run and its task is empty.
  void add(TaskNode* node, NodePool& pool) noexcept {
    NodeSlab* slab = &NodeSlab::of(node);
    if (__builtin_expect(slab != slab_, 0)) {
      flush(pool);
      slab_ = slab;
    }
    ++count_;
  }
  /// Tells the slab what was counted.
  void flush(NodePool& pool) noexcept {
    if (count_ != 0 && slab_->finish(count_)) pool.give(*slab_);
    count_ = 0;
    slab_ = nullptr;
  }

 private:
  NodeSlab* slab_ = nullptr;
  std::uint32_t count_ = 0;
};

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
    using internal::CountedHead;
    const std::uint64_t more = (kind & TaskNode::framework) != 0 ? 0 : 1;
    std::uint64_t seen = head_.load(std::memory_order_relaxed);
    std::uint64_t wanted = 0;
    do {
      if (CountedHead::isClosed(seen)) return false;
      node->set(CountedHead::node(seen), kind);
      wanted = CountedHead::pack(node, CountedHead::plus(CountedHead::count(seen), more));
    } while (!head_.compare_exchange_weak(seen, wanted, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
    return true;
  }

  /// Everything that was pushed, in order; nothing once it is closed. Loop thread (or whoever holds
  /// the start lock).
  Taken take() noexcept {
    if (internal::CountedHead::isBare(head_.load(std::memory_order_relaxed))) return {};
    return taken(head_.exchange(0, std::memory_order_acq_rel));
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
    return internal::CountedHead::count(head_.load(std::memory_order_relaxed));
  }

  NodePool& pool() noexcept { return pool_; }

 private:
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
  TaskNode* node = internal::CountedHead::node(word);
  TaskChain chain;
  chain.last = node;
  while (node != nullptr) {
    internal::prefetchForWrite(internal::guess(node, -internal::kNodesAhead));
    TaskNode* older = node->next();
    node->setNext(chain.first);
    chain.first = node;
    node = older;
  }
  return chain;
}

}  // namespace millrace
