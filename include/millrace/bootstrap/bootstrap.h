// SPDX-License-Identifier: Apache-2.0
// Bootstrap: makes client channels, and datagram channels.
//
//   ChannelPtr channel = Bootstrap()
//       .group(workers)
//       .option(options::tcpNoDelay, true)
//       .handler([](Channel& ch) { ch.pipeline().emplaceLast<ClientHandler>(); })
//       .connect("127.0.0.1", 8007)
//       .get();
//
// A value: copy it to make several kinds of channels that differ a little. What is set when connect()
// or bind() is called counts. Threads: as its owner; one bootstrap may be used again and again.
#pragma once

#include <millrace/base/export.h>
#include <millrace/bootstrap/channel_setup.h>
#include <millrace/bootstrap/resolver.h>
#include <millrace/sys/socket_address.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class Channel;
class EventLoop;
class EventLoopGroup;
class LoopSource;
class Transport;
enum class Datagrams : std::uint8_t;
using ChannelPtr = Ref<Channel>;

/// See the top of this file.
class MILLRACE_API Bootstrap {
 public:
  Bootstrap& group(EventLoopGroup& group);
  /// Instead of a group: this very loop, such as the one of another channel.
  Bootstrap& loop(EventLoop& loop);
  /// Another maker of channels than the engine's own.
  Bootstrap& transport(const Transport& transport);
  /// Set before the handlers come.
  template <class T>
  Bootstrap& option(const ChannelOption<T>& key, std::type_identity_t<T> value) {
    setup_.option(key, T(std::move(value)));
    return *this;
  }
  template <class T>
  Bootstrap& attribute(const AttributeKey<T>& key, std::type_identity_t<T> value) {
    setup_.attribute(key, T(std::move(value)));
    return *this;
  }
  /// A callable `void(Channel&)` that fills the pipeline, or a shared handler.
  template <class F>
  Bootstrap& handler(F fill) {
    setup_.handler(std::move(fill));
    return *this;
  }
  /// How names become addresses; default systemResolver().
  Bootstrap& resolver(Resolver resolver);
  /// Where connections come from; default: the kernel chooses.
  Bootstrap& localAddress(const SocketAddress& local);
  /// Datagrams instead of streams.
  Bootstrap& datagram();

  /// Done when the channel is active. Throws std::logic_error if the group or the handler is missing.
  /// Fails with what the kernel or the resolver says; then nothing is left behind.
  Future<ChannelPtr> connect(const SocketAddress& remote) const;
  /// Tries the addresses of the host one after the other, until one answers.
  Future<ChannelPtr> connect(std::string_view host, std::uint16_t port) const;
  /// Tries these one after the other.
  Future<ChannelPtr> connect(std::vector<SocketAddress> remotes) const;
  /// A datagram channel that is bound to `local`.
  Future<ChannelPtr> bind(const SocketAddress& local) const;

 private:
  void check(const char* call) const;
  Future<std::vector<SocketAddress>> ask(const std::string& host, std::uint16_t port) const;

  Result<Ref<EventLoop>> acquire(std::shared_ptr<LoopSource>& source) const;

  EventLoopGroup* group_ = nullptr;
  EventLoop* loop_ = nullptr;
  const Transport* transport_ = nullptr;
  ChannelSetup setup_;
  Resolver resolver_;
  SocketAddress local_;
  Datagrams datagrams_{};
};

}  // namespace millrace
