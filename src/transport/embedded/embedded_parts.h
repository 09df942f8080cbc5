// SPDX-License-Identifier: Apache-2.0
// What an EmbeddedChannel has: its loop, and the two ends of its network.
#pragma once

#include <millrace/base/manual_clock.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/socket_address.h>
#include <millrace/transport/embedded_channel.h>

#include <deque>
#include <limits>

namespace millrace {

struct EmbeddedChannel::Parts {
  /// Room for everything.
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  Parts();

  ManualClock clock;  // outlives the loop's last turn
  Ref<EventLoop> loop;

  // What the peer has sent, and what of it came through.
  std::deque<Message> waiting;
  std::deque<Message> inbound;
  std::deque<Message> userEvents;
  std::deque<Error> errors;
  bool inputEnds = false;  // behind what waits
  bool reading = false;    // a burst is on the stack

  // What the peer gets.
  std::deque<Message> outbound;
  std::size_t room = kNoLimit;  // bytes that the peer still takes
  Error failure;                // of the next `failures` messages
  std::size_t failures = 0;
  int brokenBy = 0;  // errno of the next write
  bool outputEnded = false;

  SocketAddress local;
  SocketAddress remote;
  bool connected = true;
  bool holdsConnects = false;
};

}  // namespace millrace
