// SPDX-License-Identifier: Apache-2.0
// BufferPool: memory for the ByteBufs of one loop, last in, first out, so that it is warm.
//
//   home thread:    allocate ──> free list of the size, or the heap      drop ──> free list
//   other threads:  drop ──push──> [returned]     the home thread takes all at once when it runs
//   dry
//
// What it keeps is bounded; what is above goes back to the heap. Blocks may outlive their pool:
// once it is closed they are freed where their last owner lets go.
#pragma once

#include <millrace/base/export.h>
#include <millrace/buffer/byte_buf.h>

#include <cstddef>
#include <cstdint>

namespace millrace {

/// What a pool has and has done.
struct BufferFigures {
  std::uint64_t allocations = 0;  ///< buffers given out
  std::uint64_t fromHeap = 0;     ///< of those, how many needed fresh memory
  std::uint64_t returned = 0;     ///< came back from other threads
  std::int64_t live = 0;          ///< blocks that are out at the moment
  std::int64_t keptBytes = 0;     ///< waiting in free lists
};

/// Loop thread only, except where a line says "any thread".
class MILLRACE_API BufferPool {
 public:
  /// The largest buffer that is kept; larger ones come from the heap and go back there.
  static constexpr std::size_t kMaxPooled = 512 * 1024;
  static constexpr std::size_t kDefaultKept = 8 * 1024 * 1024;

  /// Keeps at most `keptBytes` for later. The calling thread is its home.
  explicit BufferPool(std::size_t keptBytes = kDefaultKept);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  /// Any thread, once no other uses it.
  ~BufferPool();

  /// From now on the calling thread is its home.
  void bindToThisThread() noexcept;
  /// An empty buffer with room for at least `capacity` bytes.
  ByteBuf allocate(std::size_t capacity);
  /// What allocate(capacity) would give in truth.
  static std::size_t roundUp(std::size_t capacity) noexcept;
  /// Gives everything it keeps back to the heap.
  void trim() noexcept;
  /// Any thread; counts of one moment need not fit together.
  BufferFigures figures() const noexcept;
  /// For the library.
  internal::PoolCore& core() const noexcept { return *core_; }

 private:
  internal::PoolCore* core_;
};

}  // namespace millrace
