// SPDX-License-Identifier: Apache-2.0
#include <millrace/concurrent/timer_queue.h>

#include "concurrent/timer_pool.h"

#include <millrace/base/log.h>

#include <limits>
#include <utility>

namespace millrace {

namespace {

constexpr std::size_t kArity = 4;

Error cancelledTimer() { return {Errc::cancelled, "timer"}; }

}  // namespace

// --- TimerNode ---

TimerNode::~TimerNode() {
  if (FutureOfTimer* future = future_.load(std::memory_order_acquire)) future->unref();
}

void TimerNode::unref() noexcept {
  // The last owner needs no atomic write: nobody else can add a reference any more.
  if (refs_.load(std::memory_order_acquire) == 1 ||
      refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    pool_->destroy(this);
  }
}

bool TimerNode::wonCancel() noexcept {
  State seen = State::armed;
  if (state_.compare_exchange_strong(seen, State::cancelled, std::memory_order_seq_cst)) {
    node_.task.reset();  // it will not run: what it holds is ours now
    return true;
  }
  // A repeating task that runs right now is not interrupted; the loop destroys it afterwards.
  return seen == State::running && repeat_ != Repeat::no &&
         state_.compare_exchange_strong(seen, State::cancelled, std::memory_order_seq_cst);
}

bool TimerNode::cancel() noexcept {
  if (!wonCancel()) return false;
  completeFuture(cancelledTimer());
  pool_->countDead(*this);
  return true;
}

// Dekker with future(): we set the state, then look for a future; it publishes the future, then looks
// at the state. One of the two completes it.
void TimerNode::completeFuture(Result<void> result) noexcept {
  FutureOfTimer* future = future_.load(std::memory_order_seq_cst);
  if (future != nullptr) future->complete(std::move(result));
}

Future<void> TimerNode::future(Executor& executor) {
  FutureOfTimer* made = future_.load(std::memory_order_acquire);
  if (made == nullptr) {
    Ref<FutureOfTimer> fresh = makeRef<FutureOfTimer>(executor);
    if (future_.compare_exchange_strong(made, fresh.get(), std::memory_order_seq_cst)) {
      made = fresh.release();
    }
  }
  const State seen = state_.load(std::memory_order_seq_cst);
  if (seen == State::cancelled) made->complete(cancelledTimer());
  // A failure made its future itself, so "done" without one means success.
  if (seen == State::done) made->complete(Result<void>());
  return Future<void>::ofState(Ref<FutureOfTimer>(made));
}

// --- TimerQueue ---

TimerQueue::TimerQueue(Executor& owner) noexcept
    : owner_(owner), pool_(new TimerPool(*this, owner)) {}

TimerQueue::~TimerQueue() {
  cancelAll();
  pool_->close();
}

Ref<TimerNode> TimerQueue::make(std::int64_t deadline, std::int64_t period,
                                TimerNode::Repeat repeat, Task task) {
  TimerNode* timer = pool_->make();
  timer->deadline_.store(deadline, std::memory_order_relaxed);
  timer->period_ = period;
  timer->repeat_ = repeat;
  timer->node_.task = std::move(task);
  return Ref<TimerNode>::adopt(timer);
}

void TimerQueue::add(TimerNode& timer) {
  timer.ref();
  arm(timer);
}

void TimerQueue::arm(TimerNode& timer) {
  if (timer.state_.load(std::memory_order_relaxed) == TimerNode::State::cancelled) {
    forgetCancelled(timer);
    return;
  }
  if (closed_) {
    timer.cancel();
    forgetCancelled(timer);
    return;
  }
  timer.sequence_ = nextSequence_++;
  timer.queued_ = true;
  if (heap_.size() == heap_.capacity() && pool_->dead() * 2 > heap_.size()) compact();
  heap_.emplace_back();
  siftUp(heap_.size() - 1, {timer.deadline_.load(std::memory_order_relaxed), &timer});
}

void TimerQueue::forgetCancelled(TimerNode& timer) noexcept {
  pool_->forgetDead(timer);
  timer.unref();
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
  while (!heap_.empty()) {
    TimerNode& top = *heap_.front().timer;
    if (top.state_.load(std::memory_order_relaxed) != TimerNode::State::cancelled) {
      return heap_.front().deadline;
    }
    popTop();
    forgetCancelled(top);
  }
  return std::numeric_limits<std::int64_t>::max();
}

TaskChain TimerQueue::takeDue(std::int64_t now) {
  TaskChain due;
  while (!heap_.empty() && heap_.front().deadline <= now) {
    TimerNode& top = *heap_.front().timer;
    popTop();
    top.queued_ = false;
    if (top.state_.load(std::memory_order_relaxed) == TimerNode::State::cancelled) {
      forgetCancelled(top);
      continue;
    }
    top.node_.set(nullptr, TaskNode::framework | TaskNode::borrowed | TaskNode::timer);
    due.append(&top.node_);
  }
  return due;
}

bool TimerQueue::run(TimerNode& timer, const Clock& clock) {
  using State = TimerNode::State;
  State expected = State::armed;
  if (!timer.state_.compare_exchange_strong(expected, State::running, std::memory_order_seq_cst)) {
    forgetCancelled(timer);
    return false;
  }
  Error failure;
  try {
    timer.node_.task();
  } catch (...) {
    failure = Error::fromCurrentException("scheduled task");
  }
  if (!failure && timer.repeat_ != TimerNode::Repeat::no) {
    const std::int64_t from = timer.repeat_ == TimerNode::Repeat::atFixedRate
                                  ? timer.deadline_.load(std::memory_order_relaxed)
                                  : clock.nanos();
    timer.deadline_.store(saturatingAdd(from, timer.period_), std::memory_order_relaxed);
    expected = State::running;
    if (timer.state_.compare_exchange_strong(expected, State::armed, std::memory_order_seq_cst)) {
      arm(timer);
      return true;
    }
  } else {
    finish(timer, std::move(failure));
    return true;
  }
  timer.node_.task.reset();  // cancelled while it ran
  forgetCancelled(timer);
  return true;
}

void TimerQueue::finish(TimerNode& timer, Error failure) {
  using State = TimerNode::State;
  timer.node_.task.reset();
  if (failure && timer.future_.load(std::memory_order_acquire) == nullptr) {
    log(LogLevel::warn, "concurrent", failure.message());
    static_cast<void>(timer.future(owner_));  // so that whoever asks later learns it, too
  }
  Result<void> result = failure ? Result<void>(failure) : Result<void>();
  TimerNode::FutureOfTimer* future = timer.future_.load(std::memory_order_seq_cst);
  if (failure && future != nullptr) future->complete(Result<void>(failure));
  State expected = State::running;
  if (!timer.state_.compare_exchange_strong(expected, State::done, std::memory_order_seq_cst)) {
    forgetCancelled(timer);
    return;
  }
  timer.completeFuture(std::move(result));
  timer.unref();
}

void TimerQueue::compact() {
  std::size_t kept = 0;
  TaskChain dead;
  for (std::size_t i = 0; i < heap_.size(); ++i) {
    if (i + 16 < heap_.size()) __builtin_prefetch(&heap_[i + 16].timer->state_);
    TimerNode& timer = *heap_[i].timer;
    if (timer.state_.load(std::memory_order_relaxed) == TimerNode::State::cancelled) {
      dead.append(&timer.node_);
    } else {
      heap_[kept++] = heap_[i];
    }
  }
  heap_.resize(kept);
  if (heap_.capacity() > 4 * kept + 64) heap_.shrink_to_fit();
  if (kept > 1) {
    for (std::size_t at = (kept - 2) / kArity + 1; at-- > 0;) siftDown(at, heap_[at]);
  }
  // Last, when the heap is whole again: dropping a timer may run users' destructors, and those may
  // come back to this queue.
  while (TaskNode* node = dead.popFront()) forgetCancelled(TimerNode::of(*node));
}

std::size_t TimerQueue::cancelAll() noexcept {
  closed_ = true;
  std::size_t cancelled = 0;
  std::vector<Entry> all = std::move(heap_);
  heap_.clear();
  for (const Entry& entry : all) {
    if (entry.timer->cancel()) ++cancelled;
    forgetCancelled(*entry.timer);
  }
  return cancelled;
}

std::size_t TimerQueue::size() const noexcept {
  const std::size_t dead = pool_->dead();
  return heap_.size() > dead ? heap_.size() - dead : 0;
}

}  // namespace millrace
