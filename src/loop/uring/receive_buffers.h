// SPDX-License-Identifier: Apache-2.0
// ReceiveBuffers: blocks that the kernel may fill, of which it takes one when bytes have come.
//
// A block that was filled goes to the client for good, and another one of the pool takes its place:
// nobody who keeps his bytes can make the ring run dry. How many blocks wait follows how many were
// used at once. Loop thread only.
#pragma once

#include "sys/uring.h"

#include <millrace/buffer/block.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace millrace {

class BufferPool;

class ReceiveBuffers {
 public:
  static constexpr std::uint16_t kGroup = 0;
  static constexpr int kSizePower = 12;
  static constexpr std::size_t kSize = std::size_t{1} << kSizePower;
  static constexpr unsigned kCapacity = 1024;
  static constexpr unsigned kFewest = 16;

  ReceiveBuffers() noexcept = default;
  ReceiveBuffers(const ReceiveBuffers&) = delete;
  ReceiveBuffers& operator=(const ReceiveBuffers&) = delete;
  ~ReceiveBuffers() { close(); }

  bool isOpen() const noexcept { return ring_ != nullptr; }
  /// Registers with the kernel; blocks come from `pool` until close().
  Result<void> open(Uring& uring, BufferPool& pool);
  /// The kernel must be done with them.
  void close() noexcept;

  /// The block that the kernel has filled; another one takes its place.
  internal::Block* take(std::uint16_t number);
  /// There were too few.
  void ranDry() noexcept;
  /// Shows the kernel what came since the last time.
  void publish() noexcept;

  /// Blocks that wait for bytes.
  unsigned waiting() const noexcept { return waiting_; }
  unsigned wanted() const noexcept { return wanted_; }

 private:
  void add(std::uint16_t number);
  void fill();

  // Mapped. The kernel's type for it has its array in the wrong place in C++.
  io_uring_buf* ring_ = nullptr;
  BufferPool* pool_ = nullptr;
  std::unique_ptr<internal::Block*[]> blocks_;  // by number; null: the number is free
  std::unique_ptr<std::uint16_t[]> free_;       // numbers
  unsigned freeCount_ = 0;
  std::uint16_t tail_ = 0;
  bool published_ = true;
  bool wasDry_ = false;  // since the last publish()
  unsigned waiting_ = 0;
  unsigned wanted_ = kFewest;
  unsigned used_ = 0;    // since the last publish()
  unsigned most_ = 0;    // of used_, in this period
  unsigned rounds_ = 0;  // of this period
};

}  // namespace millrace
