// SPDX-License-Identifier: Apache-2.0
// Session: one TLS connection over memory. Ciphertext is fed in, ciphertext is taken out, in between are bytes.
//
//   feed() ──> [input] ──> OpenSSL ──> read()         OpenSSL sees our buffers through a BIO of our own:
//   output() <── [output] <── OpenSSL <── write()     nothing is copied between it and a queue of its own
//
// Knows nothing of channels. Threads: one at a time; a handshake may go on on another thread.
#pragma once

#include "tls/openssl.h"

#include <millrace/buffer/byte_buf.h>
#include <millrace/tls/tls_info.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace {
class Context;
}

namespace millrace::tls {

/// The key of a client's connection in the store of sessions, or null.
const std::string* peerOf(const SSL* ssl);

class Session {
 public:
  enum class Step : std::uint8_t {
    done,        ///< it is over, or there is no more room
    wantsInput,  ///< feed() more
    closed,      ///< the peer has sent close_notify
    failed       ///< see failure(); an alert may be in the output
  };
  /// The longest plaintext of a record.
  static constexpr std::size_t kRecord = 16384;

  Session(SSL_CTX* ctx, bool isServer);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  /// Clients: whom we mean. REQUIRES: a host name or an address
  void setPeer(const std::string& host, std::uint16_t port, bool verifies);
  /// Servers: the name that the client asks for. OpenSSL forgets it when a session of TLS 1.2 goes on.
  void setServerName(std::string name) { serverName_ = std::move(name); }
  /// Clients: an earlier session to go on with.
  void resume(const SslSessionPtr& session);

  /// Where buffers come from; null: the heap, for other threads than the loop's.
  void allocateBy(Context* ctx) noexcept { ctx_ = ctx; }

  /// Whether OpenSSL keeps its buffers between two records; it gives them back as soon as it can.
  void keepBuffers(bool keeps) noexcept;
  bool keepsBuffers() const noexcept;

  void feed(ByteBuf&& ciphertext);
  /// Bytes that were fed and not yet looked at.
  std::size_t buffered() const noexcept { return input_.readableBytes(); }
  ByteBuf takeInput() noexcept { return std::move(input_); }

  Step handshake();
  /// Fills `into` as far as it goes: done, when there is no more room.
  Step read(ByteBuf& into);
  /// Encrypts all of it. `more`: bytes that follow soon, so that one buffer has room for all.
  Step write(std::span<const std::byte> plaintext, std::size_t more = 0);
  void closeNotify();
  /// False while half of a message is there that the peer sends after the handshake (a ticket, new keys): OpenSSL
  /// writes nothing before it has the rest.
  bool mayWrite();

  /// Hands each buffer of ciphertext to `take(ByteBuf&&)`.
  template <class Take>
  void output(Take&& take) {
    // `take` may bring about further output: that waits for the next call.
    std::vector<ByteBuf> full = std::exchange(full_, {});
    ByteBuf last = std::exchange(out_, ByteBuf());
    for (ByteBuf& each : full) take(std::move(each));
    if (last) take(std::move(last));
  }
  bool hasOutput() const noexcept { return out_.isReadable() || !full_.empty(); }

  /// What went wrong, after `failed`.
  Error failure(const char* operation, const std::string& who) const;
  bool isResumed() const noexcept;
  const std::string& peer() const noexcept { return peer_; }
  TlsInfo info() const;
  std::string applicationProtocol() const;

 private:
  struct Bio;
  Step stepOf(int result);
  void noteFailure();
  static int onVerify(int isGood, X509_STORE_CTX* store);
  void append(const char* data, std::size_t size);
  static void onMessage(int isWritten, int version, int contentType, const void* data,
                        std::size_t size, SSL* ssl, void* self);

  /// Messages after the handshake (new keys, tickets) that a peer may send for free, and for each further
  /// one it has to send so many bytes, or to wait so long.
  static constexpr std::uint64_t kFreeMessages = 32;
  static constexpr std::uint64_t kBytesPerMessage = 64 * 1024;
  static constexpr std::int64_t kNanosPerMessage = 60'000'000'000;

  SslPtr ssl_;
  Context* ctx_ = nullptr;
  ByteBuf input_;
  ByteBuf out_;
  std::vector<ByteBuf> full_;
  std::size_t expected_ = 0;  // ciphertext of the write under way
  std::uint64_t bytesRead_ = 0;
  std::uint64_t messages_ = 0;  // since the handshake
  std::int64_t openSince_ = 0;
  bool isHandshakeDone_ = false;
  bool isFlooded_ = false;
  int lastAlert_ = -1;      // of the peer
  bool isStarved_ = false;  // OpenSSL asked for input, in the step under way, and there was none
  std::string peer_;        // key of the store, see peerOf()
  std::string serverName_;  // SNI, of either side
  std::string reason_;      // of a failure
  std::string refused_;     // the names of a certificate that is not good
  int reasonNumber_ = 0;
};

}  // namespace millrace::tls
