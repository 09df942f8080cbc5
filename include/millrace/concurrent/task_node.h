// SPDX-License-Identifier: Apache-2.0
// TaskNode: what a task lies in on its way to a loop, and TaskChain: nodes in the order they are to
// run. How they travel: inbox.h.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/task.h>

#include <cstdint>
#include <new>
#include <utility>

namespace millrace {

/// A task on its way. One cache line; its link holds the next node's address, in the low bits its
/// kind and in the high ones a run (see inbox.h).
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

/// How many nodes ahead is early enough, and fewer than a slab has.
#if defined(MILLRACE_EXPLORE)
inline constexpr std::uint32_t kNodesAhead = 2;
#else
inline constexpr std::uint32_t kNodesAhead = 8;
#endif

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

}  // namespace millrace
