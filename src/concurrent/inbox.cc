// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>
#include <millrace/concurrent/inbox.h>

#include <new>
#include <utility>

namespace millrace {

using internal::CountedHead;

constinit thread_local NodeCache NodeCache::tls_;

// Clears the cache of a thread that ends. Kept apart from the cache so that using the cache needs
// no check whether it was constructed.
struct ClearAtThreadEnd {
  ~ClearAtThreadEnd() {
    NodeCache& cache = NodeCache::ofThread();
    cache.ended_ = true;
    cache.clear();
  }
  void arm() noexcept {}
};

namespace {

NodeSlab* slabOf(std::uint64_t word) noexcept {
  return reinterpret_cast<NodeSlab*>(CountedHead::node(word));
}

void deleteAll(NodeSlab* first) noexcept {
  while (first != nullptr) {
    NodeSlab* next = first->next.read();
    NodeSlab::free(first);
    first = next;
  }
}

}  // namespace

NodeSlab* NodeSlab::make() noexcept { return new (std::nothrow) NodeSlab; }

void NodeSlab::free(NodeSlab* slab) noexcept {
#if defined(MILLRACE_EXPLORE)
  delete slab;  // its words are the explorer's
#else
  ::operator delete (slab, std::align_val_t{alignof(NodeSlab)});
#endif
}

NodePool::~NodePool() { deleteAll(takeAll()); }

void NodePool::give(NodeSlab& slab) noexcept {
  slab.finished.store(0, std::memory_order_relaxed);
  // Release: who takes it may write to the nodes. Acquire: we write to the one before.
  NodeSlab* older = last_.exchange(&slab, std::memory_order_acq_rel);
  if (older == nullptr) return;
  std::uint64_t seen = head_.load(std::memory_order_relaxed);
  std::uint64_t wanted = 0;
  do {
    if (CountedHead::count(seen) >= kMaxSlabs - 1) {
      NodeSlab::free(older);
      return;
    }
    older->next.write() = slabOf(seen);
    wanted = CountedHead::pack(reinterpret_cast<TaskNode*>(older), CountedHead::count(seen) + 1);
  } while (!head_.compare_exchange_weak(seen, wanted, std::memory_order_release,
                                        std::memory_order_relaxed));
}

NodeSlab* NodePool::takeAll() noexcept {
  NodeSlab* last = takeLast();
  NodeSlab* others = head_.load(std::memory_order_relaxed) == 0
                         ? nullptr
                         : slabOf(head_.exchange(0, std::memory_order_acquire));
  if (last == nullptr) return others;
  last->next.write() = others;
  return last;
}

void NodeCache::refill(NodePool& pool) noexcept {
  if (!registered_) {
    registered_ = true;
    static thread_local ClearAtThreadEnd atEnd;
    atEnd.arm();
  }
  NodeSlab* slab = std::exchange(upcoming_, nullptr);
  if (slab == nullptr) slab = usedOne(pool);
  if (slab == nullptr) {
    slab = NodeSlab::make();
    MR_CHECK(slab != nullptr, "out of memory for tasks");
  }
  endRun();  // a slab that comes back has the same addresses
  next_ = slab->nodes;
  // After the end of the thread's cache nothing may stay behind: one node, the others are finished.
  end_ = next_ + (ended_ ? 1 : NodeSlab::kNodes);
  if (ended_) slab->finish(NodeSlab::kNodes - 1);
}

void NodeCache::unget(TaskNode* node) noexcept {
  if (node + 1 == next_) {
    next_ = node;
  } else if (NodeSlab& slab = NodeSlab::of(node); slab.finish(1)) {
    NodeSlab::free(&slab);
  }
  if (ended_) clear();
}

void NodeCache::clear() noexcept {
  if (next_ != end_) {
    NodeSlab& slab = NodeSlab::of(next_);
    if (slab.finish(static_cast<std::uint32_t>(end_ - next_))) NodeSlab::free(&slab);
  }
  next_ = end_ = nullptr;
  if (upcoming_ != nullptr) NodeSlab::free(std::exchange(upcoming_, nullptr));
  deleteAll(std::exchange(spare_, nullptr));
}

bool Inbox::remove(TaskNode* node) noexcept {
  NodeCache::ofThread().endRun();  // the nodes of other threads keep their order, ours do not
  bool found = false;
  TaskChain rest;
  // What others push while we hold the rest is newer, so it goes behind: take again until the stack
  // was empty at the moment of the put-back.
  for (;;) {
    TaskChain newer = take().chain;
    while (TaskNode* each = newer.popFront()) {
      if (each == node) {
        found = true;
      } else {
        rest.append(each);
      }
    }
    if (rest.empty()) return found;
    // Back into stack order, with the count of user tasks.
    std::uint64_t users = 0;
    TaskNode* top = nullptr;
    while (TaskNode* each = rest.popFront()) {
      if ((each->kind() & TaskNode::framework) == 0) users = CountedHead::plus(users, 1);
      each->setNext(top);
      top = each;
    }
    std::uint64_t empty = 0;
    if (head_.compare_exchange_strong(empty, CountedHead::pack(top, users),
                                      std::memory_order_seq_cst, std::memory_order_relaxed)) {
      return found;
    }
    rest = reversed(CountedHead::pack(top, 0));  // somebody pushed: collect it and try again
  }
}

}  // namespace millrace
