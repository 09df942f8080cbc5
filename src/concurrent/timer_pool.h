// SPDX-License-Identifier: Apache-2.0
// TimerPool: memory for the timers of one queue, in slabs of 2 MiB; a slab that is empty goes back.
//
//   slab: | header | free places, a bit each | hot, 1 byte each | task nodes, 64 bytes each |
//         | warm, 16 bytes each | cold, 16 bytes each | copies, 4 bytes each |
//
// Hot is what a cancel touches: a million of them fit into a core's own cache, where whole timers
// do not. Warm is written for each timer; cold and copies for few, who leave them as they were.
//
// Slabs begin at different distances from their 2 MiB boundary. If all began there, their headers
// and their hot bytes would compete for the same few sets of the cache.
//
// Threads: timers made by the loop live in slabs of the loop, without locks; what other threads
// release of them comes home through a lock-free stack (push and take whole). Timers made by other
// threads live in guest slabs under a lock. A pool outlives its queue until the last timer that a
// handle holds is gone.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/concurrent/timer_queue.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace millrace {

/// What a cancel needs, in one byte: who holds the timer, its state and what kind it is.
struct TimerNode::Hot {
  static constexpr std::uint8_t kState = 3;
  static constexpr std::uint8_t kHasFuture = 4;
  static constexpr std::uint8_t kRepeats = 8;
  static constexpr std::uint8_t kTrivialTask = 16;  // destroying the task does nothing
  static constexpr std::uint8_t kQueued = 32;       // the queue's reference
  static constexpr std::uint8_t kHandle = 64;       // there are handles
  static constexpr std::uint8_t kCopied = 128;      // there was more than one: see copies()

  Atomic<std::uint8_t> word{0};

  std::uint8_t load() const noexcept { return word.load(std::memory_order_acquire); }
  static State stateOf(std::uint8_t word) noexcept { return static_cast<State>(word & kState); }
};

struct TimerNode::Warm {
  Atomic<std::int64_t> deadline{0};  // written by the loop only, once it is armed
  std::uint64_t sequence = 0;        // order among equal deadlines
};

struct TimerNode::Cold {
  Atomic<FutureOfTimer*> future{
      nullptr};             // holds a reference; read by others once kHasFuture is set
  std::int64_t period = 0;  // negative: with fixed delay; set if kRepeats
};

/// The header of a slab.
struct TimerNode::Slab {
  TimerPool* pool = nullptr;
  const Executor* owner = nullptr;  // the pool's
  std::size_t index = 0;            // in its list
  Slab* nextWithRoom = nullptr;     // a stack
  std::uint32_t freeGroup = 0;      // a stack of groups with free places; plus 1
  std::uint32_t live = 0;
  std::uint32_t carved = 0;
  bool hasRoom = false;
  bool guest = false;

  static constexpr std::size_t kColours = 8;  // different beginnings of slabs, so far apart:
  static constexpr std::size_t kColourBytes = 8192;
  static constexpr std::size_t kGroup = 64;  // places that share a word of free bits
  static constexpr std::size_t kGroupBytes =
      sizeof(std::uint64_t) + sizeof(std::uint16_t) +
      kGroup * (sizeof(Hot) + sizeof(TaskNode) + sizeof(Warm) + sizeof(Cold) +
                sizeof(Atomic<std::uint32_t>));
  static constexpr std::size_t kHeader = 64;
  static constexpr std::size_t kGroups =
      (internal::kLargePage - (kColours - 1) * kColourBytes - kHeader - alignof(TaskNode)) /
      kGroupBytes;
  static constexpr std::size_t kCount = kGroups * kGroup;
  static constexpr std::size_t kFreeBitsAt = kHeader;
  static constexpr std::size_t kNextGroupAt = kFreeBitsAt + kGroups * sizeof(std::uint64_t);
  static constexpr std::size_t kHotAt = kNextGroupAt + kGroups * sizeof(std::uint16_t);
  static constexpr std::size_t kNodesAt =
      (kHotAt + kCount * sizeof(Hot) + alignof(TaskNode) - 1) & ~(alignof(TaskNode) - 1);
  static constexpr std::size_t kWarmAt = kNodesAt + kCount * sizeof(TaskNode);
  static constexpr std::size_t kColdAt = kWarmAt + kCount * sizeof(Warm);
  static constexpr std::size_t kCopiesAt = kColdAt + kCount * sizeof(Cold);

  /// Where the slab in the page around `address` begins.
  static std::byte* around(const void* address) noexcept {
    const auto page = reinterpret_cast<std::uintptr_t>(address) & ~(internal::kLargePage - 1);
    const std::size_t colour = page / internal::kLargePage % kColours;
    return reinterpret_cast<std::byte*>(page + colour * kColourBytes);  // NOLINT
  }
  void* page() noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    return reinterpret_cast<void*>(address & ~(internal::kLargePage - 1));  // NOLINT
  }
  /// True on the thread of the loop that owns the queue. Any thread.
  bool isHome() const noexcept { return internal::tlsCurrentExecutor == owner; }
  template <class T>
  T* array(std::size_t offset) noexcept {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(this) + offset);
  }

  /// A timer of the slab was cancelled. Any thread.
  void noteCancel() const noexcept;
  /// A free place. REQUIRES: there is one.
  TimerNode* take() noexcept;
  void giveBack(std::size_t place) noexcept;
};

/// Slabs without any locking.
class TimerSlabs {
 public:
  using Slab = TimerNode::Slab;
  static_assert(sizeof(Slab) <= Slab::kHeader);

  TimerSlabs(TimerPool& pool, bool guest) noexcept : pool_(pool), guest_(guest) {}
  ~TimerSlabs();

  TimerNode* allocate();
  void release(TimerNode* timer) noexcept;
  bool hasRoom() const noexcept { return room_ != nullptr; }
  std::int64_t live() const noexcept { return live_; }

 private:
  Slab* newSlab();
  void dropEmptySlabs() noexcept;

  TimerPool& pool_;
  const bool guest_;
  std::vector<Slab*> slabs_;
  Slab* room_ = nullptr;
  std::size_t emptySlabs_ = 0;
  std::int64_t live_ = 0;
};

class TimerPool {
 public:
  TimerPool(TimerQueue& queue, Executor& owner) noexcept : queue_(queue), owner_(owner) {}
  TimerPool(const TimerPool&) = delete;
  TimerPool& operator=(const TimerPool&) = delete;

  /// True on the thread of the loop that owns the queue. Any thread.
  bool isHome() const noexcept { return internal::tlsCurrentExecutor == &owner_; }
  Executor& owner() const noexcept { return owner_; }

  /// Memory for a timer, from the loop's slabs on its thread, from the guests' elsewhere. Any
  /// thread.
  TimerNode* allocate();
  /// The memory of a timer that holds nothing any more. Any thread.
  void release(TimerNode* timer) noexcept;
  /// The same on the loop's thread.
  void releaseAtHome(TimerNode* timer) noexcept;
  /// The queue is gone. Deletes the pool now or with the last timer.
  void close() noexcept;

  /// A timer was cancelled: at home, or elsewhere.
  void noteCancelAtHome() noexcept { queue_.noteCancel(); }
  void noteCancelElsewhere() noexcept { cancelsElsewhere_.fetch_add(1, std::memory_order_relaxed); }
  /// Cancels on other threads since the last call.
  std::size_t takeCancelsElsewhere() noexcept {
    if (cancelsElsewhere_.load(std::memory_order_relaxed) == 0) return 0;
    return cancelsElsewhere_.exchange(0, std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t kOpenBias = std::int64_t{1} << 40;

  ~TimerPool() = default;
  static TimerNode* nextReturned(TimerNode* timer) noexcept;
  void drainReturned() noexcept;
  void leave(std::int64_t count) noexcept;

  TimerQueue& queue_;  // used on the loop's thread only
  Executor& owner_;    // elsewhere only compared, or used while the caller keeps it alive
  TimerSlabs home_{*this, false};
  Atomic<std::size_t> cancelsElsewhere_{0};
  Atomic<TimerNode*> returned_{nullptr};  // null, a stack, or closedMark()
  // While open: the bias. After close(): timers still alive. Whoever brings it to 0 deletes the
  // pool.
  Atomic<std::int64_t> outstanding_{kOpenBias};
  Mutex guestMutex_;
  TimerSlabs guests_{*this, true};  // guarded by guestMutex_
  bool guestsClosed_ = false;       // guarded by guestMutex_
};

// --- where the parts of a timer are ---

inline TimerNode::Slab& TimerNode::slab() const noexcept {
  return *reinterpret_cast<Slab*>(Slab::around(this));
}
inline void TimerNode::Slab::noteCancel() const noexcept {
  if (isHome()) {
    pool->noteCancelAtHome();
  } else {
    pool->noteCancelElsewhere();
  }
}
inline std::size_t TimerNode::index() const noexcept {
  static_assert(Slab::kNodesAt % sizeof(TaskNode) == 0);
  const auto offset =
      reinterpret_cast<std::uintptr_t>(this) - reinterpret_cast<std::uintptr_t>(&slab());
  return offset / sizeof(TaskNode) - Slab::kNodesAt / sizeof(TaskNode);
}
inline TimerNode::Hot& TimerNode::hot() const noexcept {
  return slab().array<Hot>(Slab::kHotAt)[index()];
}
inline TimerNode::Warm& TimerNode::warm() const noexcept {
  return slab().array<Warm>(Slab::kWarmAt)[index()];
}
inline TimerNode::Cold& TimerNode::cold() const noexcept {
  return slab().array<Cold>(Slab::kColdAt)[index()];
}
/// Handles beyond the first.
inline Atomic<std::uint32_t>& TimerNode::copies() const noexcept {
  return slab().array<Atomic<std::uint32_t>>(Slab::kCopiesAt)[index()];
}

inline bool TimerNode::isCancelled() const noexcept {
  return Hot::stateOf(hot().load()) == State::cancelled;
}
inline void TimerNode::dropTask(std::uint8_t word) noexcept {
  if ((word & Hot::kTrivialTask) == 0) node_.task.reset();
}

}  // namespace millrace
