// SPDX-License-Identifier: Apache-2.0
// Memory for large arrays: aligned to 2 MiB and backed by huge pages where the system has them.
//
// A million timers spread over 4 KiB pages cost a page-table walk per access; measured, that is
// more than the work itself. Any thread.
#pragma once

#include <millrace/base/export.h>

#include <cstddef>
#include <new>

namespace millrace::internal {

inline constexpr std::size_t kLargePage = std::size_t{1} << 21;

enum class Pages { small, huge };

/// `bytes`, a multiple of kLargePage, aligned to kLargePage, zeroed. Ends the process if there is
/// none.
MILLRACE_API void* mapLarge(std::size_t bytes, Pages pages);
MILLRACE_API void unmapLarge(void* memory, std::size_t bytes) noexcept;

/// An allocator for vectors that may become large: huge pages from 2 MiB on, operator new below.
template <class T>
struct LargeAllocator {
  using value_type = T;

  LargeAllocator() noexcept = default;
  template <class U>
  LargeAllocator(const LargeAllocator<U>&) noexcept {}  // NOLINT: what the standard asks for

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kLargePage) return static_cast<T*>(::operator new(bytes));
    return static_cast<T*>(mapLarge(rounded(bytes), Pages::huge));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kLargePage) {
      ::operator delete(memory);
    } else {
      unmapLarge(memory, rounded(bytes));
    }
  }
  friend bool operator==(const LargeAllocator&, const LargeAllocator&) noexcept { return true; }

 private:
  static std::size_t rounded(std::size_t bytes) noexcept {
    return (bytes + kLargePage - 1) & ~(kLargePage - 1);
  }
};

}  // namespace millrace::internal
