// SPDX-License-Identifier: Apache-2.0
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

/// How many of `connections`, one after the other, go on with an earlier session.
std::uint64_t resumedOf(int connections, TlsVersion version) {
  const TlsContext server = serverBuilder().versions(version, version).build();
  const TlsContext client = clientBuilder().build();
  for (int i = 0; i < connections; ++i) {
    TlsPair pair(server, client);
    pair.carry();
  }
  return server.figures().resumed;
}

// A client uses a ticket of TLS 1.3 once: without a new one every second connection would be a full handshake.
TEST(TicketRenewal, LetsEveryConnectionButTheFirstResume) {
  EXPECT_EQ(resumedOf(5, TlsVersion::tls13), 4u);
  EXPECT_EQ(resumedOf(5, TlsVersion::tls12), 4u);
}

}  // namespace
}  // namespace millrace
