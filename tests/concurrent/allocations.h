// SPDX-License-Identifier: Apache-2.0
// Counts what `new` does in this test program. Under sanitizers nothing is counted: they need their
// own `new`, and see leaks themselves.
#pragma once

#include <cstdint>

namespace millrace::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsAllocations = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kCountsAllocations = false;
#else
inline constexpr bool kCountsAllocations = true;
#endif
#else
inline constexpr bool kCountsAllocations = true;
#endif

/// Calls of `new` by this thread so far.
std::uint64_t allocationsOfThread() noexcept;
/// Bytes that all threads have got by `new` and not given back.
std::int64_t bytesInUse() noexcept;

}  // namespace millrace::test
