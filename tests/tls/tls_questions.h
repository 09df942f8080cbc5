// SPDX-License-Identifier: Apache-2.0
// What tests ask a connection when its handshake is done.
#pragma once

#include "tls/tls_fixture.h"

#include <string>

namespace millrace::test {

inline TlsInfo infoOf(EmbeddedChannel& channel) {
  return channel.run([&] { return channel.pipeline().get<TlsHandler>()->info(); });
}

/// Who is at the other end, in the words of its certificate.
inline std::string peerOf(EmbeddedChannel& channel) {
  const TlsInfo info = infoOf(channel);
  return info.peerCertificates.empty() ? "nobody" : info.peerCertificates[0].subject;
}

}  // namespace millrace::test
