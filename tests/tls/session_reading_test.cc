// SPDX-License-Identifier: Apache-2.0
// What reading leaves out because it is slow must not be missed.
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

#include <openssl/err.h>

namespace millrace {
namespace {

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
    ERR_new();
    ERR_set_error(ERR_LIB_USER, 1, nullptr);
    pair.server().writeInbound(ByteBuf::of(std::string(1, each)));
  }
  ERR_clear_error();

  EXPECT_EQ(pair.serverSaw.text, "hello");
  EXPECT_TRUE(pair.serverSaw.errors.empty());
}

}  // namespace
}  // namespace millrace
