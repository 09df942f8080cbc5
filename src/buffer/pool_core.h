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
};

class PoolCore {
 public:
  explicit PoolCore(std::size_t keptBytes) noexcept : limit_(keptBytes) { bind(); }
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;

  // --- home thread ---
  void bind() noexcept;
  Block* allocate(std::size_t capacity);
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
  /// From a thread that is not home.
  void giveBack(Block* block) noexcept;
  std::uint64_t allocations() const noexcept {
    return allocations_.load(std::memory_order_relaxed);
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
  void keep(Block* block) noexcept;
  void drainReturned() noexcept;
  void freeElsewhere(Block* block) noexcept;

  static constexpr std::int64_t kOneBlock = std::int64_t{1} << 40;
  static std::int64_t bytesOf(std::int64_t waiting) noexcept { return waiting & (kOneBlock - 1); }
  static std::int64_t blocksOf(std::int64_t waiting) noexcept { return waiting / kOneBlock; }

  const std::size_t limit_;
  // Loop thread; others read the figures.
  std::array<Block*, SizeClasses::kCount> free_{};
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
