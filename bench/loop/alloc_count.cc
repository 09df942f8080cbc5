// SPDX-License-Identifier: Apache-2.0
//
// Counts every allocation of the process by standing in front of glibc's malloc (operator new ends
// there too).
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)  // libstdc++ and the libraries have to find these

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

static std::atomic<uint64_t> allocated{0};

uint64_t benchAllocations() { return allocated.load(std::memory_order_relaxed); }

void* malloc(size_t size) {
  allocated.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  allocated.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) {
  allocated.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  allocated.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}

void* memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }

int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = aligned_alloc(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}

}  // extern "C"

#pragma GCC visibility pop
