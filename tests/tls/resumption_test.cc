// SPDX-License-Identifier: Apache-2.0
// Sessions that go on, and those that must not.
#include "support/loop_test.h"
#include "tls/context_core.h"
#include "tls/test_ca.h"
#include "tls/tls_fixture.h"
#include "tls/tls_questions.h"

#include <gtest/gtest.h>

#include <ctime>

namespace millrace {
namespace {

using test::infoOf;
using test::TestAuthority;
using test::testRoot;

const TlsIdentity& serverIdentity() {
  static const TlsIdentity made =
      testRoot()
          .issue({.commonName = "server", .names = "DNS:localhost,DNS:*.example.org"})
          .identity();
  return made;
}
const TlsIdentity& clientIdentity() {
  static const TlsIdentity made = testRoot().issue({.commonName = "client"}).identity();
  return made;
}
TlsTrust believesRoot() { return TlsTrust::fromPem(testRoot().pem()); }

/// One connection from beginning to end: how it went.
std::string connect(const TlsContext& server, const TlsContext& client,
                    const std::string& host = "localhost") {
  TlsPair pair(server, client, host);
  pair.carry();
  if (!pair.clientSaw.has("handshake")) {
    return pair.clientSaw.errors.empty() ? "nothing" : pair.clientSaw.errors[0].message();
  }
  if (!pair.serverSaw.has("handshake")) {
    return pair.serverSaw.errors.empty() ? "nothing" : pair.serverSaw.errors[0].message();
  }
  const bool resumed = infoOf(pair.client()).resumed;
  EXPECT_EQ(infoOf(pair.server()).resumed, resumed);
  return resumed ? "resumed" : "new";
}

/// What must hold for both versions of the protocol.
class Resumption : public testing::TestWithParam<TlsVersion> {
 protected:
  static TlsContextBuilder serving() {
    return TlsContextBuilder::forServer(serverIdentity()).versions(GetParam(), GetParam());
  }
  static TlsContextBuilder asking() { return TlsContextBuilder::forClient().trust(believesRoot()); }
};
INSTANTIATE_TEST_SUITE_P(Versions, Resumption,
                         testing::Values(TlsVersion::tls12, TlsVersion::tls13),
                         [](const auto& version) {
                           return version.param == TlsVersion::tls12 ? "Tls12" : "Tls13";
                         });

TEST_P(Resumption, TheSecondConnectionGoesOnWhereTheFirstWas) {
  const TlsContext server = serving().build();
  const TlsContext client = asking().build();

  EXPECT_EQ(connect(server, client), "new");
  EXPECT_EQ(connect(server, client), "resumed");
  EXPECT_EQ(connect(server, client), "resumed");
}

TEST_P(Resumption, EitherSideCanDoWithout) {
  const TlsContext client = asking().build();
  const TlsContext refusing = serving().resumption(false).build();
  EXPECT_EQ(connect(refusing, client), "new");
  EXPECT_EQ(connect(refusing, client), "new");

  const TlsContext server = serving().build();
  const TlsContext forgetful = asking().resumption(false).build();
  EXPECT_EQ(connect(server, forgetful), "new");
  EXPECT_EQ(connect(server, forgetful), "new");
}

TEST_P(Resumption, SurvivesAReload) {
  TlsContext server = serving().build();
  TlsContext client = asking().build();
  EXPECT_EQ(connect(server, client), "new");

  ASSERT_TRUE(server.reload().ok());
  ASSERT_TRUE(client.reload().ok());

  EXPECT_EQ(connect(server, client), "resumed");
}

TEST_P(Resumption, AnotherServersTicketMeansNothing) {
  const TlsContext client = asking().build();

  EXPECT_EQ(connect(serving().build(), client), "new");
  EXPECT_EQ(connect(serving().build(), client), "new");
}

TEST_P(Resumption, ServersWithTheSameTicketKeysShareTheirTickets) {
  const TlsContext client = asking().build();
  const TlsContext one = serving().ticketKeys({std::string(80, 'k')}).build();
  TlsContext other = serving().build();
  other.setTicketKeys({std::string(80, 'n'), std::string(80, 'k')});

  EXPECT_EQ(connect(one, client), "new");
  EXPECT_EQ(connect(other, client), "resumed");
  // The other one seals with a key that this one does not have.
  EXPECT_EQ(connect(one, client), "new");
}

TEST_P(Resumption, WrongTicketKeysAreRefusedAndTheOldOnesStay) {
  TlsContext server = serving().build();
  const TlsContext client = asking().build();
  EXPECT_EQ(connect(server, client), "new");

  EXPECT_EQ(test::textOf<std::invalid_argument>([&] { server.setTicketKeys({}); }),
            "ticketKeys() needs at least one secret");
  EXPECT_EQ(test::textOf<std::invalid_argument>([&] {
              server.setTicketKeys({std::string(80, 'k'), std::string(81, 'k')});
            }),
            "a ticket key has 80 random bytes, not 81");

  EXPECT_EQ(connect(server, client), "resumed");
}

// --- where a session must not go on ---

/// A client that shows to `to` what it got from `from`, as one that wants to get in would.
void carryOver(const TlsContext& client, const std::string& from, const std::string& to) {
  tls::SessionStore& store = client.core().sessions();
  tls::SslSessionPtr session = store.take(from + ":443", client.core().snapshot()->scope);
  ASSERT_NE(session, nullptr);
  store.put(to + ":443", std::move(session));
}

// T13
TEST_P(Resumption, TicketsDoNotCrossVirtualHosts) {
  const TlsContext server = serving()
                                .identity("a.example.org", serverIdentity())
                                .identity("b.example.org", serverIdentity())
                                .build();
  const TlsContext client = asking().build();

  EXPECT_EQ(connect(server, client, "a.example.org"), "new");
  EXPECT_EQ(connect(server, client, "a.example.org"), "resumed");
  carryOver(client, "a.example.org", "b.example.org");
  EXPECT_EQ(connect(server, client, "b.example.org"), "new");
  carryOver(client, "b.example.org", "localhost");  // the default one
  EXPECT_EQ(connect(server, client, "localhost"), "new");
}

// T13
TEST_P(Resumption, ATicketWithoutACertificateIsNoWayAroundShowingOne) {
  TlsContext server = serving().build();
  const TlsContext client = asking().build();
  EXPECT_EQ(connect(server, client), "new");

  ASSERT_TRUE(
      server.reload(serving().clientAuth(TlsClientAuth::required).trust(believesRoot())).ok());

  TlsPair pair(server, client);
  pair.carry();
  EXPECT_FALSE(pair.serverSaw.has("handshake"));
  ASSERT_EQ(pair.serverSaw.errors.size(), 1U);
  EXPECT_EQ(pair.serverSaw.errors[0].code(), TlsErrc::certificate);
}

// T13
TEST_P(Resumption, ATicketOfAnOptionalCertificateIsNoneOfARequiredOne) {
  TlsContext server = serving().clientAuth(TlsClientAuth::optional).trust(believesRoot()).build();
  const TlsContext client = asking().build();
  EXPECT_EQ(connect(server, client), "new");
  EXPECT_EQ(connect(server, client), "resumed");

  ASSERT_TRUE(
      server.reload(serving().clientAuth(TlsClientAuth::required).trust(believesRoot())).ok());

  TlsPair pair(server, client);
  pair.carry();
  EXPECT_FALSE(pair.serverSaw.has("handshake"));
}

// T13
TEST_P(Resumption, DoesNotSurviveAChangeOfWhomAServerBelieves) {
  TlsContext server = serving().clientAuth(TlsClientAuth::required).trust(believesRoot()).build();
  const TlsContext client = asking().identity(clientIdentity()).build();
  EXPECT_EQ(connect(server, client), "new");
  EXPECT_EQ(connect(server, client), "resumed");

  const TlsTrust both = TlsTrust::fromPem(TestAuthority("second").pem() + testRoot().pem());
  ASSERT_TRUE(server.reload(serving().clientAuth(TlsClientAuth::required).trust(both)).ok());
  EXPECT_EQ(connect(server, client), "new");

  const TlsTrust other = TlsTrust::fromPem(TestAuthority("other").pem());
  ASSERT_TRUE(server.reload(serving().clientAuth(TlsClientAuth::required).trust(other)).ok());
  TlsPair pair(server, client);
  pair.carry();
  EXPECT_FALSE(pair.serverSaw.has("handshake"));
}

// T13
TEST_P(Resumption, DoesNotSurviveAChangeOfWhomAClientBelieves) {
  const TlsContext server = serving().build();
  TlsContext client = asking().build();
  EXPECT_EQ(connect(server, client), "new");

  const TlsTrust both = TlsTrust::fromPem(TestAuthority("second").pem() + testRoot().pem());
  ASSERT_TRUE(client.reload(TlsContextBuilder::forClient().trust(both)).ok());
  EXPECT_EQ(connect(server, client), "new");
  EXPECT_EQ(connect(server, client), "resumed");

  const TlsTrust other = TlsTrust::fromPem(TestAuthority("other").pem());
  ASSERT_TRUE(client.reload(TlsContextBuilder::forClient().trust(other)).ok());
  EXPECT_EQ(connect(server, client),
            "TLS handshake localhost: unable to get local issuer certificate: certificate refused");
}

// T13
TEST_P(Resumption, ASessionOfAnInsecureClientIsNoneOfASecureOne) {
  const TlsContext server = serving().build();
  TlsContext client = TlsContextBuilder::forClient().trust(TlsTrust::insecure()).build();
  EXPECT_EQ(connect(server, client, "not.this.one"), "new");

  ASSERT_TRUE(client.reload(asking()).ok());

  EXPECT_EQ(connect(server, client, "not.this.one"),
            "TLS handshake not.this.one: hostname mismatch (its certificate is for localhost "
            "*.example.org): certificate refused");
}

TEST_P(Resumption, AServerStillKnowsWhoTheClientIs) {
  const TlsContext server =
      serving().clientAuth(TlsClientAuth::required).trust(believesRoot()).build();
  const TlsContext client = asking().identity(clientIdentity()).build();
  EXPECT_EQ(connect(server, client), "new");

  TlsPair pair(server, client);
  pair.carry();

  const TlsInfo info = infoOf(pair.server());
  EXPECT_TRUE(info.resumed);
  ASSERT_EQ(info.peerCertificates.size(), 1U);
  EXPECT_EQ(info.peerCertificates[0].subject, "CN=client");
}

// A client's certificate counts at every connection, not only at the first.
TEST(Resumption, EndsWithTheCertificateOfTheClient) {
  const std::time_t end = std::time(nullptr) + 2;
  char text[32];
  tm parts{};
  std::strftime(text, sizeof text, "%Y%m%d%H%M%SZ", gmtime_r(&end, &parts));
  const TlsIdentity shortLived =
      test::testRoot().issue({.commonName = "short", .notAfter = text}).identity();
  const TlsContext server = serverBuilder()
                                .clientAuth(TlsClientAuth::required)
                                .trust(TlsTrust::fromPem(test::testRoot().pem()))
                                .build();
  const TlsContext client = clientBuilder().identity(shortLived).build();

  bool isRefused = false;
  const Deadline limit = Deadline::after(std::chrono::seconds(30));
  while (!isRefused && !limit.isDue(Clock::real().nanos())) {
    TlsPair pair(server, client);
    pair.carry();
    isRefused = !pair.serverSaw.errors.empty();
  }
  EXPECT_TRUE(isRefused);
  EXPECT_GE(std::time(nullptr), end);
  EXPECT_GT(server.figures().resumed, 0u);
}

}  // namespace
}  // namespace millrace
