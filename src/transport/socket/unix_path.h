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

}  // namespace millrace
