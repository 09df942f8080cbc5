// SPDX-License-Identifier: Apache-2.0
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(TlsHandler, ShakesHandsAndCarriesBytesBothWays) {
  TlsPair pair;
  pair.carry();
  EXPECT_TRUE(pair.clientSaw.has("handshake"));
  EXPECT_TRUE(pair.serverSaw.has("handshake"));

  pair.client().writeOutbound(ByteBuf::of("hello"));
  pair.carry();
  EXPECT_EQ(pair.serverSaw.text, "hello");
  pair.server().writeOutbound(ByteBuf::of("world"));
  pair.carry();
  EXPECT_EQ(pair.clientSaw.text, "world");
}

TEST(TlsHandler, HoldsWritesUntilTheHandshakeIsDone) {
  TlsPair pair;
  Future<void> written = pair.client().writeOneOutbound(ByteBuf::of("early"));
  pair.client().flushOutbound();
  EXPECT_FALSE(written.isDone());
  pair.carry();
  EXPECT_TRUE(written.isSuccess());
  EXPECT_EQ(pair.serverSaw.text, "early");
}

TEST(TlsHandler, WorksHoweverTheBytesAreCut) {
  for (const std::size_t piece : {1u, 2u, 3u, 5u, 17u, 100u, 1000u}) {
    TlsPair pair;
    pair.client().writeOneOutbound(ByteBuf::of(std::string(40'000, 'x')));
    pair.client().flushOutbound();
    pair.carry(piece);
    EXPECT_EQ(pair.serverSaw.text, std::string(40'000, 'x')) << piece;
  }
}

TEST(TlsHandler, SaysCloseNotifyBothWays) {
  TlsPair pair;
  pair.carry();
  const Future<void> closed = pair.client().run([&] { return pair.client().Channel::close(); });
  EXPECT_FALSE(closed.isDone());
  pair.carry();
  EXPECT_TRUE(pair.serverSaw.has("close"));
  EXPECT_TRUE(pair.clientSaw.has("close"));
  EXPECT_FALSE(pair.server().isOpen());
  EXPECT_FALSE(pair.client().isOpen());
  EXPECT_TRUE(closed.isDone());
  EXPECT_TRUE(pair.serverSaw.errors.empty());
  EXPECT_TRUE(pair.clientSaw.errors.empty());
}

TEST(TlsHandler, RefusesAWrongHost) {
  TlsPair pair(serverBuilder(), clientBuilder(), "another.example");
  pair.carry();
  ASSERT_EQ(pair.clientSaw.errors.size(), 1u);
  EXPECT_EQ(pair.clientSaw.errors[0].code(), TlsErrc::certificate)
      << pair.clientSaw.errors[0].message();
  EXPECT_FALSE(pair.client().isOpen());
  ASSERT_EQ(pair.serverSaw.errors.size(), 1u);
  EXPECT_FALSE(pair.server().isOpen());
  EXPECT_EQ(pair.clientSaw.errors[0].message(),
            "TLS handshake another.example: hostname mismatch (its certificate is for localhost "
            "example.org 127.0.0.1): certificate refused");
  EXPECT_NE(pair.serverSaw.errors[0].message().find("the peer says: bad certificate"),
            std::string::npos)
      << pair.serverSaw.errors[0].message();
}

}  // namespace
}  // namespace millrace
