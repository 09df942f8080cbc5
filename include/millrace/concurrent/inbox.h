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
//
// Runs: a producer that finds its own previous node on top, right before the new one in memory,
// notes in the new one how many nodes it follows in this way. The loop then reverses the stack run
// by run instead of node by node, and comes to each node once, when it runs it.
//
//   head -> [n5 run 2] [n4] [n3 run 0] -> [m9 run 1] [m8] -> null     two steps instead of five
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/export.h>
#include <millrace/base/task.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>

namespace millrace {

/// A task on its way. One cache line; its link holds the next node's address, in the low bits its
/// kind and in the high ones a run (see the top of this file).
struct alignas(64) TaskNode {
  enum Kind : std::uintptr_t {
    user = 0,       ///< a user's task: counts against the capacity and in pendingTasks()
    framework = 1,  ///< our own: always accepted until the inbox closes, counted nowhere
    borrowed = 2,   ///< bit: memory belongs to somebody else, not recycled after its run
    timer = 4,      ///< bit: part of a timer, see TimerNode
    arm = 8,        ///< bit: a timer that wants to be armed
    tail = 16,      ///< bit: to run at the end of the turn
    probe = 32,     ///< bit: only measures, nobody's task
  };
  static constexpr std::uintptr_t kKindBits = 63;
  static constexpr unsigned kRunShift = 48;  // user addresses have at most 48 bits
  static constexpr std::uintptr_t kAddressBits =
      ((std::uintptr_t{1} << kRunShift) - 1) & ~kKindBits;

  TaskNode* next() const noexcept {
    return reinterpret_cast<TaskNode*>(link.read() & kAddressBits);  // NOLINT: a tagged pointer
  }
  std::uintptr_t kind() const noexcept { return link.read() & kKindBits; }
  /// In the stack: how many nodes right before this one in memory come next. In a chain: how many
  /// right behind next() in memory follow it.
  std::uint32_t run() const noexcept {
    return static_cast<std::uint32_t>(link.read() >> kRunShift);
  }
  void setNext(TaskNode* node, std::uint32_t run = 0) noexcept { set(node, kind(), run); }
  void set(TaskNode* node, std::uintptr_t kinds, std::uint32_t run = 0) noexcept {
    link.write() = reinterpret_cast<std::uintptr_t>(node) | kinds |
                   (static_cast<std::uintptr_t>(run) << kRunShift);
  }

  /// Puts a task in, over one that has nothing to destroy. Without looking at what was there: the
  /// line of a node that comes back from a loop is still on its way.
  void fill(Task&& made) noexcept { ::new (static_cast<void*>(&task)) Task(std::move(made)); }

  Plain<std::uintptr_t> link{0};
  Task task;
};

/// Tasks in the order they are to run. Loop thread only; does not own its nodes.
struct TaskChain {
  TaskNode* first = nullptr;
  TaskNode* last = nullptr;
  std::uint32_t run = 0;  // nodes right behind `first` in memory that follow it

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
      run = chain.run;
    } else {
      last->setNext(chain.first, chain.run);
    }
    last = chain.last;
  }
  /// The node `count` places behind `first`, if the run there is long enough; some other node if
  /// not. For prefetching. REQUIRES: not empty.
  const TaskNode* ahead(std::uint32_t count) const noexcept {
    if (count <= run) return first + count;
    const TaskNode* end = first + run;
    const TaskNode* next = end->next();
    return next == nullptr ? end : next + (count - run - 1);
  }
  TaskNode* popFront() noexcept {
    TaskNode* node = first;
    if (node == nullptr) return nullptr;
    if (run != 0) {
      --run;
      first = node + 1;
      return node;
    }
    first = node->next();
    run = node->run();
    if (first == nullptr) last = nullptr;
    return node;
  }
};

namespace internal {

/// Fetches the line of `node` for writing. Any address will do: nothing happens if it is no memory.
/// Both sides do this: the loop writes to each node it has run, see NodeReturn::add.
inline void prefetchForWrite(const TaskNode* node) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*reinterpret_cast<const char*>(node)));
#else
  __builtin_prefetch(node, 1);
#endif
}

/// How many nodes ahead is early enough.
inline constexpr std::uint32_t kNodesAhead = 8;

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

  /// Null if there is no memory.
  static NodeSlab* make() noexcept;
  /// Frees it without destroying the tasks inside, which are empty or trivial: the table of a trivial
  /// one may be gone with the library that posted it.
  MILLRACE_API static void free(NodeSlab* slab) noexcept;
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

  /// A node whose task is empty or trivial: the next one of the slab at hand, of a used one from
  /// `pool`, or new.
  TaskNode* get(NodePool& pool) noexcept {
    if (__builtin_expect(next_ == end_, 0)) refill(pool);
    const TaskNode* ahead = next_ + internal::kNodesAhead;
    internal::prefetchForWrite(ahead < end_ ? ahead : ofNextSlab(ahead, pool));
    return next_++;
  }
  /// Puts back a node that get() gave to this thread and that was not used. Other nodes may have
  /// been given meanwhile: destroying a refused task runs user code, which may post.
  MILLRACE_API void unget(TaskNode* node) noexcept;
  /// Lets go of everything.
  MILLRACE_API void clear() noexcept;
  /// The next push begins a run: a node that was pushed is not where it was any more.
  void endRun() noexcept { pushed_ = nullptr; }

 private:
  friend struct ClearAtThreadEnd;
  friend class Inbox;
  MILLRACE_API void refill(NodePool& pool) noexcept;
  // What comes where `ahead` would be if the slab at hand were longer. Asks the pool before the
  // slab is used up, so that the lines of the next one are there in time.
  const TaskNode* ofNextSlab(const TaskNode* ahead, NodePool& pool) noexcept {
    if (ahead == end_ && spare_ == nullptr && !ended_) spare_ = pool.takeAll();
    return spare_ == nullptr ? next_ : spare_->nodes + (ahead - end_);
  }

  TaskNode* next_ = nullptr;
  TaskNode* end_ = nullptr;
  NodeSlab* spare_ = nullptr;
  TaskNode* pushed_ = nullptr;  // the last one of this thread, only to be compared
  std::uint32_t run_ = 0;       // its run
  bool registered_ = false;     // the thread's end will clear()
  bool ended_ = false;          // it has; thread-locals that go later still get nodes, one by one

  // Initial-exec: one instruction instead of a call, also in the shared library.
  [[gnu::tls_model("initial-exec")]] MILLRACE_API static constinit thread_local NodeCache tls_;
};

/// Counts the nodes that a loop has run, slab by slab. Loop thread.
class NodeReturn {
 public:
  /// `node` has run and its task is empty or trivial.
  void add(TaskNode* node, NodePool& pool) noexcept {
    NodeSlab* slab = &NodeSlab::of(node);
    if (__builtin_expect(slab != slab_, 0)) {
      flush(pool);
      slab_ = slab;
    }
    ++count_;
    // Written so that its line is the loop's alone when the producer wants it back. A line that both
    // have is dear: prefetchw does nothing for it on AMD's processors (it is in the cache already),
    // and the compare-exchange behind the producer's first store waits until the loop has let go.
    node->link.write() = 0;
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
  Taken takeOpen() noexcept { return taken(head_.exchange(0, std::memory_order_acq_rel)); }
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
