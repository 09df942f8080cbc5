// SPDX-License-Identifier: Apache-2.0
// HandshakeGate: the handshakes of one loop, a few per turn. A handshake is tenths of a millisecond of arithmetic;
// when a thousand clients come at once, those who are there already get their turn in between.
//
//   turn:   I/O ── connections that have room go on at once, the others queue
//           tasks ── the next ones of the queue, then a task for the next turn if somebody is left
//
// Loop thread only. One per loop, in its attributes.
#pragma once

#include <deque>
#include <memory>

namespace millrace {
class EventLoop;
}

namespace millrace::tls {

class Connection;

class HandshakeGate final : public std::enable_shared_from_this<HandshakeGate> {
 public:
  static std::shared_ptr<HandshakeGate> of(EventLoop& loop);

  /// True: go on. False: `connection` waits, and its admitted() is called in a later turn.
  bool enter(EventLoop& loop, int perTurn, const std::shared_ptr<Connection>& connection);

 private:
  void nextTurn(EventLoop& loop);
  void postNextTurn(EventLoop& loop);

  struct Waiting {
    std::shared_ptr<Connection> connection;  // shared with its handler, which may go meanwhile
    int perTurn;
  };
  std::deque<Waiting> waiting_;
  int used_ = 0;  // in this turn
  bool isPosted_ = false;
};

}  // namespace millrace::tls
