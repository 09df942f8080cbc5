// SPDX-License-Identifier: Apache-2.0
// What is asked for before the handshake, or after everything is over.
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace millrace {
namespace {

Future<TlsInfo> ask(EmbeddedChannel& channel) {
  return channel.run([&channel] { return tlsHandshake(channel); });
}

TEST(TlsHandshake, IsToldToWhoeverAsksInTheInitializer) {
  const TlsContext server = serverBuilder().build();
  Future<TlsInfo> info;
  EmbeddedChannel channel([&](Channel& made) {
    made.pipeline().emplaceLast<TlsHandler>(server);
    info = tlsHandshake(made);
  });
  channel.advanceTimeBy(std::chrono::seconds(10));
  ASSERT_TRUE(info.isDone());
  EXPECT_TRUE(info.cause().is(Errc::timedOut)) << info.cause().message();
}

TEST(TlsHandshake, SaysWhyItFailedWhenTheHandlerIsGone) {
  TlsPair pair(serverBuilder(), clientBuilder(), "another.example");
  pair.carry();
  ASSERT_FALSE(pair.client().isOpen());

  const Future<TlsInfo> info = ask(pair.client());
  ASSERT_TRUE(info.isDone());
  EXPECT_EQ(info.cause().code(), TlsErrc::certificate) << info.cause().message();
}

TEST(TlsHandshake, SaysClosedWhenAGoodConnectionIsOver) {
  TlsPair pair;
  pair.carry();
  pair.client().run([&] { return pair.client().Channel::close(); });
  pair.carry();
  ASSERT_FALSE(pair.client().isOpen());

  const Future<TlsInfo> info = ask(pair.client());
  ASSERT_TRUE(info.isDone());
  EXPECT_TRUE(info.cause().is(Errc::closed)) << info.cause().message();
}

TEST(TlsHandshake, IsNotSupportedWithoutAHandler) {
  EmbeddedChannel channel;
  EXPECT_TRUE(ask(channel).cause().is(Errc::notSupported));
}

TEST(TlsHandler, EndsItsOutputAfterTheHandshakeIfItWasAskedBefore) {
  TlsPair pair;
  pair.client().writeOneOutbound(ByteBuf::of("all"));
  pair.client().flushOutbound();
  pair.client().run([&] { pair.client().pipeline().get<TlsHandler>()->closeOutbound(); });
  const Future<void> late = pair.client().writeOneOutbound(ByteBuf::of("more"));
  EXPECT_TRUE(late.cause().is(Errc::closed));

  pair.carry();
  EXPECT_EQ(pair.serverSaw.text, "all");
  EXPECT_TRUE(pair.serverSaw.has("close"));
}

TEST(OptionalTlsHandler, ClosesTheChannelWhenItsFunctionThrows) {
  Saw saw;
  const TlsContext context = serverBuilder().build();
  EmbeddedChannel channel([&](Channel& made) {
    made.pipeline().emplaceLast<OptionalTlsHandler>(
        context, [](Channel&, bool) { throw std::runtime_error("no"); });
    made.pipeline().emplaceLast<Witness>(saw);
  });
  channel.writeInbound(ByteBuf::of("abc"));
  EXPECT_FALSE(channel.isOpen());
  ASSERT_EQ(saw.errors.size(), 1u);
  EXPECT_EQ(saw.text, "");
}

TEST(TlsIdentity, SaysWhenACertificateIsGivenAsAKey) {
  const std::string& chain = testIdentity().chain();
  const Result<TlsContext> built =
      TlsContextBuilder::forServer(TlsIdentity::fromPem(chain, chain)).tryBuild();
  ASSERT_FALSE(built.ok());
  EXPECT_NE(built.error().message().find("the key in memory has no private key"), std::string::npos)
      << built.error().message();
}

}  // namespace
}  // namespace millrace
