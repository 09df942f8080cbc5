// SPDX-License-Identifier: Apache-2.0
// What the tests of TLS share: identities made once, and two pipelines that talk to each other in memory.
#pragma once

#include "tls/raw_tls.h"

#include <millrace/buffer/byte_buf.h>
#include <millrace/channel/channel_events.h>
#include <millrace/channel/channel_pipeline.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/tls/alpn_handler.h>
#include <millrace/tls/optional_tls_handler.h>
#include <millrace/tls/tls_context.h>
#include <millrace/tls/tls_error.h>
#include <millrace/tls/tls_events.h>
#include <millrace/tls/tls_handler.h>
#include <millrace/tls/tls_identity.h>
#include <millrace/tls/tls_info.h>
#include <millrace/transport/embedded_channel.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// Made once per process: keys take their time.
inline const TlsIdentity& testIdentity() {
  static const TlsIdentity identity =
      TlsIdentity::selfSigned({"localhost", "example.org", "127.0.0.1"});
  return identity;
}
inline TlsContextBuilder serverBuilder() { return TlsContextBuilder::forServer(testIdentity()); }
inline TlsContextBuilder clientBuilder() {
  return TlsContextBuilder::forClient().trust(TlsTrust::fromPem(testIdentity().chain()));
}

/// The names of the user events and errors that came to it, and the bytes.
struct Saw {
  std::string text;
  std::vector<std::string> log;
  std::vector<Error> errors;

  bool has(std::string_view entry) const {
    return std::find(log.begin(), log.end(), entry) != log.end();
  }
};

/// Stands behind a TlsHandler and writes down what comes.
class Witness : public ChannelHandler {
 public:
  explicit Witness(Saw& saw) : saw_(saw) {}
  void channelActive(Context& ctx) override {
    saw_.log.push_back("active");
    ctx.fireChannelActive();
  }
  void channelInactive(Context&) override { saw_.log.push_back("inactive"); }
  void channelRead(Context&, Message&& msg) override {
    saw_.text += msg.take<ByteBuf>().text();
    saw_.log.push_back("read");
  }
  void channelReadComplete(Context&) override { saw_.log.push_back("readComplete"); }
  void userEventTriggered(Context&, Message&& event) override {
    if (const auto* end = event.as<TlsHandshakeCompletion>()) {
      saw_.log.push_back(end->isSuccess() ? "handshake" : "handshake failed");
    } else if (event.is<TlsCloseCompletion>()) {
      saw_.log.push_back("close");
    } else if (event.is<InputShutdown>()) {
      saw_.log.push_back("input shutdown");
    } else if (event.is<ClosingGracefully>()) {
      saw_.log.push_back("closing gracefully");
    } else {
      saw_.log.push_back("event");
    }
  }
  void exceptionCaught(Context&, const Error& error) override {
    saw_.errors.push_back(error);
    saw_.log.push_back("exception");
  }

 private:
  Saw& saw_;
};

/// A client and a server whose ciphertext is carried from one to the other by hand.
class TlsPair {
 public:
  explicit TlsPair(const TlsContextBuilder& server = serverBuilder(),
                   const TlsContextBuilder& client = clientBuilder(),
                   const std::string& host = "localhost")
      : TlsPair(server.build(), client.build(), host) {}
  TlsPair(const TlsContext& server, const TlsContext& client, const std::string& host = "localhost")
      : server_([&](Channel& channel) {
          channel.pipeline().emplaceLast<TlsHandler>(server);
          channel.pipeline().emplaceLast<Witness>(serverSaw);
        }),
        client_([&](Channel& channel) {
          channel.pipeline().emplaceLast<TlsHandler>(client, host);
          channel.pipeline().emplaceLast<Witness>(clientSaw);
        }) {}

  EmbeddedChannel& server() { return server_; }
  EmbeddedChannel& client() { return client_; }

  /// Carries bytes both ways until nobody has any, `piece` bytes at a time.
  void carry(std::size_t piece = SIZE_MAX) {
    for (bool moved = true; moved;) {
      const bool there = move(client_, server_, piece);
      const bool back = move(server_, client_, piece);
      moved = there || back;
    }
  }
  /// One direction once. True if there was something.
  static bool move(EmbeddedChannel& from, EmbeddedChannel& to, std::size_t piece = SIZE_MAX) {
    from.runPendingTasks();
    std::string bytes = from.outboundText();
    const bool any = !bytes.empty();
    while (!bytes.empty()) {
      const std::size_t count = std::min(piece, bytes.size());
      if (to.isOpen()) to.writeInbound(ByteBuf::of(bytes.substr(0, count)));
      bytes.erase(0, count);
    }
    to.runPendingTasks();
    return any;
  }

  Saw serverSaw;
  Saw clientSaw;

 private:
  EmbeddedChannel server_;
  EmbeddedChannel client_;
};

/// One TlsHandler, whose peer the test plays.
class TlsEnd {
 public:
  /// A server.
  explicit TlsEnd(const TlsContextBuilder& server = serverBuilder()) : TlsEnd(server.build()) {}
  explicit TlsEnd(const TlsContext& server)
      : channel_([&](Channel& channel) {
          channel.pipeline().emplaceLast<TlsHandler>(server);
          channel.pipeline().emplaceLast<Witness>(saw);
        }) {}
  /// A client of `host`.
  TlsEnd(const TlsContextBuilder& client, const std::string& host) : TlsEnd(client.build(), host) {}
  TlsEnd(const TlsContext& client, const std::string& host)
      : channel_([&](Channel& channel) {
          channel.pipeline().emplaceLast<TlsHandler>(client, host);
          channel.pipeline().emplaceLast<Witness>(saw);
        }) {}

  EmbeddedChannel& channel() { return channel_; }
  void receive(std::string_view bytes) {
    if (channel_.isOpen() && !bytes.empty()) channel_.writeInbound(ByteBuf::of(bytes));
    channel_.runPendingTasks();
  }
  std::string sent() { return channel_.outboundText(); }
  /// Everything that both sides have to say to each other.
  void talk(RawTls& peer) {
    for (bool moved = true; moved;) {
      peer.handshake();
      const std::string there = peer.take();
      receive(there);
      const std::string back = sent();
      peer.feed(back);
      moved = !there.empty() || !back.empty();
    }
  }
  std::string error() const { return saw.errors.empty() ? "" : saw.errors.front().message(); }

  Saw saw;

 private:
  EmbeddedChannel channel_;
};

}  // namespace millrace
