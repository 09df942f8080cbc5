// SPDX-License-Identifier: Apache-2.0
#include "buffer/pool_core.h"

#include <millrace/base/check.h>
#include <millrace/buffer/buffer_pool.h>

#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

namespace millrace {
namespace internal {

namespace {

/// Blocks begin at a cache line; the bytes follow the header's line.
constexpr std::size_t kLine = 64;
constexpr std::size_t kHeader = (sizeof(Block) + kLine - 1) / kLine * kLine;

Atomic<std::int64_t>& heapBlocks() noexcept {
  static Atomic<std::int64_t> count{0};
  return count;
}

/// An address that no block has: stands in `returned_` once the pool is gone.
Block* closedMark() noexcept { return reinterpret_cast<Block*>(std::uintptr_t{64}); }  // NOLINT

struct ExternalBlock : Block {
  Task release;
};

Block* newBlock(std::size_t capacity) {
  const std::size_t bytes = (kHeader + capacity + kLine - 1) / kLine * kLine;
  void* memory = std::aligned_alloc(kLine, bytes);
  MR_CHECK(memory != nullptr, "out of memory for a buffer");
  auto* block = ::new (memory) Block;
  block->capacity = static_cast<std::uint32_t>(capacity);
  block->bytes = static_cast<std::byte*>(memory) + kHeader;
  return block;
}

void freeBlock(Block* block) noexcept {
  block->~Block();
  std::free(block);  // NOLINT: from aligned_alloc
}

/// One address per thread.
const void* thisThread() noexcept {
  [[gnu::tls_model("initial-exec")]] static constinit thread_local char place = 0;
  return &place;
}

void add(Atomic<std::uint64_t>& counter, std::uint64_t count = 1) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
}

}  // namespace

// --- blocks ---

Block* Block::fromHeap(std::size_t capacity) {
  Block* block = newBlock(capacity);
  heapBlocks().fetch_add(1, std::memory_order_relaxed);
  return block;
}

Block* Block::around(void* memory, std::size_t size, Task release) {
  auto* block = new ExternalBlock;
  block->capacity = static_cast<std::uint32_t>(size);
  block->bytes = static_cast<std::byte*>(memory);
  block->external = true;
  block->release = std::move(release);
  heapBlocks().fetch_add(1, std::memory_order_relaxed);
  return block;
}

void Block::goHome(Block* block) noexcept {
  if (block->home != nullptr) {
    block->home->takeHome(block);
    return;
  }
  heapBlocks().fetch_sub(1, std::memory_order_relaxed);
  if (!block->external) {
    freeBlock(block);
    return;
  }
  auto* external = static_cast<ExternalBlock*>(block);
  if (external->release) external->release();  // a releaser that throws ends the process
  delete external;
}

std::int64_t liveHeapBlocks() noexcept { return heapBlocks().load(std::memory_order_relaxed); }

// --- sizes ---

// 64, 80, 96, 112, 128, 160, 192, 224, 256, 320 ...
std::uint32_t SizeClasses::of(std::size_t capacity) noexcept {
  if (capacity <= kSmallest) return 0;
  const auto log = static_cast<std::uint32_t>(std::bit_width(capacity - 1)) - 1;  // below capacity
  const std::size_t step = (std::size_t{1} << log) / kSteps;
  const std::size_t over = (capacity - 1 - (std::size_t{1} << log)) / step;
  return (log - 6) * kSteps + static_cast<std::uint32_t>(over) + 1;
}

std::size_t SizeClasses::sizeOf(std::uint32_t sizeClass) noexcept {
  const std::size_t base = kSmallest << (sizeClass / kSteps);
  return base + base / kSteps * (sizeClass % kSteps);
}

// --- the core ---

void PoolCore::bind() noexcept { home_.store(thisThread(), std::memory_order_relaxed); }

bool PoolCore::isHome() const noexcept {
  return home_.load(std::memory_order_relaxed) == thisThread();
}

Block* PoolCore::allocate(std::size_t capacity) {
  MR_CHECK(isHome(), "a buffer pool is used by another thread than its own");
  return allocateClass(SizeClasses::of(capacity));
}

// The free list is empty.
Block* PoolCore::allocateSlowly(std::uint32_t sizeClass) {
  if (returned_.load(std::memory_order_relaxed) != nullptr) {
    drainReturned();
    if (free_[sizeClass] != nullptr) {
      allocations_.store(allocations_.load(std::memory_order_relaxed) - 1,
                         std::memory_order_relaxed);
      return allocateFromList(sizeClass);
    }
  }
  add(fromHeap_);
  Block* block = newBlock(SizeClasses::sizeOf(sizeClass));
  block->home = this;
  block->sizeClass = sizeClass;
  return block;
}

void PoolCore::release(Block* block) noexcept { freeBlock(block); }

// Until it is pushed or freed our block is out, so the core lives. Afterwards it may be gone: what
// is counted is counted before.
void PoolCore::giveBack(Block* block) noexcept {
  const std::int64_t more = kOneBlock + block->capacity;
  const std::int64_t before = waiting_.fetch_add(more, std::memory_order_relaxed);
  const bool room = bytesOf(before) + block->capacity <= static_cast<std::int64_t>(limit_);
  Block* seen = returned_.load(std::memory_order_relaxed);
  while (room && seen != closedMark()) {
    block->next.write() = seen;
    if (returned_.compare_exchange_weak(seen, block, std::memory_order_release,
                                        std::memory_order_relaxed)) {
      return;
    }
  }
  waiting_.fetch_sub(more, std::memory_order_relaxed);
  freeElsewhere(block);
}

void PoolCore::freeElsewhere(Block* block) noexcept {
  freeBlock(block);
  if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void PoolCore::drainReturned() noexcept {
  std::int64_t came = 0;
  Block* first = returned_.exchange(nullptr, std::memory_order_acquire);
  while (first != nullptr) {
    Block* block = std::exchange(first, first->next.read());
    came += kOneBlock + block->capacity;
    keepInList(block);
  }
  add(drained_, static_cast<std::uint64_t>(blocksOf(came)));
  waiting_.fetch_sub(came, std::memory_order_relaxed);
}

void PoolCore::trim() noexcept {
  drainReturned();
  if (Block* block = hot_.load(std::memory_order_relaxed)) {
    hot_.store(nullptr, std::memory_order_relaxed);
    keepInList(block);
  }
  for (Block*& list : free_) {
    while (list != nullptr) freeBlock(std::exchange(list, list->next.read()));
  }
  kept_.store(0, std::memory_order_relaxed);
}

void PoolCore::close() noexcept {
  trim();
  // What came between the two looks, and then nothing more.
  Block* last = returned_.exchange(closedMark(), std::memory_order_acq_rel);
  while (last != nullptr) {
    freeBlock(std::exchange(last, last->next.read()));
    add(freedAtHome_);
  }
  home_.store(nullptr, std::memory_order_relaxed);
  const auto out = static_cast<std::int64_t>(allocations_.load(std::memory_order_relaxed) -
                                             freedAtHome_.load(std::memory_order_relaxed));
  if (left_.fetch_add(out, std::memory_order_acq_rel) + out == 0) delete this;
}

std::int64_t PoolCore::live() const noexcept {
  return static_cast<std::int64_t>(allocations_.load(std::memory_order_relaxed) -
                                   freedAtHome_.load(std::memory_order_relaxed)) +
         left_.load(std::memory_order_relaxed) -
         blocksOf(waiting_.load(std::memory_order_relaxed)) -
         (hot_.load(std::memory_order_relaxed) == nullptr ? 0 : 1);
}

std::uint64_t PoolCore::returned() const noexcept {
  return drained_.load(std::memory_order_relaxed) +
         static_cast<std::uint64_t>(blocksOf(waiting_.load(std::memory_order_relaxed)));
}

}  // namespace internal

// --- the public class ---

BufferPool::BufferPool(std::size_t keptBytes) : core_(new internal::PoolCore(keptBytes)) {}

BufferPool::~BufferPool() { core_->close(); }

void BufferPool::bindToThisThread() noexcept { core_->bind(); }

ByteBuf BufferPool::allocate(std::size_t capacity) {
  if (capacity > kMaxPooled) return ByteBuf(capacity);
  return ByteBuf(core_->allocate(capacity));
}

std::size_t BufferPool::roundUp(std::size_t capacity) noexcept {
  if (capacity > kMaxPooled) return capacity;
  return internal::SizeClasses::sizeOf(internal::SizeClasses::of(capacity));
}

void BufferPool::trim() noexcept { core_->trim(); }

BufferFigures BufferPool::figures() const noexcept {
  return {core_->allocations(), core_->fromHeap(), core_->returned(), core_->live(),
          core_->keptBytes()};
}

}  // namespace millrace
