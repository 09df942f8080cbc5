// SPDX-License-Identifier: Apache-2.0
// eventfd: a counter that wakes whoever waits for it to become readable. Any thread.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/sys/fd.h>

#include <cstdint>

namespace millrace {

/// A new counter at 0, nonblocking, closed on exec. Fails with EMFILE, ENFILE, ENOMEM.
MILLRACE_API Result<Fd> eventFd();

/// Adds `n`; in edge mode this is an event even if the counter was not 0. Returns 0 or -errno,
/// -EAGAIN if the counter would overflow (it is readable then).
MILLRACE_API int eventWrite(int fd, std::uint64_t n) noexcept;

/// Takes the whole counter and leaves 0; 0 if nothing was there.
MILLRACE_API Result<std::uint64_t> eventRead(int fd);

}  // namespace millrace
