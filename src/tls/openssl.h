// SPDX-License-Identifier: Apache-2.0
// Owners for OpenSSL's objects, and its errors in words. The only layer that sees OpenSSL is src/tls.
#pragma once

#include <millrace/base/error.h>
#include <millrace/tls/tls_error.h>

#include <memory>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::tls {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};

using SslPtr = std::unique_ptr<SSL, Freer<&SSL_free>>;
using SslCtxPtr = std::unique_ptr<SSL_CTX, Freer<&SSL_CTX_free>>;
using SslSessionPtr = std::unique_ptr<SSL_SESSION, Freer<&SSL_SESSION_free>>;
using X509Ptr = std::unique_ptr<X509, Freer<&X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<&EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, Freer<&BIO_free_all>>;

/// What OpenSSL's queue of errors of this thread says, such as "unknown ca"; empties it. Of several the newest of
/// TLS itself counts, because older ones may be others', else the oldest: a signature that is wrong is "EVP lib" first,
/// and only then a certificate that is not good. `number` gets the reason of TLS, 0 without one.
std::string takeReason(int* number = nullptr);

/// Secrets must not stay in memory that is free.
void wipe(std::vector<std::string>& secrets) noexcept;

/// For texts that a peer has a hand in: at most 253 characters, all of them printable.
std::string printable(std::string_view text);

/// A context or certificate that cannot be used. `what`: "chain.pem", or what it is if it is no file.
Error credentialsError(std::string_view what, std::string_view problem);

}  // namespace millrace::tls
