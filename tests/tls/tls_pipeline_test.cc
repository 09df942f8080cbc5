// SPDX-License-Identifier: Apache-2.0
// TLS among other handlers: names, protocols, upgrades, one port for both, turns of the loop.
#include "tls/tls_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

std::string subjectSeen(TlsPair& pair) {
  const TlsInfo info =
      pair.client().run([&] { return pair.client().pipeline().get<TlsHandler>()->info(); });
  return info.peerCertificates.empty() ? "" : info.peerCertificates[0].subject;
}

TEST(TlsNames, ChooseTheCertificate) {
  const TlsIdentity exact = TlsIdentity::selfSigned({"api.example.org"});
  const TlsIdentity wild = TlsIdentity::selfSigned({"*.example.org"});
  const TlsContext server =
      serverBuilder().identity("API.example.org.", exact).identity("*.example.org", wild).build();
  const std::string trusted = testIdentity().chain() + exact.chain() + wild.chain();
  const TlsContext client = clientBuilder().trust(TlsTrust::fromPem(trusted)).build();
  const auto seenFor = [&](const std::string& host) {
    TlsPair pair(server, client, host);
    pair.carry();
    return subjectSeen(pair);
  };
  EXPECT_EQ(seenFor("api.example.org"), "CN=api.example.org");
  EXPECT_EQ(seenFor("www.example.org"), "CN=*.example.org");
  EXPECT_EQ(seenFor("WWW.EXAMPLE.org"), "CN=*.example.org");
  EXPECT_EQ(seenFor("example.org"), "CN=localhost") << "a star is one label, not none";
  EXPECT_EQ(seenFor("localhost"), "CN=localhost");
  EXPECT_EQ(seenFor("127.0.0.1"), "CN=localhost") << "addresses are no names";
}

TEST(TlsNames, ThatNobodyHasCanBeRefused) {
  TlsPair pair(serverBuilder()
                   .identity("known.example", TlsIdentity::selfSigned({"known.example"}))
                   .refuseUnknownNames(),
               clientBuilder());
  pair.carry();
  ASSERT_EQ(pair.serverSaw.errors.size(), 1u);
  EXPECT_THAT(pair.serverSaw.errors[0].message(), HasSubstr("asks for \"localhost\""));
  ASSERT_EQ(pair.clientSaw.errors.size(), 1u);
  EXPECT_THAT(pair.clientSaw.errors[0].message(), HasSubstr("unrecognized name"));
}

TEST(Alpn, BuildsThePipeline) {
  for (const char* wanted : {"h2", "http/1.1"}) {
    std::string chosen = "nobody";
    Saw saw;
    EmbeddedChannel server([&](Channel& channel) {
      channel.pipeline().emplaceLast<TlsHandler>(serverBuilder().alpn({"h2", "http/1.1"}).build());
      channel.pipeline().emplaceLast<AlpnHandler>([&](Channel& ch, std::string_view protocol) {
        chosen = protocol;
        ch.pipeline().emplaceLast<Witness>(saw);
      });
    });
    EmbeddedChannel client([&](Channel& channel) {
      channel.pipeline().emplaceLast<TlsHandler>(clientBuilder().alpn({wanted}).build(),
                                                 "localhost");
    });
    client.writeOneOutbound(ByteBuf::of("first"));
    client.flushOutbound();
    for (int i = 0; i < 4; ++i) {
      TlsPair::move(client, server);
      TlsPair::move(server, client);
    }
    EXPECT_EQ(chosen, wanted);
    EXPECT_EQ(saw.text, "first");
    EXPECT_TRUE(saw.has("handshake"));
    EXPECT_EQ(server.handler<AlpnHandler>(), nullptr) << "it has left";
  }
}

TEST(Alpn, ThatThrowsClosesTheChannel) {
  Saw saw;
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(serverBuilder().closeTimeout(0s).build());
    channel.pipeline().emplaceLast<AlpnHandler>(
        [](Channel&, std::string_view) { throw std::runtime_error("no such protocol"); });
    channel.pipeline().emplaceLast<Witness>(saw);
  });
  EmbeddedChannel client([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(clientBuilder().build(), "localhost");
  });
  for (int i = 0; i < 4; ++i) {
    TlsPair::move(client, server);
    TlsPair::move(server, client);
  }
  EXPECT_FALSE(server.isOpen());
  ASSERT_EQ(saw.errors.size(), 1u);
  EXPECT_THAT(saw.errors[0].message(), HasSubstr("no such protocol"));
  const AlpnHandler::Choose nobody;
  EXPECT_THROW(AlpnHandler{nobody}, std::invalid_argument);
}

// --- TLS or plain ---

class OptionalTls : public testing::Test {
 protected:
  std::string kind = "nobody";
  Saw saw;
  EmbeddedChannel server{[this](Channel& channel) {
    channel.pipeline().emplaceLast<OptionalTlsHandler>(serverBuilder().build(),
                                                       [this](Channel& ch, bool isTls) {
                                                         kind = isTls ? "tls" : "plain";
                                                         ch.pipeline().emplaceLast<Witness>(saw);
                                                       });
  }};
};

TEST_F(OptionalTls, IsPlainForThoseWhoArePlain) {
  server.writeInbound(ByteBuf::of("HE"));
  server.writeInbound(ByteBuf::of("LLO"));
  EXPECT_EQ(kind, "plain");
  EXPECT_EQ(saw.text, "HELLO");
  EXPECT_EQ(server.handler<OptionalTlsHandler>(), nullptr);
  EXPECT_EQ(server.handler<TlsHandler>(), nullptr);
}

TEST_F(OptionalTls, IsTlsForThoseWhoSpeakIt) {
  RawTls client(RawTls::Role::client);
  client.handshake();
  const std::string hello = client.take();
  server.writeInbound(ByteBuf::of(hello.substr(0, 1)));
  EXPECT_EQ(kind, "nobody") << "one byte does not tell";
  server.writeInbound(ByteBuf::of(hello.substr(1, 1)));
  server.writeInbound(ByteBuf::of(hello.substr(2)));
  EXPECT_EQ(kind, "tls");
  client.feed(server.outboundText());
  EXPECT_TRUE(client.handshake());
  client.write("secret");
  server.writeInbound(ByteBuf::of(client.take()));
  EXPECT_EQ(saw.text, "secret");
}

TEST_F(OptionalTls, DoesNotDecideByNothing) {
  server.writeInbound(ByteBuf());
  EXPECT_EQ(kind, "nobody");
}

TEST_F(OptionalTls, IsPlainForWhatOnlyBeginsLikeTls) {
  server.writeInbound(ByteBuf::of("\x16\x04\x05"));
  EXPECT_EQ(kind, "plain");
  EXPECT_EQ(saw.text, "\x16\x04\x05");
}

TEST_F(OptionalTls, DoesNotWaitForEver) {
  server.writeInbound(ByteBuf::of("\x16"));
  server.advanceTimeBy(10s);
  EXPECT_FALSE(server.isOpen());
  EXPECT_TRUE(server.takeException().is(Errc::timedOut));
}

// --- an upgrade of a plain connection ---

struct StartTls : ChannelHandler {
  explicit StartTls(const TlsContext& c) : context(c) {}
  void channelRead(Context& ctx, Message&& msg) override {
    const std::string text = msg.take<ByteBuf>().toString();
    seen += text;
    if (text != "STARTTLS\n") return;
    ctx.writeAndFlush(ByteBuf::of("go ahead\n"));
    ctx.pipeline().addFirst(std::make_unique<TlsHandler>(context));
  }
  TlsContext context;
  std::string seen;
};

TEST(StartTls, GoesOnInTheSameChannel) {
  EmbeddedChannel server(
      [&](Channel& channel) { channel.pipeline().emplaceLast<StartTls>(serverBuilder().build()); });
  server.writeInbound(ByteBuf::of("hello\n"));
  server.writeInbound(ByteBuf::of("STARTTLS\n"));
  EXPECT_EQ(server.outboundText(), "go ahead\n");

  RawTls client(RawTls::Role::client);
  for (int i = 0; i < 3; ++i) {
    client.handshake();
    server.writeInbound(ByteBuf::of(client.take()));
    client.feed(server.outboundText());
  }
  client.write("private\n");
  server.writeInbound(ByteBuf::of(client.take()));
  EXPECT_EQ(server.handler<StartTls>()->seen, "hello\nSTARTTLS\nprivate\n");
}

TEST(StartTls, HasItsTimeLimit) {
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<StartTls>(serverBuilder().handshakeTimeout(2s).build());
  });
  server.advanceTimeBy(1h);
  EXPECT_TRUE(server.isOpen()) << "nobody has begun yet";
  server.writeInbound(ByteBuf::of("STARTTLS\n"));
  server.advanceTimeBy(2s);
  EXPECT_FALSE(server.isOpen());
  EXPECT_TRUE(server.takeException().is(Errc::timedOut));
}

}  // namespace
}  // namespace millrace
