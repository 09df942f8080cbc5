// SPDX-License-Identifier: Apache-2.0
// Which servers a client believes, and which clients a server.
#include "tls/test_ca.h"
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using test::TestAuthority;
using test::testRoot;
using test::TestWords;

std::string verdictOf(const Saw& saw) {
  if (saw.has("handshake")) return "believed";
  if (saw.errors.size() != 1) return std::to_string(saw.errors.size()) + " errors";
  if (saw.errors[0].code() != TlsErrc::certificate) return saw.errors[0].message();
  const std::string text = saw.errors[0].message();
  const std::size_t end = text.rfind(": certificate refused");
  const std::size_t start = text.find(": ") + 2;
  return text.substr(start, end - start);
}

TlsContextBuilder believing(const std::string& pem) {
  return TlsContextBuilder::forClient().trust(TlsTrust::fromPem(pem));
}

/// What a client that believes the root says about a server that shows `identity`.
std::string verdict(const TlsIdentity& identity, const std::string& host,
                    const TlsContextBuilder& client = believing(testRoot().pem())) {
  std::string verdicts[2];
  for (const TlsVersion version : {TlsVersion::tls12, TlsVersion::tls13}) {
    TlsPair pair(TlsContextBuilder::forServer(identity).versions(version, version), client, host);
    pair.carry();
    verdicts[version == TlsVersion::tls13] = verdictOf(pair.clientSaw);
    // Nothing is sent to one that is not believed.
    EXPECT_EQ(pair.client().isOpen(), pair.clientSaw.has("handshake"));
    EXPECT_EQ(pair.serverSaw.errors.empty(), pair.clientSaw.has("handshake"));
  }
  return verdicts[0] == verdicts[1] ? verdicts[0] : verdicts[0] + " / " + verdicts[1];
}
std::string verdict(const TestWords& words, const std::string& host) {
  return verdict(testRoot().issue(words).identity(), host);
}

// --- names ---

// T11
TEST(Verification, AServerHasToHaveTheNameThatTheClientWants) {
  const TestWords words{.names = "DNS:www.example.org"};

  EXPECT_EQ(verdict(words, "www.example.org"), "believed");
  EXPECT_EQ(verdict(words, "WWW.EXAMPLE.ORG."), "believed");
  EXPECT_EQ(verdict(words, "example.org"),
            "hostname mismatch (its certificate is for www.example.org)");
  EXPECT_EQ(verdict(words, "a.www.example.org"),
            "hostname mismatch (its certificate is for www.example.org)");
}

// T11
TEST(Verification, TheCommonNameIsNoHostName) {
  EXPECT_EQ(verdict({.commonName = "www.example.org"}, "www.example.org"),
            "hostname mismatch (its certificate is for nobody)");
  EXPECT_EQ(verdict({.commonName = "www.example.org", .names = "DNS:b.org"}, "www.example.org"),
            "hostname mismatch (its certificate is for b.org)");
}

// T11
TEST(Verification, ANameWithANulIsNotTheOneBeforeIt) {
  const TestWords words{.rawNames = {std::string("good.example\0.evil.example", 26)}};

  EXPECT_EQ(verdict(words, "good.example"),
            "hostname mismatch (its certificate is for good.example?.evil.example)");
}

// T11
TEST(Verification, ANulInTheCommonNameMakesNobodyOfIt) {
  const TestWords words{.commonName = std::string("good.example\0.evil.example", 26)};

  EXPECT_EQ(verdict(words, "good.example"), "hostname mismatch (its certificate is for nobody)");
}

// T11
TEST(Verification, LinesInANameStayOutOfTheError) {
  const TestWords words{.rawNames = {"a\nERROR all is lost\x1b[31m"}};

  EXPECT_EQ(verdict(words, "good.example"),
            "hostname mismatch (its certificate is for a?ERROR all is lost?[31m)");
}

// T11
TEST(Verification, AStarIsOneWholeLabelInFrontOfTwoOthers) {
  EXPECT_EQ(verdict({.names = "DNS:*.example.org"}, "www.example.org"), "believed");
  EXPECT_EQ(verdict({.names = "DNS:*.example.org"}, "example.org"),
            "hostname mismatch (its certificate is for *.example.org)");
  EXPECT_EQ(verdict({.names = "DNS:*.example.org"}, "a.b.example.org"),
            "hostname mismatch (its certificate is for *.example.org)");
  EXPECT_EQ(verdict({.names = "DNS:*.com"}, "example.com"),
            "hostname mismatch (its certificate is for *.com)");
  EXPECT_EQ(verdict({.names = "DNS:*"}, "localhost"),
            "hostname mismatch (its certificate is for *)");
  EXPECT_EQ(verdict({.names = "DNS:f*o.example.org"}, "foo.example.org"),
            "hostname mismatch (its certificate is for f*o.example.org)");
  EXPECT_EQ(verdict({.names = "DNS:a.*.org"}, "a.example.org"),
            "hostname mismatch (its certificate is for a.*.org)");
}

// T11
TEST(Verification, AnAddressIsComparedWithAddressesOnly) {
  EXPECT_EQ(verdict({.names = "IP:192.0.2.7"}, "192.0.2.7"), "believed");
  EXPECT_EQ(verdict({.names = "IP:192.0.2.7"}, "192.0.2.8"),
            "IP address mismatch (its certificate is for 192.0.2.7)");
  EXPECT_EQ(verdict({.names = "DNS:192.0.2.7"}, "192.0.2.7"),
            "IP address mismatch (its certificate is for 192.0.2.7)");
  EXPECT_EQ(verdict({.commonName = "192.0.2.7"}, "192.0.2.7"),
            "IP address mismatch (its certificate is for nobody)");
  EXPECT_EQ(verdict({.names = "IP:2001:db8::7"}, "2001:db8::7"), "believed");
  EXPECT_EQ(verdict({.names = "IP:2001:db8::7"}, "2001:0DB8:0:0::7"), "believed");
  EXPECT_EQ(verdict({.names = "IP:2001:db8::7"}, "2001:db8::8"),
            "IP address mismatch (its certificate is for 2001:db8::7)");
  EXPECT_EQ(verdict({.names = "IP:192.0.2.7"}, "::ffff:192.0.2.7"),
            "IP address mismatch (its certificate is for 192.0.2.7)");
}

// --- dates and signers ---

// T11
TEST(Verification, WhatHasExpiredIsRefusedAndSoIsWhatIsTooYoung) {
  // A server with such a certificate does not start, so it is the authority above it that is old.
  const TestWords old{
      .commonName = "old", .notAfter = "20210101000000Z", .usage = "", .basic = "critical,CA:TRUE"};
  const TestWords young{.commonName = "young",
                        .notBefore = "21100101000000Z",
                        .usage = "",
                        .basic = "critical,CA:TRUE"};
  const TestWords leaf{.names = "DNS:localhost"};

  EXPECT_EQ(verdict(TestAuthority(testRoot(), old).issue(leaf).identity(), "localhost"),
            "certificate has expired");
  EXPECT_EQ(verdict(TestAuthority(testRoot(), young).issue(leaf).identity(), "localhost"),
            "certificate is not yet valid");
}

// T11
TEST(Verification, WhatSignsItselfIsRefusedUnlessItIsTrusted) {
  const TlsIdentity identity = TlsIdentity::selfSigned({"localhost"});

  EXPECT_EQ(verdict(identity, "localhost"), "self-signed certificate");
  EXPECT_EQ(verdict(identity, "localhost", believing(identity.chain())), "believed");
  EXPECT_EQ(verdict(identity, "localhost", TlsContextBuilder::forClient()),
            "self-signed certificate");
}

// T11
TEST(Verification, AnUnknownAuthorityIsRefused) {
  const TestAuthority other("other");
  const TestAuthority sameName("root");

  EXPECT_EQ(verdict(other.issue({.names = "DNS:localhost"}).identity(), "localhost"),
            "unable to get local issuer certificate");
  EXPECT_EQ(verdict(sameName.issue({.names = "DNS:localhost"}).identity(), "localhost"),
            "certificate signature failure");
}

// T11
TEST(Verification, ALeafSignsNobody) {
  const TestWords leafWords{.commonName = "leaf", .usage = ""};
  const TestAuthority leaf(testRoot(), leafWords);

  EXPECT_EQ(verdict(leaf.issue({.names = "DNS:localhost"}).identity(), "localhost"),
            "invalid CA certificate");
}

// T11
TEST(Verification, AnInsecureClientBelievesEverybodyAndSaysSoItself) {
  const TlsIdentity identity = TlsIdentity::selfSigned({"somebody.else"});

  EXPECT_EQ(
      verdict(identity, "localhost", TlsContextBuilder::forClient().trust(TlsTrust::insecure())),
      "believed");
}

// --- what it is for ---

// T11
TEST(Verification, ACertificateForClientsIsNoServers) {
  EXPECT_EQ(verdict({.names = "DNS:localhost", .usage = "clientAuth"}, "localhost"),
            "unsuitable certificate purpose");
  EXPECT_EQ(verdict({.names = "DNS:localhost", .usage = "codeSigning"}, "localhost"),
            "unsuitable certificate purpose");
  EXPECT_EQ(verdict({.names = "DNS:localhost", .usage = "serverAuth"}, "localhost"), "believed");
}

// T11: without the extension a certificate is for everything, as RFC 5280 4.2.1.12 has it.
TEST(Verification, ACertificateThatDoesNotSayWhatForIsGoodForAll) {
  EXPECT_EQ(verdict({.names = "DNS:localhost", .usage = ""}, "localhost"), "believed");
}

// T11
TEST(Verification, AnAuthorityKeepsToItsNames) {
  const TestAuthority inside(testRoot(), "inside", "permitted;DNS:example.org");
  const TestAuthority without(testRoot(), "without", "excluded;DNS:example.org");

  EXPECT_EQ(verdict(inside.issue({.names = "DNS:a.example.org"}).identity(), "a.example.org"),
            "believed");
  EXPECT_EQ(verdict(inside.issue({.names = "DNS:a.example.com"}).identity(), "a.example.com"),
            "permitted subtree violation");
  EXPECT_EQ(verdict(without.issue({.names = "DNS:a.example.org"}).identity(), "a.example.org"),
            "excluded subtree violation");
  EXPECT_EQ(verdict(without.issue({.names = "DNS:a.example.com"}).identity(), "a.example.com"),
            "believed");
}

// --- clients ---

/// What a server that asks for a certificate says about a client that shows `identity`.
std::string clientVerdict(const TlsIdentity* identity, TlsClientAuth wanted) {
  TlsContextBuilder server = serverBuilder();
  server.clientAuth(wanted);
  if (wanted != TlsClientAuth::none) server.trust(TlsTrust::fromPem(testRoot().pem()));
  TlsContextBuilder client = clientBuilder();
  if (identity != nullptr) client.identity(*identity);
  std::string verdicts[2];
  for (const TlsVersion version : {TlsVersion::tls12, TlsVersion::tls13}) {
    TlsPair pair(server.versions(version, version), client);
    pair.carry();
    verdicts[version == TlsVersion::tls13] = verdictOf(pair.serverSaw);
    EXPECT_EQ(pair.server().isOpen(), pair.serverSaw.has("handshake"));
  }
  return verdicts[0] == verdicts[1] ? verdicts[0] : verdicts[0] + " / " + verdicts[1];
}

// T11
TEST(Verification, AServerAsksForCertificatesAndBelievesWhomItIsTold) {
  const TlsIdentity good =
      testRoot().issue({.commonName = "client", .usage = "clientAuth"}).identity();
  const TlsIdentity forServers = testRoot().issue({.usage = "serverAuth"}).identity();
  const TlsIdentity stranger = TestAuthority("stranger").issue({}).identity();

  EXPECT_EQ(clientVerdict(&good, TlsClientAuth::required), "believed");
  EXPECT_EQ(clientVerdict(&forServers, TlsClientAuth::required), "unsuitable certificate purpose");
  EXPECT_EQ(clientVerdict(&stranger, TlsClientAuth::required),
            "unable to get local issuer certificate");
  EXPECT_EQ(clientVerdict(nullptr, TlsClientAuth::required), "the peer showed none");
  EXPECT_EQ(clientVerdict(nullptr, TlsClientAuth::optional), "believed");
  EXPECT_EQ(clientVerdict(&stranger, TlsClientAuth::optional),
            "unable to get local issuer certificate");
  EXPECT_EQ(clientVerdict(&stranger, TlsClientAuth::none), "believed");
}

}  // namespace
}  // namespace millrace
