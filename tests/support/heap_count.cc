// SPDX-License-Identifier: Apache-2.0
#include "support/heap_count.h"

#include "support/sanitized.h"

#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace {

constinit thread_local std::uint64_t tlsCalls = 0;
constinit std::atomic<std::int64_t> bytes{0};

}  // namespace

namespace millrace::test {

std::uint64_t heapCallsOfThread() noexcept { return tlsCalls; }
std::int64_t heapBytes() noexcept { return bytes.load(std::memory_order_relaxed); }
bool countsHeap() noexcept {
#if defined(MR_TEST_SANITIZED)
  return false;
#else
  return true;
#endif
}

}  // namespace millrace::test

#if !defined(MR_TEST_SANITIZED)

namespace {

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  ++tlsCalls;
  bytes.fetch_add(static_cast<std::int64_t>(::malloc_usable_size(memory)),
                  std::memory_order_relaxed);
  return memory;
}

void giveBack(void* memory) noexcept {
  if (memory == nullptr) return;
  bytes.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(memory)),
                  std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void* operator new(std::size_t size, std::align_val_t align) {
  const auto step = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(step, (size + step - 1) / step * step));
}
void operator delete(void* memory) noexcept { giveBack(memory); }
void operator delete(void* memory, std::size_t) noexcept { giveBack(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { giveBack(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { giveBack(memory); }

#endif
