// SPDX-License-Identifier: Apache-2.0
// futex: sleep while a word has a value. Within one process; any thread.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/clock.h>
#include <millrace/base/export.h>

#include <cerrno>
#include <cstdint>

namespace millrace {

#if defined(MILLRACE_EXPLORE)

// The explorer schedules the sleepers itself; `until` is a moment of its virtual time.
inline int futexWait(const Atomic<std::uint32_t>& word, std::uint32_t expected,
                     Deadline until) noexcept {
  const auto result = explorer::futexWait(word, expected, until.nanos());
  return result == explorer::FutexResult::kTimedOut ? -ETIMEDOUT : 0;
}
inline void futexWake(const Atomic<std::uint32_t>& word, int count) noexcept {
  explorer::futexWake(word, count);
}

#else

/// Sleeps while `word` is `expected`, until a wake or `until`, a moment on Clock::real().
///
/// Returns 0 when woken or when the word had another value, -ETIMEDOUT, or -EINTR after a signal. 0
/// may be spurious: look at the word again.
MILLRACE_API int futexWait(const Atomic<std::uint32_t>& word, std::uint32_t expected,
                           Deadline until) noexcept;

/// Wakes up to `count` sleepers. `word` is used as an address only and may be dead memory by then.
MILLRACE_API void futexWake(const Atomic<std::uint32_t>& word, int count) noexcept;

#endif

}  // namespace millrace
