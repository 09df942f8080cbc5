// SPDX-License-Identifier: Apache-2.0
// What Unix sockets do beyond others: they carry descriptors and know who is at the other end.
// Thin; threads: any.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/sys/fd.h>

#include <cstddef>
#include <cstdint>
#include <span>

struct iovec;

namespace millrace {

/// The most descriptors that one message carries (the kernel's SCM_MAX_FD).
inline constexpr std::size_t kMaxFdsPerMessage = 253;

/// Sends bytes as sendParts does, and descriptors with the first of them. The receiver gets
/// duplicates; the sender's stay open and may be closed at once.
///
/// Returns the bytes sent or -errno. On a stream that may be fewer than given: the descriptors are
/// gone all the same, so send the rest without them. -EINVAL for more than kMaxFdsPerMessage, and
/// for descriptors without any bytes, which a stream would lose; -ETOOMANYREFS if too many are
/// under way. Never allocates.
MILLRACE_API std::ptrdiff_t sendWithFds(int fd, const iovec* parts, int count,
                                        std::span<const int> fds) noexcept;

/// What one recvWithFds brought.
struct FdsReceived {
  std::ptrdiff_t bytes = 0;  ///< 0 at the end of input, or -errno
  std::size_t fds = 0;       ///< how many were put into the room, from its beginning
  /// More were sent than there was room for, or than this process may open. They are closed.
  bool truncated = false;
};

/// Receives bytes as readParts does, and the descriptors that came with them. They are closed on
/// exec. What `room` held there before is closed. Never allocates.
///
/// A stream gives the descriptors of one message at a time. A receiver without room for descriptors
/// is safe from those of others: recvSocket and readParts make the kernel drop them.
MILLRACE_API FdsReceived recvWithFds(int fd, const iovec* parts, int count,
                                     std::span<Fd> room) noexcept;

/// Who made or connected the other end, at that time.
struct PeerCredentials {
  std::int32_t pid = 0;  ///< 0 if there is no peer, or none that this process can see
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

/// SO_PEERCRED, which the kernel vouches for. Fails with ENOTCONN where there is no peer and on
/// sockets that are no Unix ones.
MILLRACE_API Result<PeerCredentials> peerCredentials(int fd);

}  // namespace millrace
