// SPDX-License-Identifier: Apache-2.0
// Where the nodes of tasks come from and where they go.
//
// They lie side by side in slabs of one page that are used in order and recycled whole. In the
// steady state a post allocates nothing, and both sides can fetch the next nodes into their cache
// before they need them: a list whose nodes lie anywhere costs each side a cache miss per task.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/export.h>
#include <millrace/concurrent/task_node.h>

#include <cstddef>
#include <cstdint>

namespace millrace {

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

/// Where the used slabs of one inbox wait for producers: a place for the last one, and behind it a
/// stack, pushed to and taken whole.
///
/// Why the place: producers that reuse the last slab first need few of them, and those stay in the
/// nearest caches. With the stack alone, what one backlog has needed would go round for ever.
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
  /// The last one given, if it is still there; its `next` means nothing. Any thread.
  NodeSlab* takeLast() noexcept {
    if (last_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    // Acquire: who gave it has finished with its nodes.
    return last_.exchange(nullptr, std::memory_order_acquire);
  }
  /// All that is there, the last one given first; null if nothing is. Any thread.
  MILLRACE_API NodeSlab* takeAll() noexcept;

 private:
  Atomic<NodeSlab*> last_{nullptr};
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
    if (ahead == end_ && upcoming_ == nullptr) upcoming_ = usedOne(pool);
    return upcoming_ == nullptr ? next_ : upcoming_->nodes + (ahead - end_);
  }
  // A slab that was used before, the last one given if possible; null if there is none.
  NodeSlab* usedOne(NodePool& pool) noexcept {
    if (ended_) return nullptr;
    if (NodeSlab* last = pool.takeLast()) return last;
    // Not before all that were taken are used: a thread must not hoard what others need.
    if (spare_ == nullptr) spare_ = pool.takeAll();
    NodeSlab* slab = spare_;
    if (slab != nullptr) spare_ = slab->next.read();
    return slab;
  }

  TaskNode* next_ = nullptr;
  TaskNode* end_ = nullptr;
  NodeSlab* upcoming_ = nullptr;  // comes behind the slab at hand
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
    if (node == slab->nodes + NodeSlab::kNodes - 1) flush(pool);  // wanted: its lines are near
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

}  // namespace millrace
