// SPDX-License-Identifier: Apache-2.0
#include "loop/uring/receive_buffers.h"

#include "buffer/pool_core.h"

#include <millrace/buffer/buffer_pool.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <sys/mman.h>
#include <utility>

namespace millrace {

namespace {

constexpr std::size_t kRingBytes = ReceiveBuffers::kCapacity * sizeof(io_uring_buf);
/// So often, what nobody used for all that time is given back.
constexpr unsigned kPeriod = 64;

}  // namespace

Result<void> ReceiveBuffers::open(Uring& uring, BufferPool& pool) {
  void* memory =
      ::mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Error::fromErrno(errno, "mmap of a buffer ring");
  if (Result<void> registered = uring.registerBuffers(memory, kCapacity, kGroup); !registered) {
    ::munmap(memory, kRingBytes);
    return registered;
  }
  ring_ = static_cast<io_uring_buf*>(memory);
  pool_ = &pool;
  tail_ = 0;
  blocks_ = std::make_unique<internal::Block*[]>(kCapacity);
  free_ = std::make_unique<std::uint16_t[]>(kCapacity);
  freeCount_ = kCapacity;
  for (unsigned i = 0; i < kCapacity; ++i) {
    free_[i] = static_cast<std::uint16_t>(kCapacity - 1 - i);
  }
  fill();
  return {};
}

void ReceiveBuffers::close() noexcept {
  if (ring_ == nullptr) return;
  for (unsigned i = 0; i < kCapacity; ++i) {
    if (internal::Block* block = std::exchange(blocks_[i], nullptr)) block->drop();
  }
  waiting_ = 0;
  ::munmap(std::exchange(ring_, nullptr), kRingBytes);
}

inline void ReceiveBuffers::add(std::uint16_t number) {
  internal::Block* block = pool_->core().allocateClass(internal::SizeClasses::ofPower(kSizePower));
  blocks_[number] = block;
  io_uring_buf& entry = ring_[tail_++ & (kCapacity - 1)];
  entry.addr = reinterpret_cast<std::uintptr_t>(block->bytes);
  entry.len = static_cast<std::uint32_t>(kSize);
  entry.bid = number;
  ++waiting_;
  published_ = false;
}

internal::Block* ReceiveBuffers::take(std::uint16_t number) {
  internal::Block* block = std::exchange(blocks_[number], nullptr);
  --waiting_;
  ++used_;
  if (__builtin_expect(waiting_ < wanted_, 1)) {
    add(number);
  } else {
    free_[freeCount_++] = number;
  }
  return block;
}

void ReceiveBuffers::fill() {
  while (waiting_ < wanted_ && freeCount_ != 0) add(free_[--freeCount_]);
}

void ReceiveBuffers::ranDry() noexcept {
  most_ = wanted_;
  // However many found none: all of them will look again.
  if (std::exchange(wasDry_, true)) return;
  wanted_ = std::min(wanted_ * 2, kCapacity);
  fill();
}

void ReceiveBuffers::publish() noexcept {
  wasDry_ = false;
  if (published_) return;
  published_ = true;
  // The tail lies in a field of the first entry that is not used otherwise.
  std::atomic_ref<std::uint16_t>(ring_[0].resv).store(tail_, std::memory_order_release);
  most_ = std::max(most_, std::exchange(used_, 0));
  if (++rounds_ < kPeriod) return;
  rounds_ = 0;
  if (std::exchange(most_, 0) * 4 < wanted_) wanted_ = std::max(wanted_ / 2, kFewest);
}

}  // namespace millrace
