// SPDX-License-Identifier: Apache-2.0
// HeldWrites: plaintext that waits to be encrypted, with those who wait for it, in order. What is held counts
// against the water marks of its channel.
//
// Loop thread only.
#pragma once

#include <millrace/buffer/byte_buf.h>
#include <millrace/channel/channel.h>
#include <millrace/concurrent/future.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace millrace::tls {

class HeldWrites {
 public:
  void add(Channel& channel, ByteBuf&& bytes, Promise<void>&& done) {
    const std::size_t cost = kOverhead + bytes.pinnedBytes();
    entries_.push_back({std::move(bytes), std::move(done), cost});
    channel.countHeld(static_cast<std::ptrdiff_t>(cost));
  }
  /// All that is there may go.
  void flush() noexcept { flushed_ = entries_.size() - first_; }

  /// How many may go.
  std::size_t flushed() const noexcept { return flushed_; }
  bool empty() const noexcept { return first_ == entries_.size(); }
  /// The first one. REQUIRES: !empty()
  ByteBuf& front() noexcept { return entries_[first_].bytes; }
  /// From now on nobody can cancel it. False: somebody has. REQUIRES: !empty()
  bool beginFront() noexcept {
    const Promise<void>& done = entries_[first_].done;
    return !done.valid() || entries_[first_].begun ||
           (entries_[first_].begun = done.setUncancellable());
  }
  /// Takes the first one out; whoever waits for it is the caller's to tell. REQUIRES: !empty()
  Promise<void> pop(Channel& channel) {
    Entry entry = std::move(entries_[first_]);
    if (++first_ == entries_.size()) {
      entries_.clear();
      first_ = 0;
      if (entries_.capacity() > kKept) entries_.shrink_to_fit();
    } else if (first_ >= kKept && first_ * 2 >= entries_.size()) {
      // A queue that is never quite empty must not grow for ever.
      entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    if (flushed_ != 0) --flushed_;
    channel.countHeld(-static_cast<std::ptrdiff_t>(entry.cost));
    return std::move(entry.done);
  }

 private:
  static constexpr std::size_t kOverhead = 96;
  static constexpr std::size_t kKept = 16;  // entries whose memory an idle connection keeps
  struct Entry {
    ByteBuf bytes;
    Promise<void> done;
    std::size_t cost;
    bool begun = false;
  };

  std::vector<Entry> entries_;
  std::size_t first_ = 0;
  std::size_t flushed_ = 0;
};

}  // namespace millrace::tls
