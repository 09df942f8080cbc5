// SPDX-License-Identifier: Apache-2.0
#include "concurrent/timer_pool.h"

#include <millrace/base/check.h>

#include <bit>
#include <new>
#include <utility>

namespace millrace {

namespace {

// An address that no timer has: stands in `returned_` once the queue is gone.
TimerNode* closedMark() noexcept {
  return reinterpret_cast<TimerNode*>(std::uintptr_t{64});  // NOLINT
}

}  // namespace

// --- Slab ---

// A used place before a new one.
inline TimerNode* TimerNode::Slab::take() noexcept {
  std::size_t place = carved;
  if (freeGroup == 0) {
    ++carved;
    internal::prefetchForWrite(array<TaskNode>(kNodesAt) + place + internal::kNodesAhead);
  } else {
    const std::size_t group = freeGroup - 1;
    std::uint64_t& free = array<std::uint64_t>(kFreeBitsAt)[group];
    place = group * kGroup + static_cast<std::size_t>(std::countr_zero(free));
    free &= free - 1;
    if (free == 0) freeGroup = array<std::uint16_t>(kNextGroupAt)[group];
  }
  return array<TimerNode>(kNodesAt) + place;
}

inline void TimerNode::Slab::giveBack(std::size_t place) noexcept {
  const std::size_t group = place / kGroup;
  std::uint64_t& free = array<std::uint64_t>(kFreeBitsAt)[group];
  if (free == 0) {
    array<std::uint16_t>(kNextGroupAt)[group] = static_cast<std::uint16_t>(freeGroup);
    freeGroup = static_cast<std::uint32_t>(group) + 1;
  }
  free |= std::uint64_t{1} << (place % kGroup);
}

// --- TimerSlabs ---

TimerSlabs::~TimerSlabs() {
  for (Slab* slab : slabs_) internal::unmapLarge(slab->page(), internal::kLargePage);
}

inline TimerNode* TimerSlabs::allocate() {
  Slab* slab = room_ != nullptr ? room_ : newSlab();
  if (slab->live == 0 && slab->carved != 0) --emptySlabs_;
  ++slab->live;
  ++live_;
  TimerNode* timer = slab->take();
  if (slab->live == Slab::kCount) {
    slab->hasRoom = false;
    room_ = slab->nextWithRoom;
  }
  return timer;
}

TimerSlabs::Slab* TimerSlabs::newSlab() {
  // The first slab of a loop with few timers should cost a few small pages, not a huge one.
  void* memory = internal::mapLarge(
      internal::kLargePage, slabs_.empty() ? internal::Pages::small : internal::Pages::huge);
  Slab* slab = ::new (static_cast<void*>(Slab::around(memory))) Slab;
  slab->pool = &pool_;
  slab->owner = &pool_.owner();
  slab->guest = guest_;
  slab->index = slabs_.size();
  slab->hasRoom = true;
  slabs_.push_back(slab);
  room_ = slab;
  return slab;
}

inline void TimerSlabs::release(TimerNode* timer) noexcept {
  --live_;
  Slab& slab = timer->slab();
  slab.giveBack(timer->index());
  if (!slab.hasRoom) {
    slab.hasRoom = true;
    slab.nextWithRoom = room_;
    room_ = &slab;
  }
  if (--slab.live == 0 && ++emptySlabs_ > 1) dropEmptySlabs();
}

// One empty slab is kept for the next burst.
void TimerSlabs::dropEmptySlabs() noexcept {
  bool kept = false;
  for (Slab** at = &room_; *at != nullptr;) {
    Slab* slab = *at;
    if (slab->live != 0 || !std::exchange(kept, true)) {
      at = &slab->nextWithRoom;
      continue;
    }
    *at = slab->nextWithRoom;
    slabs_.back()->index = slab->index;
    std::swap(slabs_[slab->index], slabs_.back());
    slabs_.pop_back();
    internal::unmapLarge(slab->page(), internal::kLargePage);
  }
  emptySlabs_ = 1;
}

// --- TimerPool ---

TimerNode* TimerPool::allocate() {
  if (isHome()) {
    if (!home_.hasRoom()) drainReturned();
    return home_.allocate();
  }
  std::lock_guard lock(guestMutex_);
  return guests_.allocate();
}

void TimerPool::release(TimerNode* timer) noexcept {
  if (timer->slab().guest) {
    std::unique_lock lock(guestMutex_);
    if (!guestsClosed_) {
      guests_.release(timer);
      return;
    }
    lock.unlock();
    leave(1);
    return;
  }
  TimerNode* seen = returned_.load(std::memory_order_acquire);
  if (seen != closedMark() && isHome()) {
    home_.release(timer);
    return;
  }
  do {
    if (seen == closedMark()) {
      leave(1);
      return;
    }
    timer->node_.setNext(seen == nullptr ? nullptr : &seen->node_);
  } while (!returned_.compare_exchange_weak(seen, timer, std::memory_order_acq_rel,
                                            std::memory_order_acquire));
}

void TimerPool::releaseAtHome(TimerNode* timer) noexcept {
  if (timer->slab().guest) {
    release(timer);
  } else {
    home_.release(timer);
  }
}

TimerNode* TimerPool::nextReturned(TimerNode* timer) noexcept {
  TaskNode* next = timer->node_.next();
  return next == nullptr ? nullptr : &TimerNode::of(*next);
}

void TimerPool::drainReturned() noexcept {
  if (returned_.load(std::memory_order_relaxed) == nullptr) return;
  TimerNode* each = returned_.exchange(nullptr, std::memory_order_acquire);
  while (each != nullptr) home_.release(std::exchange(each, nextReturned(each)));
}

void TimerPool::close() noexcept {
  std::int64_t live = home_.live();
  {
    std::lock_guard lock(guestMutex_);
    guestsClosed_ = true;
    live += guests_.live();
  }
  TimerNode* each = returned_.exchange(closedMark(), std::memory_order_acq_rel);
  for (; each != nullptr; each = nextReturned(each)) --live;
  leave(kOpenBias - live);
}

void TimerPool::leave(std::int64_t count) noexcept {
  if (outstanding_.fetch_sub(count, std::memory_order_acq_rel) == count) delete this;
}

}  // namespace millrace
