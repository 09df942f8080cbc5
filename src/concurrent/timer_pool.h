// SPDX-License-Identifier: Apache-2.0
// TimerPool: memory for the timers of one queue, in slabs; a slab that is empty goes back.
//
// Threads: the loop's thread, except where a line says "any thread". What other threads release comes
// home through a lock-free stack (push and take whole). A pool outlives its queue until the last timer
// that a handle holds is gone.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/concurrent/timer_queue.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

class TimerPool {
 public:
  TimerPool(TimerQueue& queue, const Executor& owner) noexcept : queue_(queue), owner_(&owner) {}
  TimerPool(const TimerPool&) = delete;
  TimerPool& operator=(const TimerPool&) = delete;

  /// True on the thread of the loop that owns the queue. Any thread.
  bool isHome() const noexcept { return internal::tlsCurrentExecutor == owner_; }

  /// A new timer, on its home thread from a slab, elsewhere from the heap. Any thread.
  TimerNode* make();
  /// The end of a timer. Any thread.
  void destroy(TimerNode* timer) noexcept;
  /// The queue is gone. Deletes the pool now or with the last timer.
  void close() noexcept;

  /// `timer` was cancelled and its queue still holds it. Any thread.
  void countDead(TimerNode& timer) noexcept;
  /// The queue drops a cancelled timer.
  void forgetDead(const TimerNode& timer) noexcept {
    if (!timer.uncounted_) --deadHere_;
  }
  /// Cancelled timers in the queue. The queue may drop one before the thread that cancelled it has
  /// counted it, so the sum may be negative for a moment.
  std::size_t dead() const noexcept {
    const std::int64_t sum = deadHere_ + deadElsewhere_.load(std::memory_order_relaxed);
    return sum > 0 ? static_cast<std::size_t>(sum) : 0;
  }

 private:
  static constexpr std::size_t kSlabBytes = std::size_t{1} << 18;
  static constexpr std::int64_t kOpenBias = std::int64_t{1} << 40;

  struct Free {
    Free* next;
  };
  struct Slab {
    std::size_t index = 0;         // in slabs_
    Slab* nextWithRoom = nullptr;  // a stack; a slab that is freed is first on it
    bool hasRoom = false;
    Free* free = nullptr;
    std::uint32_t live = 0;
    std::uint32_t carved = 0;
  };
  static constexpr std::size_t kHeader = 64;
  static constexpr std::size_t kPerSlab = (kSlabBytes - kHeader) / sizeof(TimerNode);
  static_assert(sizeof(Slab) <= kHeader);

  ~TimerPool();
  void* allocate();
  Slab* slabWithRoom();
  void releaseHere(void* memory) noexcept;
  void drainReturned() noexcept;
  void leave(std::int64_t count) noexcept;

  TimerQueue& queue_;
  const Executor* const owner_;  // only compared, never used
  // Loop thread.
  std::vector<Slab*> slabs_;
  Slab* room_ = nullptr;
  std::size_t emptySlabs_ = 0;
  std::int64_t live_ = 0;
  std::int64_t deadHere_ = 0;
  // Shared.
  Atomic<std::int64_t> deadElsewhere_{0};
  Atomic<Free*> returned_{nullptr};  // null, a stack, or closedMark()
  // While open: the bias, plus timers from the heap. After close(): timers still alive. Whoever
  // brings it to 0 deletes the pool.
  Atomic<std::int64_t> outstanding_{kOpenBias};
};

}  // namespace millrace
