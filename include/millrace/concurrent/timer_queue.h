// SPDX-License-Identifier: Apache-2.0
// TimerQueue: the timers of one loop, earliest first, first in first out among equals.
//
// A 4-ary heap of (deadline, timer). Cancelling does not search the heap: it marks the timer and frees
// what it holds; the dead entry is dropped when it comes to the top, or when more than half of the
// heap is dead and the heap is rebuilt without them, so memory stays within twice what lives. That
// makes cancel O(1) amortised and possible from any thread without a message to the loop.
//
// Threads: loop thread only, except where a line says "any thread". Nothing is allocated before the
// first timer. See docs/design/timers.md.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/base/ref.h>
#include <millrace/concurrent/future.h>
#include <millrace/concurrent/inbox.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace millrace {

class TimerPool;

/// One timer. Two cache lines: the task on its way, and what the queue needs to know. Counted by the
/// queue and by the ScheduledFuture handles.
class alignas(64) TimerNode final {
 public:
  enum class State : std::uint8_t { armed, running, done, cancelled };
  enum class Repeat : std::uint8_t { no, atFixedRate, withFixedDelay };

  /// The timer that a TaskNode belongs to. REQUIRES: the node is part of a timer.
  static TimerNode& of(TaskNode& node) noexcept { return reinterpret_cast<TimerNode&>(node); }

  /// Marks it cancelled and destroys its task; false if it has run, runs for the last time, or was
  /// cancelled before. After true it never starts (again). Any thread that holds a reference.
  MILLRACE_API bool cancel() noexcept;

  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  std::int64_t deadline() const noexcept { return deadline_.load(std::memory_order_relaxed); }
  Repeat repeat() const noexcept { return repeat_; }

  /// A future of the timer's end, made when first asked for. Any thread.
  MILLRACE_API Future<void> future(Executor& executor);

  void ref() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  MILLRACE_API void unref() noexcept;

  TaskNode& node() noexcept { return node_; }
  const Task& task() const noexcept { return node_.task; }

 private:
  friend class TimerQueue;
  friend class TimerPool;
  using FutureOfTimer = internal::ResultState<void>;

  TimerNode() noexcept = default;
  ~TimerNode();
  bool wonCancel() noexcept;
  void completeFuture(Result<void> result) noexcept;

  // The task, and the link while it waits to run. First: TaskNode and TimerNode share an address.
  TaskNode node_;

  Atomic<std::int64_t> deadline_{0};  // written by the loop only once it is armed
  std::uint64_t sequence_ = 0;        // order among equal deadlines
  std::int64_t period_ = 0;
  Atomic<FutureOfTimer*> future_{nullptr};  // holds a reference once made
  TimerPool* pool_ = nullptr;
  Atomic<std::uint32_t> refs_{1};
  Atomic<State> state_{State::armed};
  Repeat repeat_ = Repeat::no;
  bool fromHeap_ = false;   // made by another thread with plain new, not in a slab
  bool queued_ = false;     // in the queue's heap; loop thread
  bool uncounted_ = false;  // cancelled on the loop's thread while it was not queued; loop thread
};

class MILLRACE_API TimerQueue {
 public:
  /// The queue of `owner`, which outlives it.
  explicit TimerQueue(Executor& owner) noexcept;
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;
  ~TimerQueue();

  /// A timer, not yet armed. On the loop thread from the queue's pool, elsewhere from the heap.
  /// Any thread.
  Ref<TimerNode> make(std::int64_t deadline, std::int64_t period, TimerNode::Repeat repeat,
                      Task task);
  /// Arms `timer`; the queue takes a reference.
  void add(TimerNode& timer);
  /// Arms a timer whose reference for the queue was taken before.
  void adopt(TimerNode& timer) { arm(timer); }

  /// The earliest deadline, or WakeupWord::kNever's value if there is none.
  std::int64_t next() noexcept;
  /// Takes all timers due at `now` out, in order, as task nodes marked as timers, each with the
  /// queue's reference. They stay cancellable until run() gets them.
  TaskChain takeDue(std::int64_t now);
  /// Runs a timer that takeDue() gave out, unless it was cancelled; arms it again if it repeats.
  /// Gives the reference back. Returns whether it ran. What the task throws ends a repeating timer
  /// and fails its future; if nobody asked for that, it is logged.
  bool run(TimerNode& timer, const Clock& clock);
  /// Cancels everything that is armed; returns how many. Later adds are cancelled at once.
  std::size_t cancelAll() noexcept;

  /// Armed timers, without those cancelled. Those that takeDue() gave out do not count; one that
  /// another thread cancels before it is added, or after it was given out, may for a moment hide an
  /// Calls `fn(const TimerNode&)` for each armed timer, in no order.
  template <class F>
  void forEach(F&& fn) const {
    for (const Entry& entry : heap_) {
      if (entry.timer->state() != TimerNode::State::cancelled) fn(*entry.timer);
    }
  }
  /// armed one. Loop thread.
  std::size_t size() const noexcept;
  /// True if nothing is armed, not even something cancelled.
  bool isEmpty() const noexcept { return heap_.empty(); }

 private:
  friend class TimerPool;
  struct Entry {
    std::int64_t deadline;
    TimerNode* timer;
  };
  static bool earlier(const Entry& a, const Entry& b) noexcept {
    return a.deadline != b.deadline ? a.deadline < b.deadline
                                    : a.timer->sequence_ < b.timer->sequence_;
  }
  void siftUp(std::size_t at, Entry entry) noexcept;
  void siftDown(std::size_t at, Entry entry) noexcept;
  void popTop() noexcept;
  void arm(TimerNode& timer);
  void finish(TimerNode& timer, Error failure);
  void compact();
  void forgetCancelled(TimerNode& timer) noexcept;

  Executor& owner_;
  std::vector<Entry> heap_;
  std::uint64_t nextSequence_ = 0;
  bool closed_ = false;
  TimerPool* pool_;  // outlives the queue while handles hold timers of it
};

/// The handle of a scheduled task. Copies share one timer; dropping it changes nothing. Any thread.
class ScheduledFuture {
 public:
  ScheduledFuture() noexcept = default;
  ScheduledFuture(Ref<TimerNode> timer, Executor& executor) noexcept
      : timer_(std::move(timer)), executor_(&executor) {}

  bool valid() const noexcept { return static_cast<bool>(timer_); }
  /// True if the task will never start (again): if called on the loop, or before it was due.
  bool cancel() const noexcept { return timer_->cancel(); }
  bool isCancelled() const noexcept { return timer_->state() == TimerNode::State::cancelled; }
  bool isDone() const noexcept {
    const auto state = timer_->state();
    return state == TimerNode::State::done || state == TimerNode::State::cancelled;
  }
  /// When it runs (next), on the loop's clock.
  Deadline deadline() const noexcept { return Deadline::at(timer_->deadline()); }
  /// Time left until then, 0 if it is due.
  Duration delay(const Clock& clock = Clock::real()) const noexcept {
    return deadline().left(clock.nanos());
  }
  /// A future of its end: success after a single run, failure if the task threw, cancelled. A
  /// repeating task ends by the last two only. Not allocated before the first call. Keeps the loop
  /// alive. REQUIRES: the loop is alive, as for every call on a loop.
  Future<void> future() const { return timer_->future(*executor_); }

 private:
  Ref<TimerNode> timer_;
  Executor* executor_ = nullptr;
};

}  // namespace millrace
