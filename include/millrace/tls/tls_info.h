// SPDX-License-Identifier: Apache-2.0
// TlsInfo: what a handshake agreed on, and with whom.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// A certificate, in the words people use.
struct TlsCertificate {
  std::string subject;             ///< "CN=example.com,O=Example"
  std::string issuer;              ///< the same of who signed it
  std::vector<std::string> names;  ///< host names and addresses it is for
  std::string notBefore;           ///< "2026-01-31 12:00:00" UTC
  std::string notAfter;
  std::string sha256;  ///< fingerprint, 64 hexadecimal digits
  std::string der;     ///< the certificate itself
};

/// A value; ask for it by TlsHandler::info() or tlsHandshake().
struct TlsInfo {
  std::string protocol;             ///< "TLSv1.3"
  std::string cipher;               ///< "TLS_AES_128_GCM_SHA256"
  std::string applicationProtocol;  ///< what ALPN chose, empty: nothing
  std::string serverName;  ///< what the client asked for (SNI), in its words; empty: nothing
  bool resumed = false;    ///< an earlier session went on
  /// The peer's own certificate first; empty if it sent none. A client that resumes is not asked again:
  /// a server knows its certificate from the ticket, without the rest of the chain.
  std::vector<TlsCertificate> peerCertificates;
};

}  // namespace millrace
