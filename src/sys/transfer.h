// SPDX-License-Identifier: Apache-2.0
// recvSocket() and sendSocket(), to be inlined where every message makes these calls.
#pragma once

#include <millrace/sys/calls.h>

#include <cerrno>
#include <cstddef>
#include <sys/socket.h>

namespace millrace {

inline std::ptrdiff_t recvInline(int fd, void* to, std::size_t size) noexcept {
  for (;;) {
    const std::ptrdiff_t got = calls().recv(fd, to, size, 0);
    if (__builtin_expect(got >= 0, 1)) return got;
    if (errno != EINTR) return -errno;
  }
}

inline std::ptrdiff_t sendInline(int fd, const void* from, std::size_t size) noexcept {
  for (;;) {
    const std::ptrdiff_t sent = calls().send(fd, from, size, MSG_NOSIGNAL);
    if (__builtin_expect(sent >= 0, 1)) return sent;
    if (errno != EINTR) return -errno;
  }
}

}  // namespace millrace
