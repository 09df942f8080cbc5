// SPDX-License-Identifier: Apache-2.0
// TimerQueue: the timers of one loop, earliest first, first in first out among equals.
//
// A 4-ary heap of (deadline, timer). Cancelling does not search the heap: it marks the timer and
// frees what it holds; the dead entry is dropped when it comes to the top, or when there were so
// many cancels that three quarters of the heap may be dead and the heap is rebuilt without them, so
// memory stays within four times what lives. That makes cancel O(1) amortised, and possible from
// any thread without a message to the loop.
//
// Threads: loop thread only, except where a line says "any thread". Nothing is allocated before the
// first timer. See docs/design/timers.md.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/base/large_memory.h>
#include <millrace/base/ref.h>
#include <millrace/concurrent/future.h>
#include <millrace/concurrent/inbox.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

class TimerPool;

/// One timer, held by the queue and by the ScheduledFuture handles. The object is the task and its
/// link; the rest stands in arrays of its slab, so that a cancel touches one byte.
class MILLRACE_API TimerNode final {
 public:
  enum class State : std::uint8_t { armed, running, done, cancelled };
  enum class Repeat : std::uint8_t { no, atFixedRate, withFixedDelay };

  /// The timer that a TaskNode belongs to. REQUIRES: the node is part of a timer.
  static TimerNode& of(TaskNode& node) noexcept { return reinterpret_cast<TimerNode&>(node); }

  /// Marks it cancelled and destroys its task; false if it has run, runs for the last time, or was
  /// cancelled before. After true it never starts (again). Any thread that holds a reference.
  bool cancel() noexcept;

  State state() const noexcept;
  std::int64_t deadline() const noexcept;
  Repeat repeat() const noexcept;
  /// A future of the timer's end, made when first asked for; completes on the queue's owner. Any
  /// thread.
  Future<void> future();

  /// A handle more, a handle less. Any thread.
  void ref() noexcept;
  void unref() noexcept;
  /// Gives back the queue's reference. On the queue's thread, or where nobody else knows the timer.
  void unrefQueued() noexcept;

  TaskNode& node() noexcept { return node_; }
  const Task& task() const noexcept { return node_.task; }

 private:
  friend class TimerQueue;
  friend class TimerPool;
  friend class TimerSlabs;
  using FutureOfTimer = internal::ResultState<void>;
  struct Slab;
  struct Hot;
  struct Warm;
  struct Cold;

  Slab& slab() const noexcept;
  std::size_t index() const noexcept;
  Hot& hot() const noexcept;
  Warm& warm() const noexcept;
  Cold& cold() const noexcept;
  Atomic<std::uint32_t>& copies() const noexcept;
  bool isCancelled() const noexcept;
  std::uint8_t moveState(State from, State to) noexcept;
  std::uint8_t wonCancel() noexcept;
  bool cancelAnyKind() noexcept;
  void unrefAnyKind(std::uint8_t seen) noexcept;
  void dropTask(std::uint8_t word) noexcept;
  void release(std::uint8_t word) noexcept;
  void dropParts(std::uint8_t word) noexcept;
  void completeFuture(Result<void> result) noexcept;

  TaskNode node_;
};

class MILLRACE_API TimerQueue {
 public:
  /// The queue of `owner`, which outlives it.
  explicit TimerQueue(Executor& owner);
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;
  ~TimerQueue();

  /// A timer, not yet armed. Any thread. With two references one is the queue's, for adopt().
  /// REQUIRES: `period` > 0 if it repeats.
  Ref<TimerNode> make(std::int64_t deadline, std::int64_t period, TimerNode::Repeat repeat,
                      Task&& task, std::uint32_t references = 1);
  /// Arms `timer`, made with one reference; the queue takes another.
  void add(TimerNode& timer) noexcept;
  /// Arms a timer that was made with the queue's reference.
  void adopt(TimerNode& timer) noexcept { arm(timer); }

  /// The earliest deadline, or WakeupWord::kNever's value if there is none.
  std::int64_t next() noexcept;
  /// Takes all timers due at `now` out, in order, as task nodes marked as timers, each with the
  /// queue's reference. They stay cancellable until run() gets them.
  TaskChain takeDue(std::int64_t now);
  /// Runs a timer that takeDue() gave out, unless it was cancelled; arms it again if it repeats.
  /// Gives the reference back. Returns whether it ran. What the task throws ends a repeating timer
  /// and fails its future; if nobody asked for that, it is logged.
  bool run(TimerNode& timer, const Clock& clock);
  /// Cancels everything that is armed; returns how many. Later adds are cancelled at once, and
  /// counted by the next call.
  std::size_t cancelAll() noexcept;

  /// True if nothing is armed, not even something cancelled.
  bool isEmpty() const noexcept { return heap_.empty(); }
  /// Calls `fn(const TimerNode&)` for each armed timer, in no order.
  template <class F>
  void forEach(F&& fn) const {
    for (const Entry& entry : heap_) {
      if (entry.timer->state() != TimerNode::State::cancelled) fn(*entry.timer);
    }
  }
  /// Armed timers, without those cancelled. Counts them.
  std::size_t size() const noexcept;
  /// Entries in the heap, with those cancelled and not yet dropped.
  std::size_t entries() const noexcept { return heap_.size(); }

 private:
  friend class TimerPool;
  struct Entry {
    std::int64_t deadline;
    TimerNode* timer;
  };
  static bool earlier(const Entry& a, const Entry& b) noexcept;
  static bool armedBefore(const TimerNode& a, const TimerNode& b) noexcept;
  void makeRoom() noexcept;
  void arm(TimerNode& timer) noexcept;
  void siftUp(std::size_t at, Entry entry) noexcept;
  void siftDown(std::size_t at, Entry entry) noexcept;
  void popTop() noexcept;
  void finish(TimerNode& timer, Error failure);
  void noteCancel() noexcept {
    if (++cancels_ > fewCancels_) compactIfWorthIt();
  }
  void compactIfWorthIt() noexcept;
  void compact() noexcept;
  void dropDead(std::vector<Entry, internal::LargeAllocator<Entry>>& entries) noexcept;

  static constexpr std::size_t kWorthCompacting = 64;

  Executor& owner_;
  std::vector<Entry, internal::LargeAllocator<Entry>> heap_;
  std::uint64_t nextSequence_ = 0;
  std::size_t cancels_ = 0;     // on the loop's thread since the last compaction
  std::size_t fewCancels_ = 0;  // so many are not worth a look at the heap
  bool closed_ = false;
  std::size_t refused_ = 0;  // cancelled on arrival since closed
  TimerPool* pool_;          // outlives the queue while handles hold timers of it
};

}  // namespace millrace
