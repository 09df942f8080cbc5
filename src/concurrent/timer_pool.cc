// SPDX-License-Identifier: Apache-2.0
#include "concurrent/timer_pool.h"

#include <millrace/base/check.h>

#include <new>
#include <utility>

namespace millrace {

namespace {

// An address that no timer has: stands in `returned_` once the queue is gone.
template <class T>
T* closedMark() noexcept {
  return reinterpret_cast<T*>(std::uintptr_t{64});  // NOLINT
}

}  // namespace

TimerPool::~TimerPool() {
  for (Slab* slab : slabs_) ::operator delete(slab, std::align_val_t{kSlabBytes});
}

TimerNode* TimerPool::make() {
  TimerNode* timer = nullptr;
  if (isHome()) {
    ++live_;
    timer = ::new (allocate()) TimerNode;
  } else {
    outstanding_.fetch_add(1, std::memory_order_relaxed);
    timer = new TimerNode;
    timer->fromHeap_ = true;
  }
  timer->pool_ = this;
  return timer;
}

void* TimerPool::allocate() {
  Slab* slab = room_;
  if (slab == nullptr) slab = slabWithRoom();
  if (slab->live == 0 && slab->carved != 0) --emptySlabs_;
  ++slab->live;
  void* memory = slab->free;
  if (memory != nullptr) {
    slab->free = slab->free->next;
  } else {
    memory = reinterpret_cast<std::byte*>(slab) + kHeader + slab->carved * sizeof(TimerNode);
    ++slab->carved;
  }
  if (slab->live == kPerSlab) {
    slab->hasRoom = false;
    room_ = slab->nextWithRoom;
  }
  return memory;
}

TimerPool::Slab* TimerPool::slabWithRoom() {
  drainReturned();
  if (room_ != nullptr) return room_;
  void* memory = ::operator new(kSlabBytes, std::align_val_t{kSlabBytes});
  Slab* slab = ::new (memory) Slab;
  slab->index = slabs_.size();
  slab->hasRoom = true;
  slabs_.push_back(slab);
  room_ = slab;
  return slab;
}

void TimerPool::destroy(TimerNode* timer) noexcept {
  if (timer->fromHeap_) {
    delete timer;
    leave(1);
    return;
  }
  timer->~TimerNode();
  Free* seen = returned_.load(std::memory_order_acquire);
  if (seen != closedMark<Free>() && isHome()) {
    releaseHere(timer);
    return;
  }
  auto* memory = ::new (static_cast<void*>(timer)) Free;
  do {
    if (seen == closedMark<Free>()) {
      leave(1);
      return;
    }
    memory->next = seen;
  } while (!returned_.compare_exchange_weak(seen, memory, std::memory_order_acq_rel,
                                            std::memory_order_acquire));
}

void TimerPool::releaseHere(void* memory) noexcept {
  --live_;
  const auto address = reinterpret_cast<std::uintptr_t>(memory) & ~(kSlabBytes - 1);
  auto* slab = reinterpret_cast<Slab*>(address);  // NOLINT: slabs are aligned to their size
  auto* freed = ::new (memory) Free;
  freed->next = slab->free;
  slab->free = freed;
  if (!slab->hasRoom) {
    slab->hasRoom = true;
    slab->nextWithRoom = room_;
    room_ = slab;
  }
  if (--slab->live != 0) return;
  // One empty slab is kept for the next burst; a further one goes if it can be unlinked at once.
  ++emptySlabs_;
  if (emptySlabs_ == 1 || room_ != slab) return;
  --emptySlabs_;
  room_ = slab->nextWithRoom;
  slabs_.back()->index = slab->index;
  std::swap(slabs_[slab->index], slabs_.back());
  slabs_.pop_back();
  ::operator delete(slab, std::align_val_t{kSlabBytes});
}

void TimerPool::drainReturned() noexcept {
  Free* each = returned_.load(std::memory_order_relaxed);
  if (each == nullptr) return;
  each = returned_.exchange(nullptr, std::memory_order_acquire);
  while (each != nullptr) releaseHere(std::exchange(each, each->next));
}

void TimerPool::close() noexcept {
  Free* each = returned_.exchange(closedMark<Free>(), std::memory_order_acq_rel);
  while (each != nullptr) {
    --live_;
    each = each->next;
  }
  leave(kOpenBias - live_);
}

void TimerPool::leave(std::int64_t count) noexcept {
  if (outstanding_.fetch_sub(count, std::memory_order_acq_rel) == count) delete this;
}

void TimerPool::countDead(TimerNode& timer) noexcept {
  if (!isHome()) {
    deadElsewhere_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (!timer.queued_) {  // given out as due, or running: the heap has no dead entry of it
    timer.uncounted_ = true;
    return;
  }
  ++deadHere_;
  if (dead() * 2 > queue_.heap_.size() && queue_.heap_.size() >= 64) queue_.compact();
}

}  // namespace millrace
