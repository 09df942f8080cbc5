// SPDX-License-Identifier: Apache-2.0
// Uring: a submission and a completion ring of the kernel (io_uring).
//
//   next() ... next()   fill entries; the kernel does not see them yet
//   enter()             one call: submits them, waits, runs what the kernel has to do for us
//   drain()             looks at the completions and gives their places back
//
// One thread: the one that opened it. It decides nothing; every call goes through the call table.
#pragma once

#include <millrace/base/result.h>
#include <millrace/sys/fd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <linux/io_uring.h>
#include <string>

namespace millrace {

/// What the kernel offers of what we need.
struct UringSupport {
  bool usable = false;
  bool deferred = false;  ///< completions are worked on only when the thread asks for them
  std::string why;        ///< not usable: the reason, and what to do
};

/// See the top of this file.
class Uring {
 public:
  struct Sizes {
    unsigned entries = 512;
    unsigned completions = 4096;
  };

  /// Tries the flags of newer kernels first.
  static Result<Uring> open(Sizes sizes);

  Uring() noexcept = default;
  Uring(Uring&& other) noexcept { *this = std::move(other); }
  Uring& operator=(Uring&& other) noexcept;
  ~Uring() { close(); }
  void close() noexcept;

  bool isOpen() const noexcept { return fd_.valid(); }
  int fd() const noexcept { return fd_.get(); }
  bool isDeferred() const noexcept { return (flags_ & IORING_SETUP_DEFER_TASKRUN) != 0; }

  /// An empty entry, or null if the ring is full: enter() makes room.
  io_uring_sqe* next() noexcept {
    const unsigned head = std::atomic_ref<unsigned>(*at_.sqHead).load(std::memory_order_acquire);
    if (__builtin_expect(at_.sqTail - head == at_.sqEntries, 0)) return nullptr;
    io_uring_sqe* entry = &at_.entries[at_.sqTail++ & at_.sqMask];
    *entry = {};
    return entry;
  }
  /// Entries that enter() will submit.
  unsigned queued() const noexcept { return at_.sqTail - at_.sqSubmitted; }
  /// True if the kernel has something to say that needs a call.
  bool wantsCall() const noexcept {
    return (std::atomic_ref<unsigned>(*at_.sqFlags).load(std::memory_order_relaxed) &
            (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
  }
  bool hasCompletions() const noexcept {
    return std::atomic_ref<unsigned>(*at_.cqTail).load(std::memory_order_acquire) != *at_.cqHead;
  }

  /// Submits what is queued, and waits for a completion at most `timeoutNanos` (0: only looks,
  /// negative: without limit). 0, or -errno; -EBUSY and -EAGAIN: look at the completions first.
  int enter(std::int64_t timeoutNanos) noexcept;
  /// Submits what is queued, and nothing else. 0, or -errno.
  int submit() noexcept;

  /// Calls `f(const io_uring_cqe&)` for each completion that is there now. Gives how many.
  template <class F>
  unsigned drain(F&& f) {
    const unsigned tail = std::atomic_ref<unsigned>(*at_.cqTail).load(std::memory_order_acquire);
    unsigned head = *at_.cqHead;
    const unsigned count = tail - head;
    for (; head != tail; ++head) f(at_.completions[head & at_.cqMask]);
    if (count != 0) std::atomic_ref<unsigned>(*at_.cqHead).store(head, std::memory_order_release);
    return count;
  }

  /// Registers `entries` (a power of two) places for buffers at `ring`, memory of whole pages.
  Result<void> registerBuffers(void* ring, unsigned entries, std::uint16_t group) noexcept;
  void unregisterBuffers(std::uint16_t group) noexcept;

 private:
  Result<void> map(const io_uring_params& parameters);
  int call(unsigned waitFor, unsigned flags, const void* argument, std::size_t size) noexcept;

  /// What the kernel maps, and where we are in it.
  struct Rings {
    void* memory = nullptr;
    std::size_t size = 0;
    io_uring_sqe* entries = nullptr;
    std::size_t entriesSize = 0;
    unsigned* sqHead = nullptr;
    unsigned* sqKernelTail = nullptr;
    unsigned* sqFlags = nullptr;
    unsigned sqTail = 0;
    unsigned sqSubmitted = 0;
    unsigned sqMask = 0;
    unsigned sqEntries = 0;
    unsigned* cqHead = nullptr;
    unsigned* cqTail = nullptr;
    unsigned cqMask = 0;
    const io_uring_cqe* completions = nullptr;
  };

  Fd fd_;
  unsigned flags_ = 0;
  Rings at_;
};

/// Opens a ring of that size, tries it, and closes it. The kernel tidies up later, by way of the calling thread,
/// whose next call that waits may then end with EINTR: use a thread that ends.
UringSupport probeUring(Uring::Sizes sizes);

}  // namespace millrace
