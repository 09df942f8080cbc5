// SPDX-License-Identifier: Apache-2.0
// What reading leaves out because it is slow must not be missed.
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace millrace {
namespace {

/// As somebody does who does not look at what OpenSSL tells him.
void leaveAnError() {
  ERR_new();
  ERR_set_error(ERR_LIB_SSL, SSL_R_CERTIFICATE_VERIFY_FAILED, nullptr);
}

TEST(TlsReading, SeesCloseNotifyThatCameWithTheLastMessage) {
  TlsPair pair;
  pair.carry();
  pair.client().writeOutbound(ByteBuf::of("bye"));
  pair.client().run([&] { return pair.client().Channel::close(); });
  const std::string all = pair.client().outboundText();

  pair.server().writeInbound(ByteBuf::of(all));

  EXPECT_EQ(pair.serverSaw.text, "bye");
  EXPECT_TRUE(pair.serverSaw.has("close"));
}

TEST(TlsReading, GivesAllMessagesThatCameAtOnce) {
  TlsPair pair;
  pair.carry();
  std::string sent;
  for (const std::size_t size : {1u, 64u, 16'384u, 3u, 20'000u}) {
    sent += std::string(size, static_cast<char>('a' + size % 26));
    pair.client().writeOutbound(ByteBuf::of(sent.substr(sent.size() - size)));
  }
  const std::string all = pair.client().outboundText();

  pair.server().writeInbound(ByteBuf::of(all));

  EXPECT_EQ(pair.serverSaw.text, sent);
}

TEST(TlsReading, IsNotMisledByErrorsThatOthersLeftOnTheThread) {
  TlsPair pair;
  pair.carry();
  pair.client().writeOutbound(ByteBuf::of("hello"));

  for (const char each : pair.client().outboundText()) {
    leaveAnError();
    pair.server().writeInbound(ByteBuf::of(std::string(1, each)));
  }
  ERR_clear_error();

  EXPECT_EQ(pair.serverSaw.text, "hello");
  EXPECT_TRUE(pair.serverSaw.errors.empty());
}

TEST(TlsReading, KnowsTheEndFromErrorsThatOthersLeftOnTheThread) {
  TlsPair pair;
  pair.carry();
  pair.client().run([&] { return pair.client().Channel::close(); });

  leaveAnError();
  pair.server().writeInbound(ByteBuf::of(pair.client().outboundText()));
  ERR_clear_error();

  EXPECT_TRUE(pair.serverSaw.has("close"));
  EXPECT_TRUE(pair.serverSaw.errors.empty());
}

TEST(TlsReading, SaysWhatIsWrongAndNotWhatOthersDidWrong) {
  TlsPair pair;
  pair.carry();
  pair.client().writeOutbound(ByteBuf::of("hello"));
  std::string bytes = pair.client().outboundText();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);

  leaveAnError();
  pair.server().writeInbound(ByteBuf::of(bytes));
  ERR_clear_error();

  ASSERT_EQ(pair.serverSaw.errors.size(), 1u);
  EXPECT_EQ(pair.serverSaw.errors[0].code(), TlsErrc::protocol);
  EXPECT_NE(pair.serverSaw.errors[0].message().find("bad record mac"), std::string::npos)
      << pair.serverSaw.errors[0].message();
}

}  // namespace
}  // namespace millrace
