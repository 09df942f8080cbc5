// SPDX-License-Identifier: Apache-2.0
#include "concurrent/timer_pool.h"

#include <millrace/base/check.h>
#include <millrace/base/log.h>
#include <millrace/concurrent/timer_queue.h>

#include <limits>
#include <utility>

namespace millrace {

namespace {

constexpr std::size_t kArity = 4;

}  // namespace

TimerQueue::TimerQueue(Executor& owner) : owner_(owner), pool_(new TimerPool(*this, owner)) {}

TimerQueue::~TimerQueue() {
  cancelAll();
  pool_->close();
}

Ref<TimerNode> TimerQueue::make(std::int64_t deadline, std::int64_t period,
                                TimerNode::Repeat repeat, Task&& task, std::uint32_t references) {
  TimerNode* timer = pool_->allocate();
  using Hot = TimerNode::Hot;
  const bool repeats = repeat != TimerNode::Repeat::no;
  const int word = Hot::kHandle | (references > 1 ? Hot::kQueued : 0) |
                   (repeats ? Hot::kRepeats : 0) | (task.isTrivial() ? Hot::kTrivialTask : 0);
  auto* hot = ::new (static_cast<void*>(&timer->hot())) Hot;
  hot->word.store(static_cast<std::uint8_t>(word), std::memory_order_relaxed);
  auto* warm = ::new (static_cast<void*>(&timer->warm())) TimerNode::Warm;
  warm->deadline.store(deadline, std::memory_order_relaxed);
  if (repeats) {
    timer->cold().period = repeat == TimerNode::Repeat::atFixedRate ? period : -period;
  }
  auto* node = ::new (static_cast<void*>(timer)) TaskNode;
  node->fill(std::move(task));
  return Ref<TimerNode>::adopt(timer);
}

void TimerQueue::add(TimerNode& timer) noexcept {
  timer.hot().word.fetch_or(TimerNode::Hot::kQueued, std::memory_order_relaxed);
  arm(timer);
}

// Memory that cannot be had ends the process: half an armed timer would be worse.
void TimerQueue::arm(TimerNode& timer) noexcept {
  MR_CHECK((timer.hot().load() & TimerNode::Hot::kQueued) != 0, "a timer without its queue's hold");
  if (closed_ && timer.cancel()) ++refused_;
  if (timer.isCancelled()) {
    timer.unrefQueued();
    return;
  }
  if (heap_.size() == heap_.capacity()) makeRoom();
  TimerNode::Warm& warm = timer.warm();
  warm.sequence = nextSequence_++;
  heap_.emplace_back();
  siftUp(heap_.size() - 1, {warm.deadline.load(std::memory_order_relaxed), &timer});
}

[[gnu::noinline]] void TimerQueue::makeRoom() noexcept {
  cancels_ += pool_->takeCancelsElsewhere();
  if (cancels_ * 2 > heap_.size()) compact();
  // A large heap grows in large steps: pages take no memory before they are touched, but moving the
  // entries takes new ones.
  if (heap_.size() == heap_.capacity() && heap_.size() * sizeof(Entry) >= internal::kLargePage) {
    heap_.reserve(heap_.size() * 4);
  }
}

// Rare: kept out of the way of the others.
[[gnu::noinline]] bool TimerQueue::armedBefore(const TimerNode& a, const TimerNode& b) noexcept {
  return a.warm().sequence < b.warm().sequence;
}

inline bool TimerQueue::earlier(const Entry& a, const Entry& b) noexcept {
  if (__builtin_expect(a.deadline == b.deadline, 0)) return armedBefore(*a.timer, *b.timer);
  return a.deadline < b.deadline;
}

inline void TimerQueue::siftUp(std::size_t at, Entry entry) noexcept {
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
  fewCancels_ = 0;
  if (!heap_.empty()) siftDown(0, last);
}

std::int64_t TimerQueue::next() noexcept {
  if (const std::size_t elsewhere = pool_->takeCancelsElsewhere(); elsewhere != 0) {
    cancels_ += elsewhere;
    compactIfWorthIt();
  }
  while (!heap_.empty()) {
    TimerNode& top = *heap_.front().timer;
    if (!top.isCancelled()) return heap_.front().deadline;
    popTop();
    top.unrefQueued();
  }
  return std::numeric_limits<std::int64_t>::max();
}

TaskChain TimerQueue::takeDue(std::int64_t now) {
  TaskChain due;
  while (!heap_.empty() && heap_.front().deadline <= now) {
    TimerNode& top = *heap_.front().timer;
    popTop();
    if (top.isCancelled()) {
      top.unrefQueued();
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
    timer.unrefQueued();
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
  const std::int64_t period = timer.cold().period;
  warm.deadline.store(saturatingAdd(from, period < 0 ? -period : period),
                      std::memory_order_relaxed);
  if (timer.moveState(State::running, State::armed) != 0) {
    arm(timer);
  } else {  // cancelled while it ran
    timer.dropTask(timer.hot().load());
    timer.unrefQueued();
  }
  return true;
}

void TimerQueue::finish(TimerNode& timer, Error failure) {
  using State = TimerNode::State;
  const std::uint8_t before = timer.hot().load();
  timer.dropTask(before);
  if (failure) {
    if ((before & TimerNode::Hot::kHasFuture) == 0) {
      log(LogLevel::warn, "concurrent", failure.message());
      static_cast<void>(timer.future());  // so that whoever asks later learns it, too
    }
    // Before the state says "done", so that nobody takes it for a success.
    timer.completeFuture(std::move(failure));
  }
  const std::uint8_t ended = timer.moveState(State::running, State::done);
  if ((ended & TimerNode::Hot::kHasFuture) != 0) timer.completeFuture(Result<void>());
  timer.unrefQueued();
}

[[gnu::noinline]] void TimerQueue::compactIfWorthIt() noexcept {
  fewCancels_ = heap_.size() / 4 * 3;
  if (cancels_ * 4 > heap_.size() * 3 && heap_.size() >= kWorthCompacting) compact();
}

void TimerQueue::compact() noexcept {
  cancels_ = 0;
  fewCancels_ = 0;
  std::size_t kept = 0;
  // Those that still hold something are kept behind the living until the heap is whole again:
  // dropping them may run users' destructors, and those may come back to this queue.
  std::vector<Entry, internal::LargeAllocator<Entry>> all = std::exchange(heap_, {});
  dropDead(all);
  for (Entry& each : all) {
    if (!each.timer->isCancelled()) std::swap(all[kept++], each);
  }
  heap_.reserve(2 * kept);
  heap_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept));
  if (kept > 1) {
    for (std::size_t at = (kept - 2) / kArity + 1; at-- > 0;) siftDown(at, heap_[at]);
  }
  for (std::size_t i = kept; i < all.size(); ++i) all[i].timer->unrefQueued();
}

// Takes out the cancelled ones that only the queue holds. Runs nothing of the users'.
void TimerQueue::dropDead(std::vector<Entry, internal::LargeAllocator<Entry>>& entries) noexcept {
  using Hot = TimerNode::Hot;
  constexpr std::size_t kAhead = 16;
  std::size_t left = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i + kAhead < entries.size()) {
      __builtin_prefetch(&entries[i + kAhead].timer->hot(), 1);
    }
    TimerNode* timer = entries[i].timer;
    const std::uint8_t word = timer->hot().load();
    if (Hot::stateOf(word) == TimerNode::State::cancelled &&
        (word & (Hot::kHandle | Hot::kHasFuture | Hot::kCopied)) == 0) {
      pool_->releaseAtHome(timer);
    } else {
      entries[left++] = entries[i];
    }
  }
  entries.resize(left);
}

std::size_t TimerQueue::cancelAll() noexcept {
  closed_ = true;
  std::size_t cancelled = std::exchange(refused_, 0);
  const auto all = std::exchange(heap_, {});
  for (const Entry& entry : all) {
    if (entry.timer->cancel()) ++cancelled;
    entry.timer->unrefQueued();
  }
  return cancelled;
}

std::size_t TimerQueue::size() const noexcept {
  std::size_t count = 0;
  forEach([&](const TimerNode&) { ++count; });
  return count;
}

}  // namespace millrace
