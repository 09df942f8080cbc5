// SPDX-License-Identifier: Apache-2.0
// Every way in which a certificate, a key or a list of authorities can be wrong, with its words.
#include "tls/credentials.h"

#include "tls/temporary_folder.h"
#include "tls/test_ca.h"
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

#include <openssl/err.h>

namespace millrace::tls {
namespace {

using test::pemOf;
using test::TemporaryFolder;
using test::TestAuthority;
using test::TestCertificate;
using test::testRoot;
using test::TestWords;

const TestCertificate& leaf() {
  static const TestCertificate made =
      testRoot().issue({.commonName = "leaf", .names = "DNS:localhost"});
  return made;
}

class Credentials : public testing::Test {
 protected:
  /// What building a server's context of these files says; "" if it is content.
  static std::string problem(const TlsIdentity& identity) {
    const Result<TlsContext> built = TlsContextBuilder::forServer(identity).tryBuild();
    EXPECT_EQ(ERR_peek_error(), 0U) << "OpenSSL's queue has something left for the next one";
    if (built) return "";
    EXPECT_EQ(built.error().code(), TlsErrc::credentials);
    return built.error().message();
  }
  std::string problem(const std::string& chainText, const std::string& keyText,
                      const std::string& passPhrase = {}) const {
    return problem(TlsIdentity::fromFiles(folder.write("chain.pem", chainText),
                                          folder.write("key.pem", keyText), passPhrase));
  }
  static std::string trustProblem(const TlsTrust& trust) {
    const Result<TlsContext> built = TlsContextBuilder::forClient().trust(trust).tryBuild();
    EXPECT_EQ(ERR_peek_error(), 0U);
    return built ? "" : built.error().message();
  }
  static std::string words(const std::string& what) { return "TLS " + what + ": cannot be used"; }

  const TemporaryFolder folder;
  const std::string chain = folder / "chain.pem";
  const std::string key = folder / "key.pem";
};

TEST_F(Credentials, AGoodPairIsTaken) {
  EXPECT_EQ(problem(leaf().chain(), leaf().keyPem()), "");
  EXPECT_EQ(problem(leaf().identity()), "");
}

TEST_F(Credentials, AFileThatIsMissingIsNamed) {
  folder.write("chain.pem", leaf().chain());

  EXPECT_EQ(problem(TlsIdentity::fromFiles(folder / "none.pem", key)),
            words(folder / "none.pem" + " cannot be read: No such file or directory"));
  EXPECT_EQ(problem(TlsIdentity::fromFiles(chain, folder / "none.key")),
            words(folder / "none.key" + " cannot be read: No such file or directory"));
}

TEST_F(Credentials, AnEmptyPathIsNamedAsSuch) {
  EXPECT_EQ(problem(TlsIdentity::fromFiles("", key)),
            words("certificate needs a path, this one is empty"));
}

TEST_F(Credentials, AFolderIsNoFile) {
  std::filesystem::create_directory(folder / "folder");

  EXPECT_EQ(problem(TlsIdentity::fromFiles(folder / "folder", key)),
            words(folder / "folder" + " cannot be read: Is a directory"));
}

TEST_F(Credentials, AnEmptyFileHasNoCertificateAndNoKey) {
  EXPECT_EQ(problem("", leaf().keyPem()),
            words("certificate " + chain +
                  " has no certificate (PEM is expected: -----BEGIN CERTIFICATE-----)"));
  EXPECT_EQ(
      problem(leaf().chain(), ""),
      words("key " + key + " has no private key (PEM is expected: -----BEGIN PRIVATE KEY-----)"));
}

TEST_F(Credentials, WhatIsNoPemHasNoCertificateAndNoKey) {
  EXPECT_EQ(problem(std::string("\x30\x82\x01\x00\x00", 5), leaf().keyPem()),
            words("certificate " + chain +
                  " has no certificate (PEM is expected: -----BEGIN CERTIFICATE-----)"));
  EXPECT_EQ(
      problem(leaf().chain(), "my key\n"),
      words("key " + key + " has no private key (PEM is expected: -----BEGIN PRIVATE KEY-----)"));
}

TEST_F(Credentials, FilesThatAreMixedUpAreSeen) {
  EXPECT_EQ(problem(leaf().keyPem(), leaf().chain()),
            words("certificate " + chain +
                  " has no certificate (PEM is expected: -----BEGIN CERTIFICATE-----)"));
  EXPECT_EQ(
      problem(leaf().chain(), leaf().chain()),
      words("key " + key + " has no private key (PEM is expected: -----BEGIN PRIVATE KEY-----)"));
}

TEST_F(Credentials, DamagedPemIsSeen) {
  std::string damaged = leaf().pem;
  damaged[damaged.size() / 2] = '!';
  EXPECT_EQ(
      problem(damaged, leaf().keyPem()),
      words("certificate " + chain + " has a certificate that is damaged: bad base64 decode"));
  EXPECT_EQ(
      problem(leaf().pem + damaged, leaf().keyPem()),
      words("certificate " + chain + " has a certificate that is damaged: bad base64 decode"));
  EXPECT_EQ(problem(leaf().pem.substr(0, 200), leaf().keyPem()),
            words("certificate " + chain + " has a certificate that is damaged: bad end line"));

  std::string key2 = leaf().keyPem();
  key2[key2.size() / 2] = '!';
  EXPECT_EQ(problem(leaf().chain(), key2),
            words("key " + key + " is damaged, or of a kind that OpenSSL does not know"));
}

TEST_F(Credentials, AFileOfMoreThanAMebibyteIsNotRead) {
  EXPECT_EQ(problem(std::string(1024 * 1024 + 1, 'x'), leaf().keyPem()),
            words(chain + " is longer than 1 MiB: that is no certificate"));
}

TEST_F(Credentials, AKeyOfAnotherCertificateIsSeen) {
  const TestCertificate other = testRoot().issue({});

  EXPECT_EQ(problem(leaf().chain(), other.keyPem()),
            words("key " + key + " does not belong to certificate " + chain));
  EXPECT_EQ(problem(TlsIdentity::fromPem(leaf().chain(), other.keyPem())),
            words("the key in memory does not belong to the certificate in memory"));
}

TEST_F(Credentials, AKeyOfAnotherKindIsSeen) {
  const TestCertificate other = testRoot().issue({.rsaBits = 2048});

  EXPECT_EQ(problem(leaf().chain(), other.keyPem()),
            words("key " + key + " does not belong to certificate " + chain));
}

TEST_F(Credentials, ACertificateIsNotUsedBeforeOrAfterItsTime) {
  const TestCertificate old = testRoot().issue({.notAfter = "20210203040506Z"});
  EXPECT_EQ(problem(old.chain(), old.keyPem()),
            words("certificate " + chain + " has expired: it was good until 2021-02-03 04:05:06"));

  const TestCertificate early = testRoot().issue({.notBefore = "21100203040506Z"});
  EXPECT_EQ(problem(early.chain(), early.keyPem()),
            words("certificate " + chain + " is not good before 2110-02-03 04:05:06"));
}

TEST_F(Credentials, AnEncryptedKeyNeedsItsPassPhrase) {
  const std::string secret = pemOf(leaf().key.get(), "open sesame");

  EXPECT_EQ(problem(leaf().chain(), secret),
            words("key " + key + " is encrypted, and no pass phrase was given"));
  EXPECT_EQ(problem(leaf().chain(), secret, "open barley"),
            words("key " + key + " is encrypted with another pass phrase"));
  EXPECT_EQ(problem(leaf().chain(), secret, std::string(5000, 'x')),
            words("key " + key + " is encrypted with another pass phrase"));
  EXPECT_EQ(problem(leaf().chain(), secret, "open sesame"), "");
  EXPECT_EQ(problem(leaf().chain(), leaf().keyPem(), "not needed"), "");
}

TEST_F(Credentials, AKeyThatIsTooWeakIsRefused) {
  const TestCertificate weak = testRoot().issue({.rsaBits = 1024});
  EXPECT_EQ(problem(weak.chain(), weak.keyPem()),
            words("certificate " + chain + " is refused: ee key too small"));

  const TestCertificate good = testRoot().issue({.rsaBits = 2048});
  EXPECT_EQ(problem(good.chain(), good.keyPem()), "");
}

TEST_F(Credentials, AWeakAuthorityInTheChainIsRefused) {
  TestWords words1024;
  words1024.commonName = "weak";
  words1024.usage.clear();
  words1024.basic = "critical,CA:TRUE";
  words1024.rsaBits = 1024;
  const TestAuthority weak(testRoot(), words1024);
  const TestCertificate made = weak.issue({});

  EXPECT_EQ(problem(made.chain(), made.keyPem()),
            words("certificate " + chain +
                  " has a certificate in its chain that is refused: ca key too small"));
}

TEST_F(Credentials, AChainIsSentWhole) {
  const TestAuthority between(testRoot(), "between");
  const TestCertificate made = between.issue({.commonName = "leaf", .names = "DNS:localhost"});
  const TlsContextBuilder client =
      TlsContextBuilder::forClient().trust(TlsTrust::fromPem(testRoot().pem()));

  TlsPair whole(TlsContextBuilder::forServer(made.identity()), client);
  whole.carry();
  TlsPair partial(TlsContextBuilder::forServer(TlsIdentity::fromPem(made.pem, made.keyPem())),
                  client);
  partial.carry();

  ASSERT_TRUE(whole.clientSaw.has("handshake"));
  const TlsInfo info =
      whole.client().run([&] { return whole.client().pipeline().get<TlsHandler>()->info(); });
  ASSERT_EQ(info.peerCertificates.size(), 2U);
  EXPECT_EQ(info.peerCertificates[0].subject, "CN=leaf");
  EXPECT_EQ(info.peerCertificates[0].issuer, "CN=between");
  EXPECT_EQ(info.peerCertificates[1].subject, "CN=between");
  EXPECT_EQ(info.peerCertificates[1].issuer, "CN=root");
  ASSERT_EQ(partial.clientSaw.errors.size(), 1U);
  EXPECT_EQ(partial.clientSaw.errors[0].message(),
            "TLS handshake localhost: unable to get local issuer certificate: certificate refused");
}

TEST_F(Credentials, AChainInTheWrongOrderIsSeen) {
  const TestAuthority between(testRoot(), "between");
  const TestCertificate made = between.issue({});

  EXPECT_EQ(problem(made.above + made.pem, made.keyPem()),
            words("key " + key + " does not belong to certificate " + chain));
}

TEST_F(Credentials, TextAroundThePemIsIgnored) {
  EXPECT_EQ(problem("Subject: leaf\n" + leaf().chain() + "\nbye\n", "a key:\n" + leaf().keyPem()),
            "");
  EXPECT_EQ(problem(leaf().keyPem() + leaf().chain(), leaf().chain() + leaf().keyPem()), "");
}

TEST_F(Credentials, ATrustFileIsNamedIfItIsWrong) {
  std::string damaged = testRoot().pem();
  damaged[damaged.size() / 2] = '!';

  EXPECT_EQ(trustProblem(TlsTrust::fromFile(folder / "none.pem")),
            words(folder / "none.pem" + " cannot be read: No such file or directory"));
  EXPECT_EQ(trustProblem(TlsTrust::fromFile("")), words("trust needs a path, this one is empty"));
  EXPECT_EQ(trustProblem(TlsTrust::fromFile(folder.write("ca.pem", leaf().keyPem()))),
            words("trust " + (folder / "ca.pem") +
                  " has no certificate (PEM is expected: -----BEGIN CERTIFICATE-----)"));
  EXPECT_EQ(trustProblem(TlsTrust::fromFile(folder.write("ca.pem", damaged))),
            words("trust " + (folder / "ca.pem") +
                  " has a certificate that is damaged: bad base64 decode"));
  EXPECT_EQ(trustProblem(TlsTrust::fromPem("nothing")),
            words("the trust in memory has no certificate (PEM is expected: "
                  "-----BEGIN CERTIFICATE-----)"));
  EXPECT_EQ(trustProblem(TlsTrust::fromFile(folder.write("ca.pem", testRoot().pem()))), "");
}

TEST_F(Credentials, TheSameAuthorityTwiceIsNoProblem) {
  EXPECT_EQ(trustProblem(TlsTrust::fromPem(testRoot().pem() + testRoot().pem() + leaf().pem)), "");
}

TEST_F(Credentials, ACertificateIsDescribedInWords) {
  const TestCertificate made = testRoot().issue(
      {.commonName = "a leaf", .names = "DNS:example.org,IP:192.0.2.7,IP:2001:db8::7,DNS:*.b.org"});
  const BioPtr bio(BIO_new_mem_buf(made.pem.data(), static_cast<int>(made.pem.size())));
  const X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));

  const TlsCertificate said = describe(certificate.get());

  EXPECT_EQ(said.subject, "CN=a leaf");
  EXPECT_EQ(said.issuer, "CN=root");
  EXPECT_EQ(said.names,
            (std::vector<std::string>{"example.org", "192.0.2.7", "2001:db8::7", "*.b.org"}));
  EXPECT_EQ(said.notBefore, "2020-01-01 00:00:00");
  EXPECT_EQ(said.notAfter, "2120-01-01 00:00:00");
  EXPECT_EQ(said.sha256.size(), 64U);
  EXPECT_EQ(said.der.substr(0, 2), "\x30\x82");
}

}  // namespace
}  // namespace millrace::tls
