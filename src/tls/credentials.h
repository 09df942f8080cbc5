// SPDX-License-Identifier: Apache-2.0
// Certificates, keys and authorities: read, checked, and given to OpenSSL. Every way in which one can be
// wrong has words of its own that name the file.
#pragma once

#include "tls/openssl.h"

#include <millrace/base/result.h>
#include <millrace/tls/tls_identity.h>
#include <millrace/tls/tls_info.h>

#include <string>

namespace millrace::tls {

/// A file of at most 1 MiB. The error names it.
Result<std::string> readFile(const std::string& path);

/// Reads `identity` and makes it the one of `ctx`.
Result<void> useIdentity(SSL_CTX* ctx, const TlsIdentity& identity);
/// `ctx` believes these from now on. `tellClients`: they are told whom we believe.
/// Gives the text that was read, empty for the system's.
Result<std::string> useTrust(SSL_CTX* ctx, const TlsTrust& trust, bool tellClients);

/// As peers see it (DER).
std::string bytesOf(const X509* certificate);
/// In words.
TlsCertificate describe(X509* certificate);

}  // namespace millrace::tls
