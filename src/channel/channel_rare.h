// SPDX-License-Identifier: Apache-2.0
// What few channels need at a time, so that the others need no memory for it.
#pragma once

#include <millrace/channel/channel.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/sys/socket_address.h>

#include <vector>

namespace millrace {

struct Channel::Rare {
  Error closeCause;
  std::vector<Promise<void>> closers;        // wait until a write under way has ended
  std::vector<Promise<void>> deregisterers;  // wait until no callback is on the stack
  std::vector<Promise<void>> outputEnders;   // wait until what was flushed is written
  Promise<void> connected;
  SocketAddress connectingTo;
  std::size_t held = 0;   // bytes that handlers hold back
  ScheduledFuture timer;  // of the connect, or of the lingering close
};

}  // namespace millrace
