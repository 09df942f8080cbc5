// SPDX-License-Identifier: Apache-2.0
#include "concurrent/timer_pool.h"

#include <millrace/base/log.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/concurrent/timer_queue.h>

#include <limits>
#include <utility>

namespace millrace {

namespace {

constexpr std::size_t kArity = 4;

Error cancelledTimer() { return {Errc::cancelled, "timer"}; }

}  // namespace

// --- TimerNode ---

TimerNode::State TimerNode::state() const noexcept { return Hot::stateOf(hot().load()); }
TimerNode::Repeat TimerNode::repeat() const noexcept { return Hot::repeatOf(hot().load()); }
std::int64_t TimerNode::deadline() const noexcept {
  return warm().deadline.load(std::memory_order_relaxed);
}

void TimerNode::ref() noexcept { hot().word.fetch_add(Hot::kOneRef, std::memory_order_relaxed); }

void TimerNode::unref() noexcept {
  Atomic<std::uint32_t>& word = hot().word;
  // The last owner needs no atomic write: nobody else can add a reference any more.
  std::uint32_t seen = word.load(std::memory_order_acquire);
  if (seen >= 2 * Hot::kOneRef) seen = word.fetch_sub(Hot::kOneRef, std::memory_order_acq_rel);
  if (seen >= 2 * Hot::kOneRef) return;
  if (Hot::stateOf(seen) == State::armed) dropTask(seen);  // made but never added: a refused one
  if ((seen & Hot::kHasFuture) != 0) warm().future.load(std::memory_order_acquire)->unref();
  slab().pool->release(this);
}

// Gives the word as it was, or 0 if the state was another (a living timer's word is never 0).
std::uint32_t TimerNode::moveState(State from, State to) noexcept {
  Atomic<std::uint32_t>& word = hot().word;
  std::uint32_t seen = word.load(std::memory_order_relaxed);
  do {
    if (Hot::stateOf(seen) != from) return 0;
  } while (!word.compare_exchange_weak(seen, (seen & ~Hot::kState) | static_cast<std::uint32_t>(to),
                                       std::memory_order_acq_rel, std::memory_order_relaxed));
  return seen;
}

void TimerNode::dropTask(std::uint32_t word) noexcept {
  if ((word & Hot::kTrivialTask) == 0) node_.task.reset();
}

// Gives the word as it was, or 0 if somebody else was first.
std::uint32_t TimerNode::wonCancel() noexcept {
  for (;;) {
    if (const std::uint32_t won = moveState(State::armed, State::cancelled)) {
      dropTask(won);  // it will not run: what it holds is ours now
      return won;
    }
    // A repeating task that runs right now is not interrupted; the loop destroys it afterwards. It
    // may be armed again before we look: then once more from the top.
    const std::uint32_t seen = hot().load();
    const State state = Hot::stateOf(seen);
    if (state == State::done || state == State::cancelled) return 0;
    if (Hot::repeatOf(seen) == Repeat::no) {
      if (state == State::running) return 0;
    } else if (const std::uint32_t won = moveState(State::running, State::cancelled)) {
      return won;
    }
  }
}

bool TimerNode::cancel() noexcept {
  const std::uint32_t won = wonCancel();
  if (won == 0) return false;
  if ((won & Hot::kHasFuture) != 0) completeFuture(cancelledTimer());
  slab().pool->noteCancel();
  return true;
}

// Whoever ends the timer changes the state and sees in the same word whether there is a future;
// whoever makes a future sets its bit and sees in the same word whether the timer has ended. So one
// of the two completes it.
void TimerNode::completeFuture(Result<void> result) noexcept {
  warm().future.load(std::memory_order_acquire)->complete(std::move(result));
}

Future<void> TimerNode::future() {
  Warm& mine = warm();
  FutureOfTimer* made = mine.future.load(std::memory_order_acquire);
  if (made == nullptr) {
    // A timer that has ended may have outlived its loop.
    const bool ended = state() == State::done || state() == State::cancelled;
    Ref<FutureOfTimer> fresh =
        makeRef<FutureOfTimer>(ended ? globalExecutor() : slab().pool->owner());
    if (mine.future.compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
      made = fresh.release();
    }
  }
  const std::uint32_t seen = hot().word.fetch_or(Hot::kHasFuture, std::memory_order_acq_rel);
  if (Hot::stateOf(seen) == State::cancelled) made->complete(cancelledTimer());
  // A failure made its future itself, so "done" without one means success.
  if (Hot::stateOf(seen) == State::done) made->complete(Result<void>());
  return Future<void>::ofState(Ref<FutureOfTimer>(made));
}

// --- TimerQueue ---

TimerQueue::TimerQueue(Executor& owner) : owner_(owner), pool_(new TimerPool(*this, owner)) {}

TimerQueue::~TimerQueue() {
  cancelAll();
  pool_->close();
}

Ref<TimerNode> TimerQueue::make(std::int64_t deadline, std::int64_t period,
                                TimerNode::Repeat repeat, Task&& task, std::uint32_t references) {
  TimerNode* timer = pool_->allocate();
  auto* hot = ::new (static_cast<void*>(&timer->hot())) TimerNode::Hot;
  hot->word.store(references * TimerNode::Hot::kOneRef |
                      (static_cast<std::uint32_t>(repeat) << TimerNode::Hot::kRepeatShift) |
                      (task.isTrivial() ? TimerNode::Hot::kTrivialTask : 0),
                  std::memory_order_relaxed);
  auto* warm = ::new (static_cast<void*>(&timer->warm())) TimerNode::Warm;
  warm->deadline.store(deadline, std::memory_order_relaxed);
  warm->period = period;
  auto* node = ::new (static_cast<void*>(timer)) TaskNode;
  node->fill(std::move(task));
  return Ref<TimerNode>::adopt(timer);
}

void TimerQueue::add(TimerNode& timer) noexcept {
  timer.ref();
  arm(timer);
}

// Memory that cannot be had ends the process: half an armed timer would be worse.
void TimerQueue::arm(TimerNode& timer) noexcept {
  if (closed_ && timer.cancel()) ++refused_;
  if (timer.state() == TimerNode::State::cancelled) {
    timer.unref();
    return;
  }
  if (heap_.size() == heap_.capacity()) {
    cancels_ += pool_->takeCancelsElsewhere();
    if (cancels_ * 2 > heap_.size()) compact();
  }
  TimerNode::Warm& warm = timer.warm();
  warm.sequence = nextSequence_++;
  heap_.emplace_back();
  siftUp(heap_.size() - 1, {warm.deadline.load(std::memory_order_relaxed), &timer});
}

inline bool TimerQueue::earlier(const Entry& a, const Entry& b) noexcept {
  return a.deadline != b.deadline ? a.deadline < b.deadline
                                  : a.timer->warm().sequence < b.timer->warm().sequence;
}

void TimerQueue::siftUp(std::size_t at, Entry entry) noexcept {
  while (at > 0) {
    const std::size_t parent = (at - 1) / kArity;
    if (!earlier(entry, heap_[parent])) break;
    heap_[at] = heap_[parent];
    at = parent;
  }
  heap_[at] = entry;
}

void TimerQueue::siftDown(std::size_t at, Entry entry) noexcept {
  const std::size_t size = heap_.size();
  for (;;) {
    const std::size_t first = at * kArity + 1;
    if (first >= size) break;
    const std::size_t end = first + kArity < size ? first + kArity : size;
    std::size_t best = first;
    for (std::size_t child = first + 1; child < end; ++child) {
      if (earlier(heap_[child], heap_[best])) best = child;
    }
    if (!earlier(heap_[best], entry)) break;
    heap_[at] = heap_[best];
    at = best;
  }
  heap_[at] = entry;
}

void TimerQueue::popTop() noexcept {
  const Entry last = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) siftDown(0, last);
}

std::int64_t TimerQueue::next() noexcept {
  if (const std::size_t elsewhere = pool_->takeCancelsElsewhere(); elsewhere != 0) {
    cancels_ += elsewhere;
    compactIfWorthIt();
  }
  while (!heap_.empty()) {
    TimerNode& top = *heap_.front().timer;
    if (top.state() != TimerNode::State::cancelled) return heap_.front().deadline;
    popTop();
    top.unref();
  }
  return std::numeric_limits<std::int64_t>::max();
}

TaskChain TimerQueue::takeDue(std::int64_t now) {
  TaskChain due;
  while (!heap_.empty() && heap_.front().deadline <= now) {
    TimerNode& top = *heap_.front().timer;
    popTop();
    if (top.state() == TimerNode::State::cancelled) {
      top.unref();
      continue;
    }
    top.node_.set(nullptr, TaskNode::framework | TaskNode::borrowed | TaskNode::timer);
    due.append(&top.node_);
  }
  return due;
}

bool TimerQueue::run(TimerNode& timer, const Clock& clock) {
  using State = TimerNode::State;
  if (timer.moveState(State::armed, State::running) == 0) {
    timer.unref();
    return false;
  }
  Error failure;
  try {
    timer.node_.task();
  } catch (...) {
    failure = Error::fromCurrentException("scheduled task");
  }
  const TimerNode::Repeat repeat = timer.repeat();
  if (failure || repeat == TimerNode::Repeat::no) {
    finish(timer, std::move(failure));
    return true;
  }
  TimerNode::Warm& warm = timer.warm();
  const std::int64_t from = repeat == TimerNode::Repeat::atFixedRate
                                ? warm.deadline.load(std::memory_order_relaxed)
                                : clock.nanos();
  warm.deadline.store(saturatingAdd(from, warm.period), std::memory_order_relaxed);
  if (timer.moveState(State::running, State::armed) != 0) {
    arm(timer);
  } else {  // cancelled while it ran
    timer.dropTask(timer.hot().load());
    timer.unref();
  }
  return true;
}

void TimerQueue::finish(TimerNode& timer, Error failure) {
  using State = TimerNode::State;
  const std::uint32_t before = timer.hot().load();
  timer.dropTask(before);
  if (failure) {
    if ((before & TimerNode::Hot::kHasFuture) == 0) {
      log(LogLevel::warn, "concurrent", failure.message());
      static_cast<void>(timer.future());  // so that whoever asks later learns it, too
    }
    // Before the state says "done", so that nobody takes it for a success.
    timer.completeFuture(std::move(failure));
  }
  const std::uint32_t ended = timer.moveState(State::running, State::done);
  if ((ended & TimerNode::Hot::kHasFuture) != 0) timer.completeFuture(Result<void>());
  timer.unref();
}

void TimerQueue::compact() noexcept {
  cancels_ = 0;
  std::size_t kept = 0;
  // The dead are kept behind the living until the heap is whole again: dropping a timer may run
  // users' destructors, and those may come back to this queue.
  std::vector<Entry, internal::LargeAllocator<Entry>> all = std::exchange(heap_, {});
  const auto fetchAhead = [&all](std::size_t i) {
    if (i + 16 < all.size()) __builtin_prefetch(&all[i + 16].timer->hot(), 1);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    fetchAhead(i);
    if (all[i].timer->state() != TimerNode::State::cancelled) std::swap(all[kept++], all[i]);
  }
  heap_.reserve(2 * kept);
  heap_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept));
  if (kept > 1) {
    for (std::size_t at = (kept - 2) / kArity + 1; at-- > 0;) siftDown(at, heap_[at]);
  }
  for (std::size_t i = kept; i < all.size(); ++i) {
    fetchAhead(i);
    all[i].timer->unref();
  }
}

std::size_t TimerQueue::cancelAll() noexcept {
  closed_ = true;
  std::size_t cancelled = std::exchange(refused_, 0);
  const auto all = std::exchange(heap_, {});
  for (const Entry& entry : all) {
    if (entry.timer->cancel()) ++cancelled;
    entry.timer->unref();
  }
  return cancelled;
}

std::size_t TimerQueue::size() const noexcept {
  std::size_t count = 0;
  forEach([&](const TimerNode&) { ++count; });
  return count;
}

}  // namespace millrace
