// SPDX-License-Identifier: Apache-2.0
// The part of a BufferPool that blocks know. It lives until its pool is gone and all blocks are.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/buffer/block.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace::internal {

/// Sizes come in four steps per doubling: at most a fifth of a block is more than was asked for.
struct SizeClasses {
  static constexpr std::size_t kSmallest = 64;
  static constexpr std::size_t kLargest = 512 * 1024;
  static constexpr std::uint32_t kSteps = 4;
  static constexpr std::uint32_t kCount = 13 * kSteps + 1;

  static std::uint32_t of(std::size_t capacity) noexcept;
  static std::size_t sizeOf(std::uint32_t sizeClass) noexcept;
  /// Of two to the power of `exponent`, 6 to 19.
  static constexpr std::uint32_t ofPower(int exponent) noexcept {
    return static_cast<std::uint32_t>(exponent - 6) * kSteps;
  }
};

class PoolCore {
 public:
  explicit PoolCore(std::size_t keptBytes) noexcept : limit_(keptBytes) { bind(); }
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;

  // --- home thread ---
  void bind() noexcept;
  Block* allocate(std::size_t capacity);
  /// The same for a size class, without asking whose thread it is.
  Block* allocateClass(std::uint32_t sizeClass) {
    Block* block = hot_.load(std::memory_order_relaxed);
    if (__builtin_expect(block != nullptr && block->sizeClass == sizeClass, 1)) {
      hot_.store(nullptr, std::memory_order_relaxed);
      hotUses_.store(hotUses_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      block->owners.store(1, std::memory_order_relaxed);
      return block;
    }
    return allocateFromList(sizeClass);
  }
  Block* allocateFromList(std::uint32_t sizeClass) {
    allocations_.store(allocations_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    Block* block = free_[sizeClass];
    if (__builtin_expect(block == nullptr, 0)) return allocateSlowly(sizeClass);
    free_[sizeClass] = block->next.read();
    kept_.store(kept_.load(std::memory_order_relaxed) - block->capacity, std::memory_order_relaxed);
    block->owners.store(1, std::memory_order_relaxed);
    return block;
  }
  void trim() noexcept;
  /// The pool is gone: deletes itself now, or with its last block.
  void close() noexcept;

  // --- any thread ---
  void takeHome(Block* block) noexcept {
    if (isHome()) {
      keep(block);
    } else {
      giveBack(block);
    }
  }
  /// On the home thread, for a block that may be anybody's.
  void dropHere(Block* block) noexcept {
    if (__builtin_expect(block->home == this && !block->isShared(), 1)) {
      keep(block);
    } else {
      block->drop();
    }
  }
  /// From a thread that is not home.
  void giveBack(Block* block) noexcept;
  std::uint64_t allocations() const noexcept {
    return allocations_.load(std::memory_order_relaxed) + hotUses_.load(std::memory_order_relaxed);
  }
  std::uint64_t fromHeap() const noexcept { return fromHeap_.load(std::memory_order_relaxed); }
  std::uint64_t returned() const noexcept;
  std::int64_t live() const noexcept;
  std::int64_t keptBytes() const noexcept {
    return kept_.load(std::memory_order_relaxed) +
           bytesOf(waiting_.load(std::memory_order_relaxed));
  }

 private:
  ~PoolCore() = default;
  bool isHome() const noexcept;
  Block* allocateSlowly(std::uint32_t sizeClass);
  void keep(Block* block) noexcept {
    Block* before = hot_.load(std::memory_order_relaxed);
    hot_.store(block, std::memory_order_relaxed);
    if (__builtin_expect(before != nullptr, 0)) keepInList(before);
  }
  void keepInList(Block* block) noexcept {
    freedAtHome_.store(freedAtHome_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const std::int64_t kept = kept_.load(std::memory_order_relaxed) + block->capacity;
    if (__builtin_expect(kept > static_cast<std::int64_t>(limit_), 0)) return release(block);
    kept_.store(kept, std::memory_order_relaxed);
    block->next.write() = free_[block->sizeClass];
    free_[block->sizeClass] = block;
  }
  static void release(Block* block) noexcept;
  void drainReturned() noexcept;
  void freeElsewhere(Block* block) noexcept;

  static constexpr std::int64_t kOneBlock = std::int64_t{1} << 40;
  static std::int64_t bytesOf(std::int64_t waiting) noexcept { return waiting & (kOneBlock - 1); }
  static std::int64_t blocksOf(std::int64_t waiting) noexcept { return waiting / kOneBlock; }

  const std::size_t limit_;
  // Loop thread; others read the figures.
  std::array<Block*, SizeClasses::kCount> free_{};
  // The block that came back last waits here, because it is likely to be wanted next. It counts as
  // out in what follows.
  Atomic<Block*> hot_{nullptr};
  Atomic<std::uint64_t> hotUses_{0};
  Atomic<std::uint64_t> allocations_{0};
  Atomic<std::uint64_t> fromHeap_{0};
  Atomic<std::uint64_t> freedAtHome_{0};
  Atomic<std::int64_t> kept_{0};
  Atomic<const void*> home_{nullptr};
  Atomic<std::uint64_t> drained_{0};
  // What other threads give back: a stack, pushed to and taken whole, or the mark of the end.
  alignas(64) Atomic<Block*> returned_{nullptr};
  Atomic<std::int64_t> waiting_{0};  // blocks and bytes in `returned_`, those on their way included
  // Less one for each block that another thread freed. At the end the blocks still out are added;
  // whoever makes it zero then deletes the core.
  Atomic<std::int64_t> left_{0};
};

}  // namespace millrace::internal
