// SPDX-License-Identifier: Apache-2.0
#include <millrace/sys/calls.h>
#include <millrace/sys/eventfd.h>

#include <cerrno>
#include <string>
#include <sys/eventfd.h>

namespace millrace {

Result<Fd> eventFd() {
  Fd made(calls().eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!made.valid()) return Error::fromErrno(errno, "eventfd");
  return made;
}

int eventWrite(int fd, std::uint64_t n) noexcept {
  for (;;) {
    if (calls().write(fd, &n, sizeof n) >= 0) return 0;
    if (errno != EINTR) return -errno;
  }
}

Result<std::uint64_t> eventRead(int fd) {
  for (;;) {
    std::uint64_t n = 0;
    if (calls().read(fd, &n, sizeof n) >= 0) return n;
    if (errno == EAGAIN) return std::uint64_t{0};
    if (errno != EINTR) return Error::fromErrno(errno, "read(eventfd)", "fd " + std::to_string(fd));
  }
}

}  // namespace millrace
