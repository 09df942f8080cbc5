// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/fd.h>

#include <cerrno>
#include <fcntl.h>

namespace millrace {

void Fd::reset(int fd) noexcept {
  const int old = std::exchange(fd_, fd < 0 ? -1 : fd);
  if (old < 0) return;
  MR_CHECK(old != fd_, "Fd::reset() with the descriptor that it has");
  // Linux frees the number before it can fail: trying again after EINTR could close a stranger's.
  const int before = errno;
  const int answer = calls().close(old);
  MR_CHECK(answer == 0 || errno != EBADF, "a descriptor was closed twice");
  errno = before;
}

bool isOpen(int fd) noexcept { return fd >= 0 && calls().fcntl(fd, F_GETFD, 0) != -1; }

}  // namespace millrace
