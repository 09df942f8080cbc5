// SPDX-License-Identifier: Apache-2.0
// What TlsContextBuilder collects.
#pragma once

#include "tls/openssl.h"

#include <millrace/base/clock.h>
#include <millrace/tls/tls_context.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace millrace::tls {

struct Settings {
  explicit Settings(bool server) : isServer(server) {}
  Settings(const Settings&) = default;
  Settings& operator=(const Settings&) = delete;
  ~Settings() { wipe(ticketKeys); }

  struct Named {
    std::string name;  // normal, see host_names.h
    TlsIdentity identity;
  };

  bool isServer;
  std::optional<TlsIdentity> identity;
  std::vector<Named> named;
  bool refuseUnknownNames = false;
  std::optional<TlsTrust> trust;
  TlsClientAuth clientAuth = TlsClientAuth::none;
  std::vector<std::string> alpn;
  TlsVersion oldest = TlsVersion::tls12;
  TlsVersion newest = TlsVersion::tls13;
  std::string ciphers12 = "ECDHE+AESGCM+AES128:ECDHE+AESGCM:ECDHE+CHACHA20";
  std::string ciphers13 =
      "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
  std::string groups = "X25519:P-256:P-384";
  Duration handshakeTimeout = std::chrono::seconds(10);
  Duration closeTimeout = std::chrono::seconds(3);
  int handshakesPerTurn = 1;
  ThreadPool* pool = nullptr;
  std::size_t maxClientHello = 64 * 1024;
  bool resumption = true;
  Duration ticketLifetime = std::chrono::hours(2);
  std::vector<std::string> ticketKeys;
  std::string keyLogFile;
};

}  // namespace millrace::tls
