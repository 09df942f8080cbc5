// SPDX-License-Identifier: Apache-2.0
// ServerCore: a server's listening channels, how connections become channels, and how it drains.
#pragma once

#include "bootstrap/drain.h"

#include <millrace/bootstrap/server_bootstrap.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/transport.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/loop_source.h>
#include <millrace/sys/socket_address.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace millrace::internal {

/// Shared by the server's handles and the listening channels' acceptors.
class ServerCore final : public std::enable_shared_from_this<ServerCore> {
 public:
  explicit ServerCore(const ServerBootstrap& from);

  /// Any thread.
  static Future<Server> bind(const ServerBootstrap& from, std::vector<SocketAddress> addresses);

  /// A connection becomes a channel of a worker loop. On the listening channel's loop.
  void adopt(Channel& listener, AcceptedSocket&& socket);

  const LoopSource& boss() const noexcept { return *boss_; }
  const std::vector<ChannelPtr>& listeners() const noexcept { return listeners_; }
  Future<void> closeFuture();
  Future<void> close();
  Future<DrainReport> drain(Duration timeout);

 private:
  struct Binding;
  Result<ChannelPtr> listen(EventLoop& loop, const SocketAddress& address, Promise<void> bound);
  void beginToAccept();
  void adoptHere(EventLoop& loop, const ChannelPtr& listener, AcceptedSocket&& socket);

  const std::shared_ptr<LoopSource> boss_;     // shared with the group
  const std::shared_ptr<LoopSource> workers_;  // shared with the group
  const Transport* const listening_;           // null: by the loop's engine
  const Transport* const connections_;
  const ChannelSetup parent_;
  const ChannelSetup child_;
  const bool perLoop_;
  std::atomic<bool> acceptsByItself_{true};
  std::vector<ChannelPtr> listeners_;  // constant once bound
  std::mutex mutex_;
  std::shared_ptr<Drain> drain_;  // guarded by mutex_; shared with the loops that work on it
};

/// What the copies of a Server share; the last one drains.
class ServerHandle final {
 public:
  explicit ServerHandle(std::shared_ptr<ServerCore> core) noexcept : core_(std::move(core)) {}
  ServerHandle(const ServerHandle&) = delete;
  ServerHandle& operator=(const ServerHandle&) = delete;
  ~ServerHandle();
  ServerCore& core() const noexcept { return *core_; }

 private:
  std::shared_ptr<ServerCore> core_;  // shared with the acceptors
};

}  // namespace millrace::internal
