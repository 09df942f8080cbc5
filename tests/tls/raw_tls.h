// SPDX-License-Identifier: Apache-2.0
// RawTls: the far end of a TLS connection, OpenSSL without Millrace, over memory. For what a well-behaved peer
// would never do.
#pragma once

#include "tls/openssl.h"

#include <millrace/tls/tls_identity.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <string>
#include <string_view>

namespace millrace {

class RawTls {
 public:
  enum class Role { client, server };

  explicit RawTls(Role role, const TlsIdentity* identity = nullptr, int version = TLS1_3_VERSION)
      : ctx_(SSL_CTX_new(role == Role::client ? TLS_client_method() : TLS_server_method())) {
    SSL_CTX_set_min_proto_version(ctx_.get(), version);
    SSL_CTX_set_max_proto_version(ctx_.get(), version);
    if (identity != nullptr) use(*identity);
    ssl_.reset(SSL_new(ctx_.get()));
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(in_, -1);
    SSL_set_bio(ssl_.get(), in_, out_);
    if (role == Role::client) {
      SSL_set_connect_state(ssl_.get());
    } else {
      SSL_set_accept_state(ssl_.get());
    }
  }

  SSL* ssl() const { return ssl_.get(); }
  void askFor(std::string name) {
    SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
  }
  void feed(std::string_view bytes) {
    BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
  }
  /// What it wants to send.
  std::string take() {
    std::string bytes(BIO_ctrl_pending(out_), '\0');
    if (!bytes.empty()) BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }
  /// True once it is done.
  bool handshake() {
    ERR_clear_error();
    return SSL_do_handshake(ssl_.get()) == 1;
  }
  void write(std::string_view bytes) {
    ERR_clear_error();
    SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  }
  /// What has come, decrypted.
  std::string read() {
    std::string all;
    char part[20'000];
    while (true) {
      ERR_clear_error();
      const int got = SSL_read(ssl_.get(), part, sizeof part);
      if (got <= 0) {
        last_ = SSL_get_error(ssl_.get(), got);
        return all;
      }
      all.append(part, static_cast<std::size_t>(got));
    }
  }
  /// The peer has said close_notify.
  bool sawClose() {
    read();
    return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }
  /// The last read met a fatal alert, or something broken.
  bool isBroken() {
    read();
    return last_ == SSL_ERROR_SSL;
  }
  void closeNotify() { SSL_shutdown(ssl_.get()); }

 private:
  void use(const TlsIdentity& identity) {
    const tls::BioPtr chain(
        BIO_new_mem_buf(identity.chain().data(), static_cast<int>(identity.chain().size())));
    const tls::BioPtr key(
        BIO_new_mem_buf(identity.key().data(), static_cast<int>(identity.key().size())));
    const tls::X509Ptr certificate(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
    const tls::KeyPtr secret(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
    SSL_CTX_use_certificate(ctx_.get(), certificate.get());
    SSL_CTX_use_PrivateKey(ctx_.get(), secret.get());
  }

  tls::SslCtxPtr ctx_;
  tls::SslPtr ssl_;
  BIO* in_ = nullptr;   // the SSL's
  BIO* out_ = nullptr;  // the SSL's
  int last_ = SSL_ERROR_NONE;
};

}  // namespace millrace
