// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>
#include <millrace/base/large_memory.h>

#include <cstdint>
#include <sys/mman.h>

namespace millrace::internal {

void* mapLarge(std::size_t bytes, Pages pages) {
  // One page more than asked for, so that an aligned run of the right size lies within; the ends go
  // back at once.
  const std::size_t mapped = bytes + kLargePage;
  void* raw = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MR_CHECK(raw != MAP_FAILED, "out of memory");
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = (begin + kLargePage - 1) & ~(kLargePage - 1);
  const std::size_t before = aligned - begin;
  if (before != 0) ::munmap(raw, before);
  auto* memory = static_cast<char*>(raw) + before;
  if (before != kLargePage) ::munmap(memory + bytes, kLargePage - before);
  if (pages == Pages::huge) ::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish, no more
  return memory;
}

void unmapLarge(void* memory, std::size_t bytes) noexcept { ::munmap(memory, bytes); }

}  // namespace millrace::internal
