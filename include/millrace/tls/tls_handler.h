// SPDX-License-Identifier: Apache-2.0
// TlsHandler: encrypts what later handlers write, decrypts what comes for them.
//
//   channel ── ciphertext ── TlsHandler ── plaintext ── your handlers
//
//   pipeline.emplaceLast<TlsHandler>(context);                  // first of all handlers; a server
//   pipeline.emplaceLast<TlsHandler>(context, "example.org");   // a client; the name is verified
//
// The handshake begins when the channel is active, or at once if it is already (STARTTLS: write the last plain
// answer, then add the handler in front). channelActive() passes before it. What is written meanwhile waits;
// TlsHandshakeCompletion comes before the first message. A failure fails what waits, comes as
// TlsHandshakeCompletion and exceptionCaught(), and closes; a peer that just goes away comes as the former only.
//
// close() sends what was flushed and close_notify, and waits for the peer's close_notify within the close
// timeout; before the handshake is done it closes at once. A peer that ends its stream without close_notify is
// told as TlsErrc::truncated. Writes are done when their last encrypted byte has reached the kernel, and count
// against the water marks until then.
//
// Threads: the channel's loop. Ownership: belongs to one pipeline.
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/channel_handler.h>
#include <millrace/concurrent/future.h>
#include <millrace/tls/tls_context.h>
#include <millrace/tls/tls_info.h>

#include <cstdint>
#include <memory>
#include <string>

namespace millrace {

class Channel;
namespace tls {
class Connection;
}

/// See the top of this file.
class MILLRACE_API TlsHandler final : public ChannelHandler {
 public:
  /// A server's end.
  explicit TlsHandler(const TlsContext& context);
  /// A client's end. The server has to prove that it is `host`, a name or an address. Sessions are kept by
  /// `host` and `port`. Throws std::invalid_argument without a host.
  TlsHandler(const TlsContext& context, std::string host, std::uint16_t port = 443);
  ~TlsHandler() override;

  /// Done with the handshake. Loop thread, once it is in a pipeline; elsewhere see tlsHandshake().
  Future<void> handshakeFuture();
  bool isHandshakeDone() const noexcept;
  /// Empty before the handshake is done. Loop thread.
  TlsInfo info() const;
  /// What ALPN chose; empty before the handshake is done, and where nothing was chosen. Loop thread.
  std::string applicationProtocol() const;
  /// Sends what was flushed and tells the peer that nothing more comes (close_notify), after the handshake if
  /// that is still going on; writes fail from now on, reading goes on. Loop thread.
  void closeOutbound();

  void handlerAdded(Context& ctx) override;
  void handlerRemoved(Context& ctx) override;
  void channelActive(Context& ctx) override;
  void channelInactive(Context& ctx) override;
  void channelRead(Context& ctx, Message&& msg) override;
  void channelReadComplete(Context& ctx) override;
  void userEventTriggered(Context& ctx, Message&& event) override;
  void close(Context& ctx, Promise<void>&& done) override;
  void disconnect(Context& ctx, Promise<void>&& done) override;
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override;
  void flush(Context& ctx) override;

 private:
  std::shared_ptr<tls::Connection> connection_;  // shared with timers and work under way
};

/// What the handshake of `channel` agreed on, when it is done; any thread. Fails with what the handshake
/// failed with, also when the channel is closed by now; with Errc::closed if it closed after a handshake that
/// went well, and with Errc::notSupported if there is no TlsHandler.
MILLRACE_API Future<TlsInfo> tlsHandshake(Channel& channel);

}  // namespace millrace
