// SPDX-License-Identifier: Apache-2.0
#include "support/loop_test.h"
#include "tls/credentials.h"
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

#include <ctime>
#include <openssl/err.h>
#include <openssl/pem.h>

namespace millrace {
namespace {

TlsCertificate certificateOf(const TlsIdentity& identity) {
  const tls::BioPtr bio(
      BIO_new_mem_buf(identity.chain().data(), static_cast<int>(identity.chain().size())));
  const tls::X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  return tls::describe(certificate.get());
}

/// A client that believes `identity` and wants `host`: "" or what it says.
std::string reach(const TlsIdentity& identity, const std::string& host) {
  TlsPair pair(TlsContextBuilder::forServer(identity),
               TlsContextBuilder::forClient().trust(TlsTrust::fromPem(identity.chain())), host);
  pair.carry();
  return pair.clientSaw.has("handshake") ? "" : pair.clientSaw.errors.at(0).message();
}

std::string refusalOf(const std::vector<std::string>& names) {
  return test::textOf<std::invalid_argument>([&] { TlsIdentity::selfSigned(names); });
}

TEST(TlsIdentity, FilesAndTextsAreKeptAsTheyAre) {
  const TlsIdentity files = TlsIdentity::fromFiles("a.pem", "a.key", "secret");
  EXPECT_TRUE(files.isFile());
  EXPECT_EQ(files.chain(), "a.pem");
  EXPECT_EQ(files.key(), "a.key");
  EXPECT_EQ(files.passPhrase(), "secret");

  const TlsIdentity texts = TlsIdentity::fromPem("chain", "key");
  EXPECT_FALSE(texts.isFile());
  EXPECT_EQ(texts.chain(), "chain");
  EXPECT_EQ(texts.key(), "key");
  EXPECT_EQ(texts.passPhrase(), "");
}

TEST(TlsIdentity, SelfSignedIsForAllItsNamesAndAddresses) {
  const std::vector<std::string> names{"one.example", "*.two.example", "192.0.2.1", "2001:db8::1"};
  const TlsIdentity identity = TlsIdentity::selfSigned(names);

  EXPECT_EQ(certificateOf(identity).names, names);
  EXPECT_EQ(certificateOf(identity).subject, "CN=one.example");
  EXPECT_EQ(reach(identity, "one.example"), "");
  EXPECT_EQ(reach(identity, "a.two.example"), "");
  EXPECT_EQ(reach(identity, "192.0.2.1"), "");
  EXPECT_EQ(reach(identity, "2001:db8::1"), "");
  EXPECT_EQ(reach(identity, "three.example"),
            "TLS handshake three.example: hostname mismatch (its certificate is for one.example "
            "*.two.example 192.0.2.1 2001:db8::1): certificate refused");
  EXPECT_EQ(reach(identity, "192.0.2.2"),
            "TLS handshake 192.0.2.2: IP address mismatch (its certificate is for one.example "
            "*.two.example 192.0.2.1 2001:db8::1): certificate refused");
}

TEST(TlsIdentity, SelfSignedIsGoodForAYearFromNowOn) {
  const TlsCertificate made = certificateOf(testIdentity());
  const std::time_t now = std::time(nullptr);
  const auto text = [](std::time_t when) {
    tm parts{};
    ::gmtime_r(&when, &parts);
    char buffer[32];
    return std::string(buffer, std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S", &parts));
  };

  EXPECT_LT(made.notBefore, text(now));
  EXPECT_GT(made.notAfter, text(now + 364L * 24 * 3600));
  EXPECT_LT(made.notAfter, text(now + 366L * 24 * 3600));
}

TEST(TlsIdentity, EachSelfSignedOneIsAnother) {
  const TlsIdentity one = TlsIdentity::selfSigned({"localhost"});
  const TlsIdentity other = TlsIdentity::selfSigned({"localhost"});

  EXPECT_NE(one.key(), other.key());
  EXPECT_NE(certificateOf(one).sha256, certificateOf(other).sha256);
}

TEST(TlsIdentity, SelfSignedTakesALongNameToo) {
  const std::string longName = std::string(60, 'a') + "." + std::string(60, 'b') + ".example";
  const TlsIdentity identity = TlsIdentity::selfSigned({longName});

  EXPECT_EQ(ERR_peek_error(), 0U);
  EXPECT_EQ(reach(identity, longName), "");
}

TEST(TlsIdentity, SelfSignedRefusesWhatIsNoNameAndNoAddress) {
  EXPECT_EQ(refusalOf({}), "TlsIdentity::selfSigned() needs a name");
  for (const std::string& wrong :
       {std::string(), std::string("two words"), std::string("a,DNS:b"), std::string("a\nb"),
        std::string("a:b"), std::string("f*o.example"), std::string("example..org"),
        std::string("1.2.3.4.5"), std::string("[::1]"), std::string("http://example.org"),
        std::string(300, 'a')}) {
    EXPECT_EQ(refusalOf({"good.example", wrong}),
              "TlsIdentity::selfSigned(): \"" + wrong + "\" is no host name or address");
  }
  // The text of an exception ends there.
  EXPECT_EQ(refusalOf({std::string("a\0.example", 10)}), "TlsIdentity::selfSigned(): \"a");
  EXPECT_EQ(refusalOf({std::string("127.0.0.1\0.example", 18)}),
            "TlsIdentity::selfSigned(): \"127.0.0.1");
}

}  // namespace
}  // namespace millrace
