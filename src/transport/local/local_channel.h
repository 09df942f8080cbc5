// SPDX-License-Identifier: Apache-2.0
// LocalChannel and LocalServerChannel: connections within this process, on any engine.
//
// Messages of every type pass as they are, without being written to bytes. Loop thread only.
#pragma once

#include "transport/local/local_link.h"

#include <millrace/channel/channel.h>

#include <deque>
#include <memory>

namespace millrace {

class LocalChannel final : public Channel {
 public:
  /// Not connected yet.
  explicit LocalChannel(EventLoop& loop);
  /// The server's end of a connection.
  LocalChannel(EventLoop& loop, std::shared_ptr<LocalLink> link);

  const char* kind() const noexcept override { return "local"; }
  SocketAddress localAddress() const override;
  SocketAddress remoteAddress() const override;
  /// The other end has sent something, has ended, or can take more. Loop thread.
  void peerMoved();

 private:
  Result<void> doRegister() override;
  void doDeregister() noexcept override {}
  Result<void> doBind(const SocketAddress& local) override;
  Result<bool> doConnect(const SocketAddress& remote, const SocketAddress& local) override;
  void doClose() noexcept override;
  Result<void> doShutdownOutput() override;
  void doBeginRead() override;
  int doWrite(OutboundBuffer& out) override;
  bool acceptsMessage(const Message&) const override { return true; }
  bool isActiveNow() const noexcept override { return link_ != nullptr; }
  bool canLinger() const noexcept override { return true; }
  void doLinger() override { readLater(); }

  void readLater();
  void readSome();

  std::shared_ptr<LocalLink> link_;  // shared with the other end
  SocketAddress bound_;
  const LocalLink::Side side_;
  bool scheduled_ = false;  // readSome() is queued
};

class LocalServerChannel final : public Channel {
 public:
  explicit LocalServerChannel(EventLoop& loop) : Channel(loop) {}

  const char* kind() const noexcept override { return "local server"; }
  SocketAddress localAddress() const override {
    return mayReadAddresses() ? local_ : SocketAddress();
  }
  /// A client has come. Loop thread.
  void connected(std::shared_ptr<LocalLink> link);

 private:
  Result<void> doRegister() override { return {}; }
  void doDeregister() noexcept override {}
  Result<void> doBind(const SocketAddress& local) override;
  void doClose() noexcept override;
  void doBeginRead() override;
  int doWrite(OutboundBuffer& out) override;
  bool isActiveNow() const noexcept override { return static_cast<bool>(local_); }

  void acceptWaiting();

  SocketAddress local_;
  std::deque<std::shared_ptr<LocalLink>> waiting_;  // shared with the clients
  bool scheduled_ = false;
};

}  // namespace millrace
