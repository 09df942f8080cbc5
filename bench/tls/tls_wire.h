// SPDX-License-Identifier: Apache-2.0
//
// The load's end of TLS: OpenSSL on a socket, one version, one cipher and one group for everybody, and what
// a server made of it.
#pragma once

#include "../echo/load_common.h"

#include <memory>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <utility>

namespace bench {

struct Free {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* ctx) const { SSL_CTX_free(ctx); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
using SslPtr = std::unique_ptr<SSL, Free>;
using SslCtxPtr = std::unique_ptr<SSL_CTX, Free>;
using SslSessionPtr = std::unique_ptr<SSL_SESSION, Free>;

[[noreturn]] inline void failTls(const std::string& what) {
  char why[200] = "no reason given";
  if (const unsigned long number = ERR_get_error(); number != 0) {
    ERR_error_string_n(number, why, sizeof why);
  }
  fail(what + ": " + why);
}

/// What was agreed on, as numbers that the driver compares.
struct Negotiated {
  int version = 0;
  int cipher = 0;
  int group = 0;
  int keyKind = 0;
  int keyBits = 0;

  bool operator==(const Negotiated&) const = default;

  static Negotiated of(SSL* ssl) {
    Negotiated found;
    found.version = SSL_version(ssl);
    found.cipher = SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(ssl));
    found.group = static_cast<int>(SSL_ctrl(ssl, SSL_CTRL_GET_NEGOTIATED_GROUP, 0, nullptr));
    if (X509* certificate = SSL_get0_peer_certificate(ssl)) {
      EVP_PKEY* key = X509_get0_pubkey(certificate);
      found.keyKind = EVP_PKEY_get_base_id(key);
      found.keyBits = EVP_PKEY_get_bits(key);
    }
    return found;
  }
  void print() const {
    emit("version", version);
    emit("cipher", cipher);
    emit("group", group);
    emit("key_kind", keyKind);
    emit("key_bits", keyBits);
  }
};

/// Verifies no chain: what a client does is not measured. The server's signature is checked all the same.
inline SSL_CTX* clientContext() {
  static const SslCtxPtr made = [] {
    SslCtxPtr ctx(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_min_proto_version(ctx.get(), TLS1_3_VERSION);
    SSL_CTX_set_max_proto_version(ctx.get(), TLS1_3_VERSION);
    if (SSL_CTX_set_ciphersuites(ctx.get(), "TLS_AES_128_GCM_SHA256") != 1 ||
        SSL_CTX_set1_groups_list(ctx.get(), "X25519") != 1) {
      failTls("the client's context");
    }
    SSL_CTX_set_mode(ctx.get(),
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx.get(), 1);
    return ctx;
  }();
  return made.get();
}

/// One TLS connection in place of a PlainWire.
class TlsWire {
 public:
  void open(uint16_t port) {
    fd_ = connectTo(port);
    ssl_.reset(SSL_new(clientContext()));
    SSL_set_fd(ssl_.get(), fd_);
    if (SSL_connect(ssl_.get()) != 1) failTls("handshake");
    agreed(Negotiated::of(ssl_.get()));
  }

  int fd() const { return fd_; }
  ssize_t send(const char* bytes, size_t size) {
    size_t done = 0;
    const int good = SSL_write_ex(ssl_.get(), bytes, size, &done);
    return result(good, done);
  }
  ssize_t receive(char* into, size_t size) {
    size_t done = 0;
    const int good = SSL_read_ex(ssl_.get(), into, size, &done);
    return result(good, done);
  }
  bool hasMore() const { return SSL_has_pending(ssl_.get()) == 1; }

  /// Of all connections so far; ends the program if one differs from the first.
  static Negotiated agreed(const Negotiated& latest = {}) {
    static Negotiated first;
    if (first == Negotiated{}) first = latest;
    if (latest != Negotiated{} && latest != first) {
      fail("two connections agreed on different things");
    }
    return first;
  }

 private:
  ssize_t result(int good, size_t done) {
    if (good == 1) return static_cast<ssize_t>(done);
    const int why = SSL_get_error(ssl_.get(), good);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
      errno = EAGAIN;
      return -1;
    }
    return why == SSL_ERROR_ZERO_RETURN ? 0 : -1;
  }

  int fd_ = -1;
  SslPtr ssl_;
};

}  // namespace bench
