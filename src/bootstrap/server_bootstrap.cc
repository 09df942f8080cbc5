// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/server_core.h"

#include <millrace/bootstrap/server_bootstrap.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/transport.h>
#include <millrace/sys/socket_address.h>

#include <stdexcept>

namespace millrace {

// --- the bootstrap ---

ServerBootstrap& ServerBootstrap::group(EventLoopGroup& boss, EventLoopGroup& workers) {
  boss_ = &boss;
  workers_ = &workers;
  return *this;
}

ServerBootstrap& ServerBootstrap::transport(const Transport& listening,
                                            const Transport& connections) {
  listening_ = &listening;
  connections_ = &connections;
  return *this;
}

Future<Server> ServerBootstrap::bind(std::uint16_t port) const {
  return bind(SocketAddress::any4(port));
}

Future<Server> ServerBootstrap::bind(std::string_view host, std::uint16_t port) const {
  Result<SocketAddress> address = SocketAddress::ofHost(host, port);
  if (!address) return Future<Server>::of(address.error());
  return bind(*address);
}

Future<Server> ServerBootstrap::bind(const SocketAddress& address) const {
  return bind(std::vector<SocketAddress>{address});
}

Future<Server> ServerBootstrap::bind(std::vector<SocketAddress> addresses) const {
  if (boss_ == nullptr) throw std::logic_error("ServerBootstrap::bind(): call group() first");
  if (!child_.hasHandler()) {
    throw std::logic_error("ServerBootstrap::bind(): call childHandler() first");
  }
  if (addresses.empty()) throw std::invalid_argument("ServerBootstrap::bind(): no address");
  return internal::ServerCore::bind(*this, std::move(addresses));
}

// --- the handle ---

internal::ServerCore& Server::core() const {
  MR_CHECK(valid(), "a call on an empty Server");
  return handle_->core();
}

Channel& Server::channel() const { return *core().listeners().front(); }
const std::vector<ChannelPtr>& Server::channels() const { return core().listeners(); }
SocketAddress Server::address() const { return channel().localAddress(); }
Future<void> Server::closeFuture() const { return core().closeFuture(); }
Future<void> Server::close() const { return core().close(); }
Future<DrainReport> Server::drain(Duration timeout) const { return core().drain(timeout); }

}  // namespace millrace
