// SPDX-License-Identifier: Apache-2.0
#include "support/log_capture.h"
#include "support/loop_test.h"
#include "tls/temporary_folder.h"
#include "tls/test_ca.h"
#include "tls/tls_fixture.h"
#include "tls/tls_questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using test::infoOf;
using test::peerOf;
using test::TemporaryFolder;
using test::TestAuthority;
using test::TestCertificate;
using test::testRoot;

const TestCertificate& leaf() {
  static const TestCertificate made =
      testRoot().issue({.commonName = "one", .names = "DNS:localhost"});
  return made;
}
TlsContextBuilder believer() {
  return TlsContextBuilder::forClient().trust(TlsTrust::fromPem(testRoot().pem()));
}

template <class F>
std::string refusal(F&& fn) {
  return test::textOf<std::invalid_argument>(std::forward<F>(fn));
}

// OpenSSL would complete the chain from what is trusted, and so tell everybody whom we believe.
TEST(TlsContext, ServersSendTheirChainAndNothingElse) {
  TlsEnd server(TlsContextBuilder::forServer(leaf().identity())
                    .clientAuth(TlsClientAuth::optional)
                    .trust(TlsTrust::fromPem(testRoot().pem())));
  RawTls client(RawTls::Role::client);

  server.talk(client);

  ASSERT_TRUE(server.saw.has("handshake"));
  EXPECT_EQ(sk_X509_num(SSL_get_peer_cert_chain(client.ssl())), 1);
}

// --- the builder ---

TEST(TlsContextBuilder, WrongValuesAreRefusedAtOnce) {
  TlsContextBuilder server = serverBuilder();
  TlsContextBuilder client = clientBuilder();

  EXPECT_EQ(refusal([&] { client.identity("a.org", testIdentity()); }),
            "TlsContextBuilder::identity(name, …): only servers are asked for names");
  EXPECT_EQ(refusal([&] { server.identity("a b", testIdentity()); }),
            "TlsContextBuilder::identity(): \"a b\" is no host name, and no \"*.\" before one");
  EXPECT_EQ(
      refusal([&] { server.identity("127.0.0.1", testIdentity()); }),
      "TlsContextBuilder::identity(): \"127.0.0.1\" is no host name, and no \"*.\" before one");
  EXPECT_EQ(
      refusal([&] { server.identity(testIdentity()); }),
      "TlsContextBuilder::identity(…) without a name is for clients; a server's own is that of "
      "forServer()");
  EXPECT_EQ(refusal([&] {
              serverBuilder().identity("a.org", testIdentity()).identity("A.org", testIdentity());
            }),
            "TlsContextBuilder::identity(): \"A.org\" has one already");
  EXPECT_EQ(refusal([&] { client.refuseUnknownNames(); }),
            "TlsContextBuilder::refuseUnknownNames() is for servers");
  EXPECT_EQ(refusal([&] { client.clientAuth(TlsClientAuth::required); }),
            "TlsContextBuilder::clientAuth() is for servers");
  EXPECT_EQ(refusal([&] { client.ticketKeys({std::string(80, 'k')}); }),
            "TlsContextBuilder::ticketKeys() is for servers: a client keeps what it is given");
  EXPECT_EQ(refusal([&] { client.build().setTicketKeys({std::string(80, 'k')}); }),
            "setTicketKeys() is for servers");
  EXPECT_EQ(refusal([&] {
              server.alpn({"h2", ""});
            }),
            "TlsContextBuilder::alpn(): a protocol has 1 to 255 bytes, not 0");
  EXPECT_EQ(refusal([&] { server.alpn({std::string(256, 'x')}); }),
            "TlsContextBuilder::alpn(): a protocol has 1 to 255 bytes, not 256");
  EXPECT_EQ(refusal([&] { server.versions(TlsVersion::tls13, TlsVersion::tls12); }),
            "TlsContextBuilder::versions(): the oldest is newer than the newest");
  EXPECT_EQ(refusal([&] { server.handshakeTimeout(Duration(0)); }),
            "TlsContextBuilder::handshakeTimeout() must be longer than nothing");
  EXPECT_EQ(refusal([&] { server.closeTimeout(Duration(-1)); }),
            "TlsContextBuilder::closeTimeout() must not be negative");
  EXPECT_EQ(refusal([&] { server.handshakesPerTurn(0); }),
            "TlsContextBuilder::handshakesPerTurn() must be 1 or more, not 0");
  EXPECT_EQ(refusal([&] { server.maxClientHello(511); }),
            "TlsContextBuilder::maxClientHello() is 512 bytes to 128 KiB, not 511");
  EXPECT_EQ(refusal([&] { server.maxClientHello(128 * 1024 + 1); }),
            "TlsContextBuilder::maxClientHello() is 512 bytes to 128 KiB, not 131073");
  EXPECT_EQ(refusal([&] { server.ticketLifetime(std::chrono::milliseconds(999)); }),
            "TlsContextBuilder::ticketLifetime() is a second to seven days");
  EXPECT_EQ(refusal([&] { server.ticketLifetime(hours(7 * 24) + seconds(1)); }),
            "TlsContextBuilder::ticketLifetime() is a second to seven days");
  EXPECT_EQ(refusal([&] { server.ticketKeys({}); }), "ticketKeys() needs at least one secret");
  EXPECT_EQ(refusal([&] { server.ticketKeys({std::string(79, 'x')}); }),
            "a ticket key has 80 random bytes, not 79");

  // None of them has left a trace.
  TlsPair pair(server, client);
  pair.carry();
  EXPECT_TRUE(pair.clientSaw.has("handshake"));
}

TEST(TlsContextBuilder, AskingForCertificatesNeedsTrust) {
  const std::string text =
      "TlsContextBuilder::clientAuth() needs trust(): whose certificates are believed?";
  const TlsContextBuilder asking = serverBuilder().clientAuth(TlsClientAuth::required);
  TlsContext context = serverBuilder().build();

  EXPECT_EQ(refusal([&] { asking.build(); }), text);
  EXPECT_EQ(refusal([&] { static_cast<void>(asking.tryBuild()); }), text);
  EXPECT_EQ(refusal([&] { static_cast<void>(context.reload(asking)); }), text);
}

TEST(TlsContextBuilder, WhatOpenSslDoesNotKnowFailsTheBuild) {
  const auto problem = [](const TlsContextBuilder& builder) {
    const Result<TlsContext> built = builder.tryBuild();
    return built ? std::string() : built.error().message();
  };

  EXPECT_EQ(problem(serverBuilder().ciphers("NO-SUCH-CIPHER", "")),
            "TLS ciphers for TLS 1.2 \"NO-SUCH-CIPHER\" are none that OpenSSL knows: no cipher "
            "match: cannot be used");
  EXPECT_EQ(problem(serverBuilder().ciphers("", "NO_SUCH_CIPHER")).substr(0, 70),
            "TLS ciphers for TLS 1.3 \"NO_SUCH_CIPHER\" are none that OpenSSL knows: ");
  EXPECT_EQ(problem(serverBuilder().groups("P-12")).substr(0, 47),
            "TLS groups \"P-12\" are none that OpenSSL knows: ");
  EXPECT_EQ(problem(serverBuilder().ciphers("", "").groups("P-256")), "");
}

TEST(TlsContextBuilder, CopiesAreIndependent) {
  const TlsContextBuilder plain = serverBuilder();
  TlsContextBuilder copy = plain;
  copy.versions(TlsVersion::tls12, TlsVersion::tls12);
  TlsContextBuilder assigned = clientBuilder();
  assigned = copy;

  const auto protocolOf = [](const TlsContextBuilder& server) {
    TlsPair pair(server, clientBuilder());
    pair.carry();
    return infoOf(pair.client()).protocol;
  };
  EXPECT_EQ(protocolOf(plain), "TLSv1.3");
  EXPECT_EQ(protocolOf(copy), "TLSv1.2");
  EXPECT_EQ(protocolOf(assigned), "TLSv1.2");
}

TEST(TlsContextBuilder, BuildThrowsWhatTryBuildGives) {
  const TlsContextBuilder wrong =
      TlsContextBuilder::forServer(TlsIdentity::fromFiles("/nonexistent/a", "/nonexistent/b"));

  EXPECT_EQ(test::textOf<Exception>([&] { wrong.build(); }), wrong.tryBuild().error().message());
}

// --- reload ---

class TlsReload : public testing::Test {
 protected:
  void write(const TestCertificate& certificate) const {
    folder.replace("chain.pem", certificate.chain());
    folder.replace("key.pem", certificate.keyPem());
  }

  const TemporaryFolder folder;
  const bool isWritten = (write(leaf()), true);
  const TlsContextBuilder settings = TlsContextBuilder::forServer(
      TlsIdentity::fromFiles(folder / "chain.pem", folder / "key.pem"));
  TlsContext server = settings.build();
  TlsContext client = believer().build();
};

TEST_F(TlsReload, GivesNewConnectionsTheNewCertificateAndLeavesTheOldOnesAlone) {
  const TestCertificate next = testRoot().issue({.commonName = "two", .names = "DNS:localhost"});
  TlsPair before(server, client);
  before.carry();
  TlsPair halfway(server, client);  // its handshake has begun
  write(next);

  ASSERT_TRUE(server.reload().ok());
  TlsPair after(server, believer().build());
  after.carry();
  halfway.carry();
  before.client().writeOutbound(ByteBuf::of("still here"));
  before.carry();

  EXPECT_EQ(peerOf(before.client()), "CN=one");
  EXPECT_EQ(peerOf(halfway.client()), "CN=one");
  EXPECT_EQ(peerOf(after.client()), "CN=two");
  EXPECT_EQ(before.serverSaw.text, "still here");
  EXPECT_EQ(server.figures().reloads, 1U);
  EXPECT_EQ(server.figures().failedReloads, 0U);
}

TEST_F(TlsReload, ThatFailsKeepsEverythingAndIsCounted) {
  folder.replace("key.pem", "no key");

  const Result<void> loaded = server.reload();

  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code(), TlsErrc::credentials);
  EXPECT_NE(loaded.error().message().find(folder / "key.pem"), std::string::npos);
  EXPECT_EQ(server.figures().failedReloads, 1U);
  EXPECT_EQ(server.figures().reloads, 0U);
  TlsPair pair(server, client);
  pair.carry();
  EXPECT_EQ(peerOf(pair.client()), "CN=one");
}

TEST_F(TlsReload, IsSeenByAllCopies) {
  const TlsContext copy = server;
  write(testRoot().issue({.commonName = "two", .names = "DNS:localhost"}));

  ASSERT_TRUE(server.reload().ok());

  TlsPair pair(copy, client);
  pair.carry();
  EXPECT_EQ(peerOf(pair.client()), "CN=two");
  EXPECT_EQ(copy.figures().reloads, 1U);
}

TEST_F(TlsReload, WithOtherSettingsTakesThem) {
  ASSERT_TRUE(
      server.reload(TlsContextBuilder(settings).versions(TlsVersion::tls12, TlsVersion::tls12))
          .ok());

  TlsPair pair(server, client);
  pair.carry();
  EXPECT_EQ(infoOf(pair.client()).protocol, "TLSv1.2");
}

// Reloads come one after the other, and every connection gets the whole of one of them: certificate and version.
TEST_F(TlsReload, AgainstAReloadLeavesOneOfThemWhole) {
  constexpr int kTimes = 20;
  const TestCertificate next = testRoot().issue({.commonName = "two", .names = "DNS:localhost"});
  const auto only = [](const TestCertificate& certificate, TlsVersion version) {
    return TlsContextBuilder::forServer(
               TlsIdentity::fromPem(certificate.chain(), certificate.keyPem()))
        .versions(version, version);
  };
  const TlsContextBuilder one = only(leaf(), TlsVersion::tls12);
  const TlsContextBuilder two = only(next, TlsVersion::tls13);
  ASSERT_TRUE(server.reload(one).ok());

  std::atomic<int> good{0};
  const auto again = [&](const TlsContextBuilder& which) {
    for (int i = 0; i < kTimes; ++i) good += server.reload(which).ok() ? 1 : 0;
  };
  std::thread first(again, std::cref(one));
  std::thread second(again, std::cref(two));
  std::vector<std::string> seen;
  for (int i = 0; i < kTimes; ++i) {
    TlsPair pair(server, believer().build());
    pair.carry();
    seen.push_back(peerOf(pair.client()) + " " + infoOf(pair.client()).protocol);
  }
  first.join();
  second.join();

  EXPECT_EQ(good, 2 * kTimes);
  EXPECT_EQ(server.figures().reloads, 2U * kTimes + 1);
  EXPECT_THAT(seen, testing::Each(testing::AnyOf("CN=one TLSv1.2", "CN=two TLSv1.3")));
}

TEST_F(TlsReload, MakesNoServerOfAClient) {
  EXPECT_TRUE(server.isServer());
  EXPECT_FALSE(client.isServer());

  const Result<void> one = server.reload(believer());
  const Result<void> other = client.reload(settings);

  ASSERT_FALSE(one.ok());
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(one.error().code(), Errc::notSupported);
  EXPECT_EQ(other.error().code(), Errc::notSupported);
  TlsPair pair(server, client);
  pair.carry();
  EXPECT_EQ(peerOf(pair.client()), "CN=one");
}

TEST_F(TlsReload, ReadsTheTrustFileOfAClientAgain) {
  const std::string path = folder.write("ca.pem", TestAuthority("nobody").pem());
  TlsContext reading = TlsContextBuilder::forClient().trust(TlsTrust::fromFile(path)).build();
  TlsPair before(server, reading);
  before.carry();
  folder.replace("ca.pem", testRoot().pem());

  ASSERT_TRUE(reading.reload().ok());
  TlsPair after(server, reading);
  after.carry();

  EXPECT_FALSE(before.clientSaw.has("handshake"));
  EXPECT_TRUE(after.clientSaw.has("handshake"));
}

// --- figures ---

TEST(TlsFigures, CountWhatHappened) {
  const TlsContext server = serverBuilder().build();
  const TlsContext client = clientBuilder().build();
  for (int i = 0; i < 2; ++i) {
    TlsPair pair(server, client);
    pair.carry();
  }
  TlsPair wrong(server, client, "another.example");
  wrong.carry();
  TlsPair silent(server, client);
  silent.server().advanceTimeBy(seconds(10));

  const TlsFigures seen = server.figures();
  EXPECT_EQ(seen.handshakes, 2U);
  EXPECT_EQ(seen.resumed, 1U);
  EXPECT_EQ(seen.failed, 2U);
  EXPECT_EQ(seen.timedOut, 1U);
  EXPECT_EQ(seen.delayed, 0U);
  EXPECT_EQ(client.figures().handshakes, 2U);
  EXPECT_EQ(client.figures().resumed, 1U);
  EXPECT_EQ(client.figures().failed, 1U);
}

TEST(TlsContextBuilder, RefusesTrustThatNobodyIsHeldTo) {
  EXPECT_THROW(serverBuilder().trust(TlsTrust::system()).build(), std::invalid_argument);
}

// Clients would refuse it, and their errors would say so to nobody who can mend it.
TEST(TlsContext, ACertificateForAnotherNameIsWarnedOf) {
  const TlsIdentity wild = TlsIdentity::selfSigned({"*.example.net"});
  const auto warnings = [&](const std::string& name, const TlsIdentity& identity) {
    const test::LogCapture logs("warn");
    serverBuilder().identity(name, identity).build();
    return logs.contains("the certificate for \"" + name + "\" is not made out to that name");
  };
  EXPECT_FALSE(warnings("example.org", testIdentity()));
  EXPECT_FALSE(warnings("*.example.net", wild));
  EXPECT_FALSE(warnings("www.example.net", wild));
  EXPECT_TRUE(warnings("example.net", wild));
  EXPECT_TRUE(warnings("*.example.org", testIdentity()));
}

}  // namespace
}  // namespace millrace
