// SPDX-License-Identifier: Apache-2.0
// Fd: owner of one descriptor. A value that moves; closes when it dies. Threads: as its owner.
#pragma once

#include <millrace/base/export.h>

#include <utility>

namespace millrace {

/// Owns a descriptor, or nothing (-1).
class MILLRACE_API Fd {
 public:
  Fd() noexcept = default;
  /// Takes over `fd`; a negative number is nothing.
  explicit Fd(int fd) noexcept : fd_(fd < 0 ? -1 : fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  explicit operator bool() const noexcept { return valid(); }

  /// Gives the descriptor away without closing it; -1 if there was none.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

  /// Closes what it has and takes over `fd`. What close(2) answers is ignored: the descriptor is
  /// gone either way. EBADF alone is a bug of ours (closed twice) and ends the process.
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

/// True if `fd` is an open descriptor of this process.
MILLRACE_API bool isOpen(int fd) noexcept;

}  // namespace millrace
