// SPDX-License-Identifier: Apache-2.0
// Block: counted memory behind ByteBufs. Users meet it only through ByteBuf and BufferPool.
//
//   ByteBuf ──┐
//   ByteBuf ──┼──> Block { owners, home } | bytes ...
//   ByteBuf ──┘
//
// Threads: owners may live on any threads; the last one to let go sends the block home. While a
// block has one owner, that owner may write to it.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/export.h>
#include <millrace/base/task.h>

#include <cstddef>
#include <cstdint>

namespace millrace::internal {

class PoolCore;

struct Block {
  Atomic<std::uint32_t> owners{1};
  std::uint32_t capacity = 0;
  std::byte* bytes = nullptr;
  PoolCore* home = nullptr;  // null: from the heap, or somebody else's memory
  Plain<Block*> next{nullptr};
  std::uint32_t sizeClass = 0;  // in its pool
  bool external = false;        // an ExternalBlock

  void share() noexcept { owners.fetch_add(1, std::memory_order_relaxed); }
  /// The only owner may write, and nobody else can become one meanwhile.
  bool isShared() const noexcept { return owners.load(std::memory_order_acquire) != 1; }
  void drop() noexcept {
    // The last owner needs no atomic write: nobody else can add one any more.
    if (isShared() && owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    goHome(this);
  }

  /// A block of at least `capacity` bytes, without a pool. Running out of memory ends the process.
  MILLRACE_API static Block* fromHeap(std::size_t capacity);
  /// `memory` of somebody else; `release` runs on the thread of the last owner.
  MILLRACE_API static Block* around(void* memory, std::size_t size, Task release);
  MILLRACE_API static void goHome(Block* block) noexcept;
};

/// Blocks of the heap and wrapped ones that are alive in this process. Any thread.
MILLRACE_API std::int64_t liveHeapBlocks() noexcept;

}  // namespace millrace::internal
