// SPDX-License-Identifier: Apache-2.0
// Binding to a path, where what a dead process left behind is in the way.
#pragma once

#include <millrace/base/result.h>
#include <millrace/sys/socket.h>

namespace millrace {

/// bindSocket(); a path that is taken fails with EADDRINUSE as any address, and the text says
/// whether somebody is there, and what to do if not. Removes nothing: only the user knows whose
/// path it is.
Result<void> bindOrExplain(int fd, const SocketAddress& address, SocketType type);

/// The path that a socket was bound to, if it was one: it goes with the socket, unless somebody else
/// has put his own there meanwhile.
class BoundPath {
 public:
  /// bindOrExplain() has succeeded.
  void took(const SocketAddress& address);
  /// The socket is closed.
  void release() noexcept;

 private:
  SocketAddress address_;  // none: nothing to remove
  FileStatus mine_;        // without a device if it could not be looked at
};

}  // namespace millrace
