// SPDX-License-Identifier: Apache-2.0
#include <millrace/concurrent/inbox.h>

namespace millrace {

using internal::CountedHead;

constinit thread_local NodeCache NodeCache::tls_;

// Clears the cache of a thread that ends. Kept apart from the cache so that using the cache needs no
// check whether it was constructed. Thread-locals that go later may still post: they get new nodes.
struct ClearAtThreadEnd {
  ~ClearAtThreadEnd() {
    NodeCache& cache = NodeCache::ofThread();
    cache.life_ = NodeCache::Life::ended;
    cache.clear();
  }
  void arm() noexcept {}
};

void NodePool::freeChain(TaskNode* first) noexcept {
  while (first != nullptr) {
    TaskNode* next = first->next();
    delete first;
    first = next;
  }
}

NodePool::~NodePool() { freeChain(CountedHead::node(head_.load(std::memory_order_acquire))); }

void NodePool::give(TaskChain chain, std::uint64_t count) noexcept {
  std::uint64_t seen = head_.load(std::memory_order_relaxed);
  std::uint64_t wanted = 0;
  do {
    if (CountedHead::count(seen) + count > kMaxNodes) {
      freeChain(chain.first);
      return;
    }
    chain.last->set(CountedHead::node(seen), TaskNode::user);
    wanted = CountedHead::pack(chain.first, CountedHead::count(seen) + count);
  } while (!head_.compare_exchange_weak(seen, wanted, std::memory_order_release,
                                        std::memory_order_relaxed));
}

TaskNode* NodeCache::refill(NodePool& pool) {
  if (life_ == Life::ended) return new TaskNode;
  if (life_ == Life::unknown) {
    life_ = Life::registered;
    static thread_local ClearAtThreadEnd atEnd;
    atEnd.arm();
  }
  kept_ = 0;
  TaskNode* chain = pool.takeAll();
  if (chain == nullptr) return new TaskNode;
  free_ = chain->next();
  return chain;
}

void NodeCache::clear() noexcept {
  NodePool::freeChain(free_);
  free_ = nullptr;
  kept_ = life_ == Life::registered ? 0 : kKept;
}

bool Inbox::remove(TaskNode* node) noexcept {
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
    for (TaskNode* each = rest.first; each != nullptr;) {
      TaskNode* next = each->next();
      if ((each->kind() & TaskNode::framework) == 0) users = CountedHead::plus(users, 1);
      each->setNext(top);
      top = each;
      each = next;
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
