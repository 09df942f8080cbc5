// SPDX-License-Identifier: Apache-2.0
#include "tls/handshake_gate.h"

#include "tls/connection.h"

#include <millrace/base/attribute_map.h>
#include <millrace/loop/event_loop.h>

#include <utility>

namespace millrace::tls {

namespace {

const AttributeKey<HandshakeGate> kGate{"tls.handshakes"};

}  // namespace

std::shared_ptr<HandshakeGate> HandshakeGate::of(EventLoop& loop) {
  return loop.attributes().getOrCreate(kGate, [] { return std::make_shared<HandshakeGate>(); });
}

bool HandshakeGate::enter(EventLoop& loop, int perTurn,
                          const std::shared_ptr<Connection>& connection) {
  const bool hasRoom = used_ < perTurn && waiting_.empty();
  if (hasRoom) {
    ++used_;
  } else {
    waiting_.push_back({connection, perTurn});
  }
  postNextTurn(loop);
  return hasRoom;
}

void HandshakeGate::postNextTurn(EventLoop& loop) {
  if (isPosted_) return;
  isPosted_ = loop.executeOwn([self = shared_from_this(), &loop] { self->nextTurn(loop); });
}

void HandshakeGate::nextTurn(EventLoop& loop) {
  isPosted_ = false;
  used_ = 0;
  while (!waiting_.empty() && used_ < waiting_.front().perTurn) {
    const std::shared_ptr<Connection> next = std::move(waiting_.front().connection);
    waiting_.pop_front();
    // One that has gone meanwhile costs nothing.
    if (next->admitted()) ++used_;
  }
  if (used_ != 0 || !waiting_.empty()) postNextTurn(loop);
}

}  // namespace millrace::tls
