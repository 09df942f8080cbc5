// SPDX-License-Identifier: Apache-2.0
// poll: waits for a few descriptors that are listed anew at each call. Any thread.
#pragma once

#include <millrace/base/export.h>
#include <millrace/sys/events.h>

#include <cstddef>
#include <cstdint>

namespace millrace {

/// The kernel's struct pollfd, bit for bit. A negative `fd` is passed over. The bits are those of
/// events.h that fit.
struct PollEntry {
  int fd;
  std::int16_t events;
  std::int16_t revents;
};

/// Waits until one of the `count` entries has an event, at most `timeoutNanos` (0: looks only,
/// negative: without limit). Returns how many have, 0 when the time is over, or -errno; -EINTR
/// after a signal.
MILLRACE_API int pollWait(PollEntry* entries, std::size_t count,
                          std::int64_t timeoutNanos) noexcept;

}  // namespace millrace
