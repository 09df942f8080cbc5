// SPDX-License-Identifier: Apache-2.0
// TimerPool: memory for the timers of one queue, in slabs of 2 MiB; a slab that is empty goes back.
//
//   slab: | header | task nodes, 64 bytes each | warm, 32 bytes each | hot, 4 bytes each |
//
// Hot is what a cancel touches: a million of them fit into a cache where whole timers do not.
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

/// What a cancel needs, in one word: references, state and what kind of timer it is. While the
/// memory is free, the word is the place of the next free timer in the slab, plus 1.
struct TimerNode::Hot {
  static constexpr std::uint32_t kState = 3;
  static constexpr std::uint32_t kHasFuture = 4;
  static constexpr std::uint32_t kRepeatShift = 3;
  static constexpr std::uint32_t kTrivialTask = 32;  // destroying the task does nothing
  static constexpr std::uint32_t kOneRef = 64;

  Atomic<std::uint32_t> word{0};

  std::uint32_t load() const noexcept { return word.load(std::memory_order_acquire); }
  static State stateOf(std::uint32_t word) noexcept { return static_cast<State>(word & kState); }
  static Repeat repeatOf(std::uint32_t word) noexcept {
    return static_cast<Repeat>((word >> kRepeatShift) & 3);
  }
};

struct TimerNode::Warm {
  Atomic<std::int64_t> deadline{0};  // written by the loop only, once it is armed
  std::uint64_t sequence = 0;        // order among equal deadlines
  std::int64_t period = 0;
  Atomic<FutureOfTimer*> future{
      nullptr};  // holds a reference; read by others once kHasFuture is set
};

/// The header of a slab.
struct TimerNode::Slab {
  TimerPool* pool = nullptr;
  std::size_t index = 0;         // in its list
  Slab* nextWithRoom = nullptr;  // a stack
  std::uint32_t free = 0;        // place plus 1
  std::uint32_t live = 0;
  std::uint32_t carved = 0;
  bool hasRoom = false;
  bool guest = false;

  static constexpr std::size_t kHeader = 64;
  static constexpr std::size_t kCount =
      (internal::kLargePage - kHeader) / (sizeof(TaskNode) + sizeof(Hot) + sizeof(Warm));
  static constexpr std::size_t kWarmAt = kHeader + kCount * sizeof(TaskNode);
  static constexpr std::size_t kHotAt = kWarmAt + kCount * sizeof(Warm);

  TimerNode* at(std::size_t place) noexcept {
    return reinterpret_cast<TimerNode*>(reinterpret_cast<std::byte*>(this) + kHeader +
                                        place * sizeof(TaskNode));
  }
};

/// Slabs without any locking.
class TimerSlabs {
 public:
  using Slab = TimerNode::Slab;

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
  /// The queue is gone. Deletes the pool now or with the last timer.
  void close() noexcept;

  /// A timer was cancelled. Any thread.
  void noteCancel() {
    if (isHome()) {
      queue_.noteCancel();
    } else {
      cancelsElsewhere_.fetch_add(1, std::memory_order_relaxed);
    }
  }
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
  const auto address = reinterpret_cast<std::uintptr_t>(this) & ~(internal::kLargePage - 1);
  return *reinterpret_cast<Slab*>(address);  // NOLINT: slabs are aligned to their size
}
inline std::size_t TimerNode::index() const noexcept {
  const auto offset = reinterpret_cast<std::uintptr_t>(this) & (internal::kLargePage - 1);
  return (offset - Slab::kHeader) / sizeof(TaskNode);
}
inline TimerNode::Hot& TimerNode::hot() const noexcept {
  auto* base = reinterpret_cast<std::byte*>(&slab()) + Slab::kHotAt;
  return reinterpret_cast<Hot*>(base)[index()];
}
inline TimerNode::Warm& TimerNode::warm() const noexcept {
  auto* base = reinterpret_cast<std::byte*>(&slab()) + Slab::kWarmAt;
  return reinterpret_cast<Warm*>(base)[index()];
}

}  // namespace millrace
