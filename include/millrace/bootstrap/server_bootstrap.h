// SPDX-License-Identifier: Apache-2.0
// ServerBootstrap: makes servers.
//
//   Server server = ServerBootstrap()
//       .group(boss, workers)
//       .childHandler([](Channel& channel) { channel.pipeline().emplaceLast<EchoHandler>(); })
//       .bind(8007)
//       .get();
//
// A value: copy it to make several servers that differ a little. bind() takes what is set at that
// moment; later changes do not concern servers made before. Threads: as its owner. The groups must
// outlive the servers made with them.
#pragma once

#include <millrace/base/export.h>
#include <millrace/bootstrap/channel_setup.h>
#include <millrace/bootstrap/server.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace {

class EventLoopGroup;
class Transport;

/// See the top of this file.
class MILLRACE_API ServerBootstrap {
 public:
  /// One group for listening and for connections.
  ServerBootstrap& group(EventLoopGroup& both) { return group(both, both); }
  /// `boss` listens, the connections belong to `workers`. They may run on different engines.
  ServerBootstrap& group(EventLoopGroup& boss, EventLoopGroup& workers);
  /// Another maker of channels than the engine's own.
  ServerBootstrap& transport(const Transport& listening, const Transport& connections);
  /// Of the listening channel.
  template <class T>
  ServerBootstrap& option(const ChannelOption<T>& key, std::type_identity_t<T> value) {
    parent_.option(key, T(std::move(value)));
    return *this;
  }
  /// Of each connection, set before its handlers come.
  template <class T>
  ServerBootstrap& childOption(const ChannelOption<T>& key, std::type_identity_t<T> value) {
    child_.option(key, T(std::move(value)));
    return *this;
  }
  template <class T>
  ServerBootstrap& attribute(const AttributeKey<T>& key, std::type_identity_t<T> value) {
    parent_.attribute(key, T(std::move(value)));
    return *this;
  }
  template <class T>
  ServerBootstrap& childAttribute(const AttributeKey<T>& key, std::type_identity_t<T> value) {
    child_.attribute(key, T(std::move(value)));
    return *this;
  }
  /// Handlers of the listening channel: a callable `void(Channel&)`, or a shared handler.
  template <class F>
  ServerBootstrap& handler(F fill) {
    parent_.handler(std::move(fill));
    return *this;
  }
  /// Handlers of each connection: a callable `void(Channel&)`, or a shared handler.
  template <class F>
  ServerBootstrap& childHandler(F fill) {
    child_.handler(std::move(fill));
    return *this;
  }
  /// One listening channel per loop of the boss group on the same port: the kernel spreads the
  /// connections, and each stays on the loop that accepted it (the workers are not used).
  ServerBootstrap& reusePortPerLoop(bool on = true) {
    perLoop_ = on;
    return *this;
  }

  /// On every address of this machine, IPv4; 0: a port that is free. Throws std::logic_error if the
  /// group or the child handler is missing. The future fails with what the kernel says, and then
  /// nothing is left behind.
  Future<Server> bind(std::uint16_t port) const;
  /// On a numeric address.
  Future<Server> bind(std::string_view host, std::uint16_t port) const;
  Future<Server> bind(const SocketAddress& address) const;
  /// On all of these, or none.
  Future<Server> bind(std::vector<SocketAddress> addresses) const;

 private:
  friend class internal::ServerCore;

  EventLoopGroup* boss_ = nullptr;
  EventLoopGroup* workers_ = nullptr;
  const Transport* listening_ = nullptr;
  const Transport* connections_ = nullptr;
  ChannelSetup parent_;
  ChannelSetup child_;
  bool perLoop_ = false;
};

}  // namespace millrace
