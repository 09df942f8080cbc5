// SPDX-License-Identifier: Apache-2.0
// The atomic shim: what lock-free code of Millrace is written with.
//
// In the library `Atomic<T>` is `std::atomic<T>`, `Plain<T>` is a bare T and `cpuRelax` a pause.
// The interleaving tests compile the same sources a second time with MILLRACE_EXPLORE defined; then
// these names come from tests/interleave/explorer_atomic.h, where every access is a scheduling
// point of the explorer, stores wait in modelled store buffers and accesses to `Plain` data are
// checked for races.
#pragma once

#if defined(MILLRACE_EXPLORE)

#include "explorer_atomic.h"  // found by the include path of the interleaving tests only

#else

#include <atomic>
#include <mutex>
#include <utility>

namespace millrace {

template <class T>
using Atomic = std::atomic<T>;

using MemoryOrder = std::memory_order;

/// A mutex that the explorer can see. Used where a lock takes part in an explored protocol.
using Mutex = std::mutex;

/// Data that is not atomic but handed between threads by the atomics around it.
/// Reads and writes are checked for races by the explorer and free in the library.
template <class T>
class Plain {
 public:
  Plain() = default;
  explicit Plain(T value) : value_(std::move(value)) {}
  const T& read() const { return value_; }
  T& write() { return value_; }

 private:
  T value_{};
};

/// Tells the processor that this is a spinning loop.
inline void cpuRelax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace millrace

#endif
