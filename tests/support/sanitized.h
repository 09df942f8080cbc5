// SPDX-License-Identifier: Apache-2.0
// MR_TEST_SANITIZED: defined in builds with a sanitizer, which opens descriptors of its own, is slow
// and has its own allocator.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MR_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MR_TEST_SANITIZED
#endif
#endif

namespace millrace::test {

#ifdef MR_TEST_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace millrace::test
