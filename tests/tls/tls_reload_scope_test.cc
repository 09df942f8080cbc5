// SPDX-License-Identifier: Apache-2.0
// What a reload means for sessions that a client keeps, and which settings it refuses.
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace millrace {
namespace {

class TlsClientSessions : public testing::TestWithParam<TlsVersion> {
 protected:
  /// Connects, and says whether an earlier session went on.
  bool resumes() {
    TlsPair pair(server_, client_);
    pair.carry();
    EXPECT_TRUE(pair.clientSaw.has("handshake"));
    for (const Error& error : pair.clientSaw.errors) ADD_FAILURE() << error.message();
    const auto ask = [&] { return pair.server().pipeline().get<TlsHandler>()->info(); };
    serverSide_ = pair.server().run(ask);
    return serverSide_.resumed;
  }

  const TlsIdentity other_ = TlsIdentity::selfSigned({"other.example"});
  TlsContext server_ = serverBuilder()
                           .versions(GetParam(), GetParam())
                           .clientAuth(TlsClientAuth::optional)
                           .trust(TlsTrust::fromPem(testIdentity().chain() + other_.chain()))
                           .build();
  TlsContext client_ = clientBuilder().build();
  TlsInfo serverSide_;
};
INSTANTIATE_TEST_SUITE_P(Versions, TlsClientSessions,
                         testing::Values(TlsVersion::tls12, TlsVersion::tls13),
                         [](const auto& row) {
                           return row.param == TlsVersion::tls12 ? "Tls12" : "Tls13";
                         });

TEST_P(TlsClientSessions, GoOnAfterAReloadThatChangesNothing) {
  EXPECT_FALSE(resumes());
  ASSERT_TRUE(client_.reload());
  EXPECT_TRUE(resumes());
}

TEST_P(TlsClientSessions, DoNotGoOnWhenTheClientBelievesOthers) {
  EXPECT_FALSE(resumes());
  ASSERT_TRUE(client_.reload(
      clientBuilder().trust(TlsTrust::fromPem(testIdentity().chain() + other_.chain()))));
  EXPECT_FALSE(resumes());
  EXPECT_TRUE(resumes());
}

TEST_P(TlsClientSessions, DoNotGoOnWhenTheClientShowsAnotherCertificate) {
  ASSERT_TRUE(client_.reload(clientBuilder().identity(testIdentity())));
  EXPECT_FALSE(resumes());
  ASSERT_TRUE(client_.reload(clientBuilder().identity(other_)));
  EXPECT_FALSE(resumes());
  ASSERT_FALSE(serverSide_.peerCertificates.empty());
  EXPECT_EQ(serverSide_.peerCertificates[0].subject, "CN=other.example");
}

TEST_P(TlsClientSessions, TellTheServerTheNameAgain) {
  EXPECT_FALSE(resumes());
  EXPECT_EQ(serverSide_.serverName, "localhost");
  EXPECT_TRUE(resumes());
  EXPECT_EQ(serverSide_.serverName, "localhost");
}

TEST(TlsReloadScope, RefusesSettingsThatBuildWouldRefuse) {
  TlsContext server = serverBuilder().build();
  const TlsContextBuilder nobody = serverBuilder().clientAuth(TlsClientAuth::required);
  EXPECT_THROW(nobody.build(), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(server.reload(nobody)), std::invalid_argument);
  EXPECT_EQ(server.figures().reloads, 0u);
}

TEST(TlsContextBuilder, RefusesClientCertificatesThatNobodyChecks) {
  EXPECT_THROW(
      serverBuilder().clientAuth(TlsClientAuth::optional).trust(TlsTrust::insecure()).build(),
      std::invalid_argument);
}

TEST(TlsErrors, SayWhenItIsThePeerWhoRefuses) {
  TlsPair pair(serverBuilder().refuseUnknownNames(), clientBuilder());
  pair.carry();
  ASSERT_EQ(pair.clientSaw.errors.size(), 1u);
  EXPECT_EQ(pair.clientSaw.errors[0].message(),
            "TLS handshake localhost: the peer says: unrecognized name: handshake failed");
}

}  // namespace
}  // namespace millrace
