// SPDX-License-Identifier: Apache-2.0
#include "transport/local/local_channel.h"

#include "channel/channel_fast.h"
#include "transport/local/local_registry.h"

#include <millrace/channel/transport.h>
#include <millrace/loop/event_loop.h>

#include <cerrno>
#include <utility>

namespace millrace {

// --- one end of a connection ---

LocalChannel::LocalChannel(EventLoop& loop) : Channel(loop), side_(LocalLink::Side::client) {}

LocalChannel::LocalChannel(EventLoop& loop, std::shared_ptr<LocalLink> link)
    : Channel(loop), link_(std::move(link)), side_(LocalLink::Side::server) {
  addressesAreKnown();
}

SocketAddress LocalChannel::localAddress() const {
  if (!mayReadAddresses()) return {};
  return link_ == nullptr ? bound_ : link_->addressOf(side_);
}

SocketAddress LocalChannel::remoteAddress() const {
  if (!mayReadAddresses() || link_ == nullptr) return {};
  return link_->addressOf(side_ == LocalLink::Side::client ? LocalLink::Side::server
                                                           : LocalLink::Side::client);
}

Result<void> LocalChannel::doRegister() {
  if (link_ != nullptr) link_->attach(side_, ChannelPtr(this));
  return {};
}

Result<void> LocalChannel::doBind(const SocketAddress& local) {
  bound_ = local;
  return {};
}

Result<bool> LocalChannel::doConnect(const SocketAddress& remote, const SocketAddress& local) {
  if (local) bound_ = local;
  const ChannelPtr server = LocalRegistry::get().find(remote);
  if (!server) return Error::fromErrno(ECONNREFUSED, "connect", remote.toString());
  if (!bound_) bound_ = LocalRegistry::get().anyAddress();
  link_ = std::make_shared<LocalLink>(bound_, remote);
  link_->attach(side_, ChannelPtr(this));
  const bool taken = server->loop().executeOwn(
      [server, link = link_] { static_cast<LocalServerChannel&>(*server).connected(link); });
  if (taken) return true;
  link_->detach(side_);
  return Error::fromErrno(ECONNREFUSED, "connect", remote.toString());
}

void LocalChannel::doClose() noexcept {
  if (link_ != nullptr) link_->detach(side_);
}

Result<void> LocalChannel::doShutdownOutput() {
  if (link_ != nullptr) link_->endOutput(side_);
  return {};
}

void LocalChannel::peerMoved() {
  const Scope scope(*this);
  if (!isOpen() || !isRegistered()) return;  // it looks when it is registered again
  flushAgain();
  if (isOpen() && (mayReadOn() || isLingering())) readSome();
}

void LocalChannel::doBeginRead() {
  if (link_ != nullptr && link_->hasInput(side_)) readLater();
}

void LocalChannel::readLater() {
  if (std::exchange(scheduled_, true)) return;
  loop().executeOwn([self = ChannelPtr(this)] {
    auto& channel = static_cast<LocalChannel&>(*self);
    const Scope scope(channel);
    channel.scheduled_ = false;
    if (!channel.isOpen() || !channel.isRegistered()) return;
    if (channel.mayReadOn() || channel.isLingering()) channel.readSome();
  });
}

void LocalChannel::readSome() {
  if (isLingering()) {
    LocalLink::Pulled waste;
    do {
      waste = link_->pull(side_);
    } while (waste.msg);
    if (waste.ended && isOutputEnded()) lingerDone();
    return;
  }
  if (!beginBurst()) return;
  int reads = 0;
  LocalLink::Pulled pulled;
  do {
    pulled = link_->pull(side_);
    if (!pulled.msg) break;
    ++reads;
    if (const ByteBuf* bytes = pulled.msg->as<ByteBuf>()) {
      local().count(LoopChannels::bytesRead, bytes->readableBytes());
    }
    passRead(std::move(*pulled.msg));
  } while (reads < settings().maxMessagesPerRead && mayContinueBurst());
  endBurst(reads != 0);
  if (pulled.ended) {
    inputEnded();
  } else if (isOpen() && mayReadOn() && link_->hasInput(side_)) {
    readLater();
  }
}

int LocalChannel::doWrite(OutboundBuffer& out) {
  while (out.hasFlushed()) {
    Message& first = out.flushed();
    const ByteBuf* bytes = first.as<ByteBuf>();
    const std::size_t size = bytes == nullptr ? 0 : bytes->readableBytes();
    // Owners on this loop keep theirs: what goes to another thread is its own.
    switch (link_->push(side_, first)) {
      case LocalLink::Push::gone:
        return EPIPE;
      case LocalLink::Push::full:
        kernelIsFull();
        return 0;
      case LocalLink::Push::taken:
        break;
    }
    local().count(LoopChannels::bytesWritten, size);
    out.removeFront();
    if (!isOpen()) return 0;  // a listener closed it
  }
  return 0;
}

// --- the listening one ---

Result<void> LocalServerChannel::doBind(const SocketAddress& local) {
  const SocketAddress wanted = local.name().empty() ? LocalRegistry::get().anyAddress() : local;
  if (!LocalRegistry::get().add(wanted, ChannelPtr(this))) {
    return Error::fromErrno(EADDRINUSE, "bind", wanted.toString());
  }
  local_ = wanted;
  addressesAreKnown();
  return {};
}

void LocalServerChannel::doClose() noexcept {
  if (local_) LocalRegistry::get().remove(local_);
  for (const std::shared_ptr<LocalLink>& link : waiting_) link->detach(LocalLink::Side::server);
  waiting_.clear();
}

void LocalServerChannel::connected(std::shared_ptr<LocalLink> link) {
  const Scope scope(*this);
  if (!isOpen()) {
    link->detach(LocalLink::Side::server);
    return;
  }
  waiting_.push_back(std::move(link));
  if (isRegistered() && mayReadOn()) acceptWaiting();
}

void LocalServerChannel::doBeginRead() {
  if (waiting_.empty() || std::exchange(scheduled_, true)) return;
  loop().executeOwn([self = ChannelPtr(this)] {
    auto& server = static_cast<LocalServerChannel&>(*self);
    const Scope scope(server);
    server.scheduled_ = false;
    if (server.isRegistered() && server.mayReadOn()) server.acceptWaiting();
  });
}

void LocalServerChannel::acceptWaiting() {
  if (!beginBurst()) return;
  int taken = 0;
  while (!waiting_.empty() && taken < settings().maxMessagesPerRead) {
    AcceptedSocket accepted;
    accepted.peer = waiting_.front()->addressOf(LocalLink::Side::client);
    accepted.inProcess = LocalLink::serverEnd(std::move(waiting_.front()));
    waiting_.pop_front();
    ++taken;
    passRead(Message(std::move(accepted)));
    if (!mayContinueBurst()) break;
  }
  endBurst(taken != 0);
  if (isOpen() && mayReadOn()) doBeginRead();
}

int LocalServerChannel::doWrite(OutboundBuffer& out) {
  out.failAll(Error(Errc::notSupported, "write", describe() + " (it only accepts)"));
  return 0;
}

}  // namespace millrace
