// SPDX-License-Identifier: Apache-2.0
// epoll: thin calls that decide nothing. Threads: as the kernel says, any thread may call any of
// them.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/sys/events.h>
#include <millrace/sys/fd.h>

#include <cstdint>

namespace millrace {

/// The kernel's struct epoll_event, bit for bit, so that this header needs none of the kernel's.
/// Read the members into variables: on x86-64 they are packed and references to them do not bind.
#if defined(__x86_64__)
struct [[gnu::packed]] EpollEvent {
#else
struct EpollEvent {
#endif
  std::uint32_t events;
  std::uint64_t data;
};

/// A new epoll instance, closed on exec. Fails with EMFILE, ENFILE, ENOMEM.
MILLRACE_API Result<Fd> epollCreate();

/// Watches `fd`; its events come with `data`. Fails with EEXIST if it is watched already, EPERM if
/// it is a file that is always ready, ENOMEM, ENOSPC (fs.epoll.max_user_watches).
MILLRACE_API Result<void> epollAdd(int ep, int fd, std::uint32_t events, std::uint64_t data);
/// Changes events and data; in edge mode reports anew what is ready. Fails with ENOENT.
MILLRACE_API Result<void> epollModify(int ep, int fd, std::uint32_t events, std::uint64_t data);
/// Ends the watch. Fails with ENOENT if there is none, EBADF if `fd` is closed.
MILLRACE_API Result<void> epollRemove(int ep, int fd);

/// Waits for events, at most `timeoutNanos` (0: looks only, negative: without limit).
///
/// Returns how many it wrote to `out`, 0 when the time is over, or -errno; -EINTR after a signal.
/// Kernels and sandboxes without epoll_pwait2 get whole milliseconds, rounded up; the process
/// remembers that. REQUIRES: capacity > 0.
MILLRACE_API int epollWait(int ep, EpollEvent* out, int capacity,
                           std::int64_t timeoutNanos) noexcept;

/// Makes the next epollWait try epoll_pwait2 again.
MILLRACE_API void forgetEpollFallbackForTest() noexcept;

}  // namespace millrace
