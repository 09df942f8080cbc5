// SPDX-License-Identifier: Apache-2.0
// One recv() or send(), to be inlined where every message makes these calls. Unlike recvSocket() and
// sendSocket() they do not try again after a signal: the caller gets -EINTR and goes to those. Whoever sends says
// MSG_NOSIGNAL himself.
#pragma once

#include <millrace/sys/calls.h>

#include <cerrno>
#include <cstddef>
#include <sys/socket.h>

namespace millrace {

inline std::ptrdiff_t recvOnce(int fd, void* to, std::size_t size, int flags) noexcept {
  const std::ptrdiff_t got = calls().recv(fd, to, size, flags);
  return __builtin_expect(got >= 0, 1) ? got : -errno;
}

inline std::ptrdiff_t sendOnce(int fd, const void* from, std::size_t size, int flags) noexcept {
  const std::ptrdiff_t sent = calls().send(fd, from, size, flags);
  return __builtin_expect(sent >= 0, 1) ? sent : -errno;
}

}  // namespace millrace
