// SPDX-License-Identifier: Apache-2.0
// OutboundBuffer: the messages of a channel that wait to be written, in order. For transports.
//
//   | flushed: may go to the kernel | written: wait for flush() |
//
// Threads: the channel's loop. A promise completes when its message has left the buffer; its
// listeners may write to the same channel meanwhile, so look at front() anew after each removal.
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/future.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

struct iovec;

namespace millrace {

/// See the top of this file.
class MILLRACE_API OutboundBuffer {
 public:
  /// What an entry costs apart from its bytes; it counts against the water marks.
  static constexpr std::size_t kOverhead = 96;

  OutboundBuffer();
  OutboundBuffer(const OutboundBuffer&) = delete;
  OutboundBuffer& operator=(const OutboundBuffer&) = delete;

  void add(Message&& msg, Promise<void>&& done) {
    if (__builtin_expect(count_ > mask_, 0)) grow();
    std::size_t cost = kOverhead;
    const ByteBuf* bytes = msg.isByteBuf() ? &msg.byteBuf() : bytesOf(msg);
    const void* block = nullptr;
    if (bytes != nullptr) {
      // Slices of one block that follow each other keep it once.
      block = bytes->storage();
      if (block != nullptr) {
        cost += block == lastBlock_ ? bytes->readableBytes() : bytes->pinnedBytes();
      }
    }
    lastBlock_ = block;
    Entry& entry = at(count_);
    entry.msg = std::move(msg);
    if (done.valid()) {
      ++promises_;
      entry.done = std::move(done);
    }
    entry.cost = static_cast<std::uint32_t>(cost);
    entry.cancelled = false;
    pending_ += cost;
    ++count_;
  }
  /// Comes before everything else, and may go.
  void putBack(ByteBuf&& rest);
  /// What is there now may go. Messages whose promise was cancelled go at once.
  void addFlush() {
    if (promises_ == 0) {
      flushed_ = count_;
    } else {
      flushWithPromises();
    }
  }

  bool empty() const noexcept { return count_ == 0; }
  bool hasFlushed() const noexcept { return flushed_ != 0; }
  std::size_t flushedCount() const noexcept { return flushed_; }
  std::size_t size() const noexcept { return count_; }
  /// For who keeps spare ones.
  OutboundBuffer* nextSpare = nullptr;
  /// Entries it has room for.
  std::size_t capacity() const noexcept { return mask_ + 1; }
  /// Memory that the messages keep, and the entries' own.
  std::size_t pendingBytes() const noexcept { return pending_; }
  /// Readable bytes of those among them that are bytes, or carry some (Datagram, FdMessage).
  std::size_t readableBytes() const noexcept;

  /// The i-th flushed message. REQUIRES: i < flushedCount()
  Message& flushed(std::size_t i = 0) noexcept { return at(i).msg; }
  /// The writer of the i-th flushed message cancelled it: an empty ByteBuf stands in its place.
  bool isCancelled(std::size_t i = 0) const noexcept { return at(i).cancelled; }
  /// Collects flushed ByteBufs up to the first other message, at most `maxParts` and `maxBytes`.
  /// Gives how many parts there are and sets `bytes` to their sum.
  std::size_t gather(iovec* parts, std::size_t maxParts, std::size_t maxBytes,
                     std::size_t& bytes) noexcept;
  /// `count` bytes of the first ByteBufs are written; those that are written whole, and empty ones
  /// behind them, leave.
  void removeBytes(std::size_t count) noexcept;
  /// The first message is done, or has failed.
  void removeFront(const Result<void>& outcome = {}) noexcept;
  /// Every message fails, the flushed ones first.
  void failAll(const Error& why) noexcept;
  /// Copies bytes that use under a quarter of the memory they keep; gives how many messages.
  std::size_t compact();
  /// Messages without a promise that have failed since the last call.
  std::size_t takeFailures() noexcept { return std::exchange(failures_, 0); }

 private:
  struct Entry {
    Message msg;
    Promise<void> done;
    std::uint32_t cost = 0;
    bool cancelled = false;
  };
  /// The bytes in the message; null if it has none.
  static const ByteBuf* bytesOf(const Message& msg) noexcept;
  static ByteBuf* bytesOf(Message& msg) noexcept {
    return const_cast<ByteBuf*>(bytesOf(std::as_const(msg)));  // NOLINT: it is not const
  }
  Entry& at(std::size_t i) noexcept { return ring_[(head_ + i) & mask_]; }
  const Entry& at(std::size_t i) const noexcept { return ring_[(head_ + i) & mask_]; }
  void grow();
  void flushWithPromises();

  std::unique_ptr<Entry[]> ring_;
  std::size_t mask_;  // its size, a power of two, less one
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  std::size_t flushed_ = 0;
  std::size_t compacted_ = 0;  // of the first, how many were looked at
  std::size_t pending_ = 0;
  std::size_t promises_ = 0;  // entries somebody waits for
  std::size_t failures_ = 0;
  const void* lastBlock_ = nullptr;  // of the last entry, counted already
};

}  // namespace millrace
