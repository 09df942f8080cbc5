// SPDX-License-Identifier: Apache-2.0
// The flags of TLS for the examples, and what follows from them. A build without OpenSSL refuses --tls.
//
//   example::TlsFlags tls;
//   ... parseFlags(argc, argv, kUsage, tls.values(), tls.switches());
//   const example::ServerTls secure(tls);    // or example::ClientTls
//   ... childHandler([&](Channel& channel) { secure.addTo(channel); ... })
#pragma once

#include "support.h"

#include <optional>
#include <vector>

#ifndef EXAMPLE_HAS_TLS
#define EXAMPLE_HAS_TLS 1
#endif

#define EXAMPLE_TLS_SERVER_USAGE                                             \
  "  --tls           encrypt\n"                                              \
  "  --cert FILE     our certificate and its chain (default: self-signed)\n" \
  "  --key FILE      its key\n"                                              \
  "  --also NAME,CERT,KEY  for clients that ask for this name; repeatable\n" \
  "  --client-ca FILE  clients need a certificate, signed by one of these\n" \
  "  --alpn A,B      application protocols, best first\n"                    \
  "  --keylog FILE   append the secrets, for Wireshark: debugging only\n"

#define EXAMPLE_TLS_CLIENT_USAGE                                          \
  "  --tls           encrypt\n"                                           \
  "  --ca FILE       believe these (default: whom the system believes)\n" \
  "  --server-name NAME  who the server has to be (default: --host)\n"    \
  "  --insecure      believe anybody: for first steps only\n"             \
  "  --cert FILE     our certificate, if the server asks for one\n"       \
  "  --key FILE      its key\n"                                           \
  "  --alpn A,B      application protocols, best first\n"                 \
  "  --keylog FILE   append the secrets, for Wireshark: debugging only\n"

namespace example {

inline std::vector<std::string> splitAtCommas(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char each : list) {
    if (each == ',') {
      parts.emplace_back();
    } else {
      parts.back() += each;
    }
  }
  return parts;
}

/// Which end a program is: each has flags that the other one has not.
enum class TlsEnd { server, client };

struct TlsFlags {
  explicit TlsFlags(TlsEnd which) : end(which) {}

  TlsEnd end;
  bool on = false;
  bool insecure = false;
  std::string cert, key, trusted, serverName, alpn, keylog;
  std::vector<std::vector<std::string>> also;  ///< name, certificate, key

  OwnSwitch switches() {
    return [this](std::string_view name) {
      if (name == "--tls") return on = true;
      return name == "--insecure" && end == TlsEnd::client && (insecure = true);
    };
  }
  OwnFlag values() {
    return [this](std::string_view name, const std::string& value) {
      if (name == "--also" && end == TlsEnd::server) {
        also.push_back(splitAtCommas(value));
        return true;
      }
      std::string* into = place(name);
      if (into != nullptr) *into = value;
      return into != nullptr;
    };
  }
  /// Ends the program with 2 where flags do not go together, or this build cannot do it.
  void check(const char* usage) const {
    const bool any = insecure || !also.empty() || !cert.empty() || !key.empty() ||
                     !trusted.empty() || !serverName.empty() || !alpn.empty() || !keylog.empty();
    if (any && !on) wrongUse("flags of TLS need --tls", usage);
    if (cert.empty() != key.empty()) wrongUse("--cert and --key belong together", usage);
    for (const auto& each : also) {
      if (each.size() != 3) wrongUse("--also needs NAME,CERT,KEY", usage);
    }
    if (on && EXAMPLE_HAS_TLS == 0) {
      wrongUse("this build has no TLS: OpenSSL 3 was not there (Debian: libssl-dev)", usage);
    }
  }

 private:
  std::string* place(std::string_view name) {
    if (name == "--cert") return &cert;
    if (name == "--key") return &key;
    if (name == "--alpn") return &alpn;
    if (name == "--keylog") return &keylog;
    if (name == (end == TlsEnd::server ? "--client-ca" : "--ca")) return &trusted;
    if (name == "--server-name" && end == TlsEnd::client) return &serverName;
    return nullptr;
  }
};

#if EXAMPLE_HAS_TLS

/// What both ends have in common.
inline void applyFlags(millrace::TlsContextBuilder& builder, const TlsFlags& flags) {
  if (!flags.trusted.empty()) builder.trust(millrace::TlsTrust::fromFile(flags.trusted));
  if (!flags.alpn.empty()) builder.alpn(splitAtCommas(flags.alpn));
  if (!flags.keylog.empty()) builder.keyLogFile(flags.keylog);
}

inline millrace::TlsContext serverContext(const TlsFlags& flags) {
  using millrace::TlsIdentity;
  auto builder = millrace::TlsContextBuilder::forServer(
      flags.cert.empty() ? TlsIdentity::selfSigned({"localhost", "127.0.0.1", "::1"})
                         : TlsIdentity::fromFiles(flags.cert, flags.key));
  for (const auto& each : flags.also) {
    builder.identity(each[0], TlsIdentity::fromFiles(each[1], each[2]));
  }
  if (!flags.trusted.empty()) builder.clientAuth(millrace::TlsClientAuth::required);
  applyFlags(builder, flags);
  return builder.build();
}

class ServerTls {
 public:
  explicit ServerTls(const TlsFlags& flags) {
    if (flags.on) context_ = serverContext(flags);
  }
  /// First of all handlers; nothing without --tls.
  void addTo(millrace::Channel& channel) const {
    if (context_) channel.pipeline().emplaceLast<millrace::TlsHandler>(*context_);
  }

 private:
  std::optional<millrace::TlsContext> context_;
};

class ClientTls {
 public:
  ClientTls(const TlsFlags& flags, const Flags& where)
      : name_(flags.serverName.empty() ? where.host : flags.serverName), port_(where.port) {
    if (!flags.on) return;
    auto builder = millrace::TlsContextBuilder::forClient();
    if (!flags.cert.empty()) {
      builder.identity(millrace::TlsIdentity::fromFiles(flags.cert, flags.key));
    }
    if (flags.insecure) builder.trust(millrace::TlsTrust::insecure());
    applyFlags(builder, flags);
    context_ = builder.build();
  }
  /// First of all handlers; nothing without --tls. On the channel's loop.
  void addTo(millrace::Channel& channel) {
    if (!context_) return;
    channel.pipeline().emplaceLast<millrace::TlsHandler>(*context_, name_, port_);
    handshake_ = millrace::tlsHandshake(channel);
  }
  /// "TLSv1.3 TLS_AES_128_GCM_SHA256, protocol echo, resumed", once the channel is connected; empty
  /// without --tls. Throws what the handshake failed with.
  std::string agreed() const {
    if (!context_) return {};
    const millrace::TlsInfo info = handshake_.get();
    return info.protocol + " " + info.cipher +
           (info.applicationProtocol.empty() ? "" : ", protocol " + info.applicationProtocol) +
           (info.resumed ? ", resumed" : "");
  }

 private:
  const std::string name_;
  const std::uint16_t port_;
  std::optional<millrace::TlsContext> context_;
  millrace::Future<millrace::TlsInfo> handshake_;
};

#else

struct ServerTls {
  explicit ServerTls(const TlsFlags&) {}
  void addTo(millrace::Channel&) const {}
};
struct ClientTls {
  ClientTls(const TlsFlags&, const Flags&) {}
  void addTo(millrace::Channel&) {}
  std::string agreed() const { return {}; }
};

#endif

}  // namespace example
