// SPDX-License-Identifier: Apache-2.0
#include "sys/timeout.h"

#include <millrace/base/check.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/futex.h>

#include <cerrno>
#include <linux/futex.h>

#if !defined(MILLRACE_EXPLORE)

namespace millrace {

namespace {

static_assert(sizeof(Atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(Atomic<std::uint32_t>::is_always_lock_free);

const std::uint32_t* addressOf(const Atomic<std::uint32_t>& word) noexcept {
  return reinterpret_cast<const std::uint32_t*>(&word);
}

}  // namespace

int futexWait(const Atomic<std::uint32_t>& word, std::uint32_t expected, Deadline until) noexcept {
  timespec limit{};
  if (until.nanos() > 0) limit = toTimespec(until.nanos());
  // The bitset form takes a moment instead of a span, so nothing is lost between clock and call.
  const long answer =
      calls().futex(addressOf(word), FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                    until.isNever() ? nullptr : &limit, FUTEX_BITSET_MATCH_ANY);
  if (answer == 0 || errno == EAGAIN) return 0;
  MR_CHECK(errno == ETIMEDOUT || errno == EINTR, "futex(wait) failed in a way it must not");
  return -errno;
}

void futexWake(const Atomic<std::uint32_t>& word, int count) noexcept {
  const long answer = calls().futex(addressOf(word), FUTEX_WAKE | FUTEX_PRIVATE_FLAG,
                                    static_cast<std::uint32_t>(count), nullptr, 0);
  // The address may have become somebody else's memory, or nobody's (EFAULT): then nobody waits.
  MR_CHECK(answer >= 0 || errno == EFAULT, "futex(wake) failed in a way it must not");
}

}  // namespace millrace

#endif
