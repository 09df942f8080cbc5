// SPDX-License-Identifier: Apache-2.0
#include "concurrent/allocations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <memory>
#include <new>
#include <thread>

namespace {

constinit thread_local std::uint64_t tlsAllocations = 0;
constinit std::atomic<std::int64_t> bytes{0};

}  // namespace

namespace millrace::test {

std::uint64_t allocationsOfThread() noexcept { return tlsAllocations; }
std::int64_t bytesInUse() noexcept { return bytes.load(std::memory_order_relaxed); }

}  // namespace millrace::test

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !defined(__has_feature)
#define MR_COUNT_NEW 1
#elif !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define MR_COUNT_NEW 1
#endif
#endif

#if defined(MR_COUNT_NEW)

namespace {

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  ++tlsAllocations;
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

namespace millrace::test {
namespace {

TEST(Allocations, AreCountedPerThreadAndInBytes) {
  if (!kCountsAllocations) return;  // nothing to prove
  const std::uint64_t before = allocationsOfThread();
  const std::int64_t bytesBefore = bytesInUse();

  auto* one = new std::uint64_t[64];
  const std::uint64_t after = allocationsOfThread();
  const std::int64_t held = bytesInUse();
  delete[] one;
  struct alignas(64) Wide {
    char bytes[64];
  };
  auto two = std::make_unique<Wide>();
  const std::uint64_t last = allocationsOfThread();
  two.reset();

  EXPECT_EQ(after - before, 1U);
  EXPECT_EQ(last - after, 1U);
  EXPECT_GE(held - bytesBefore, 512);
  EXPECT_EQ(bytesInUse(), bytesBefore);
}

}  // namespace
}  // namespace millrace::test
