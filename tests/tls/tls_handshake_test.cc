// SPDX-License-Identifier: Apache-2.0
// The handshake: what it promises, and how it fails.
#include "tls/tls_fixture.h"

#include <millrace/concurrent/thread_pool.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TlsHandshake, ComesBeforeTheFirstMessageAndOnce) {
  TlsPair pair;
  pair.client().writeOneOutbound(ByteBuf::of("hi"));
  pair.client().flushOutbound();
  pair.carry();
  EXPECT_THAT(pair.serverSaw.log,
              ElementsAre("active", "readComplete", "handshake", "read", "readComplete"));
}

TEST(TlsHandshake, TellsItsFuture) {
  TlsPair pair;
  const Future<void> client = pair.client().run(
      [&] { return pair.client().pipeline().get<TlsHandler>()->handshakeFuture(); });
  const Future<TlsInfo> info = tlsHandshake(pair.server());
  EXPECT_FALSE(client.isDone());
  pair.carry();
  EXPECT_TRUE(client.isSuccess());
  ASSERT_TRUE(info.isSuccess());
  EXPECT_EQ(info.result()->protocol, "TLSv1.3");
  EXPECT_EQ(info.result()->serverName, "localhost");
  EXPECT_EQ(info.result()->cipher, "TLS_AES_128_GCM_SHA256");
  EXPECT_FALSE(info.result()->resumed);
  EXPECT_TRUE(info.result()->peerCertificates.empty());
  const TlsInfo seen =
      pair.client().run([&] { return pair.client().pipeline().get<TlsHandler>()->info(); });
  ASSERT_EQ(seen.peerCertificates.size(), 1u);
  EXPECT_EQ(seen.peerCertificates[0].subject, "CN=localhost");
  EXPECT_THAT(seen.peerCertificates[0].names, ElementsAre("localhost", "example.org", "127.0.0.1"));
  EXPECT_EQ(seen.peerCertificates[0].sha256.size(), 64u);
}

TEST(TlsHandshake, WithoutAHandlerIsRefusedByItsFuture) {
  EmbeddedChannel plain;
  const Future<TlsInfo> info = tlsHandshake(plain);
  plain.runPendingTasks();
  ASSERT_TRUE(info.isDone());
  EXPECT_TRUE(info.cause().is(Errc::notSupported));
}

TEST(TlsHandshake, SpeaksTls12Too) {
  TlsPair pair(serverBuilder().versions(TlsVersion::tls12, TlsVersion::tls12), clientBuilder());
  pair.carry();
  pair.client().writeOutbound(ByteBuf::of("old"));
  pair.carry();
  EXPECT_EQ(pair.serverSaw.text, "old");
  const TlsInfo info =
      pair.server().run([&] { return pair.server().pipeline().get<TlsHandler>()->info(); });
  EXPECT_EQ(info.protocol, "TLSv1.2");
  EXPECT_THAT(info.cipher, HasSubstr("ECDHE"));
  EXPECT_THAT(info.cipher, HasSubstr("GCM"));
}

TEST(TlsHandshake, FailsWithoutACommonVersionOrCipher) {
  TlsPair versions(serverBuilder().versions(TlsVersion::tls13, TlsVersion::tls13),
                   clientBuilder().versions(TlsVersion::tls12, TlsVersion::tls12));
  versions.carry();
  TlsPair ciphers(serverBuilder().ciphers("", "TLS_AES_128_GCM_SHA256"),
                  clientBuilder()
                      .versions(TlsVersion::tls13, TlsVersion::tls13)
                      .ciphers("", "TLS_CHACHA20_POLY1305_SHA256"));
  ciphers.carry();
  for (TlsPair* pair : {&versions, &ciphers}) {
    EXPECT_TRUE(pair->serverSaw.has("handshake failed"));
    EXPECT_TRUE(pair->clientSaw.has("handshake failed"));
    ASSERT_EQ(pair->serverSaw.errors.size(), 1u);
    ASSERT_EQ(pair->clientSaw.errors.size(), 1u);
    EXPECT_EQ(pair->clientSaw.errors[0].code(), TlsErrc::handshake);
    EXPECT_FALSE(pair->server().isOpen());
    EXPECT_FALSE(pair->client().isOpen());
  }
}

TEST(TlsHandshake, FailsWhatWaitsForItAndSaysSoFirst) {
  TlsPair pair(serverBuilder(), TlsContextBuilder::forClient().trust(
                                    TlsTrust::fromPem(TlsIdentity::selfSigned({"x"}).chain())));
  const Future<void> written = pair.client().writeOneOutbound(ByteBuf::of("secret"));
  bool toldBefore = false;
  written.addListener(
      [&](const Result<void>&) { toldBefore = pair.clientSaw.has("handshake failed"); });
  pair.client().flushOutbound();
  pair.carry();
  ASSERT_TRUE(written.isDone());
  EXPECT_EQ(written.cause().code(), TlsErrc::certificate);
  EXPECT_TRUE(toldBefore);
  EXPECT_EQ(pair.clientSaw.errors.size(), 1u);
  EXPECT_TRUE(pair.serverSaw.text.empty());
  EXPECT_EQ(pair.client().liveBuffers(), 0);
}

// T4
TEST(TlsHandshake, IsCutAtItsTimeLimit) {
  TlsEnd server(serverBuilder().handshakeTimeout(10s));
  server.channel().advanceTimeBy(9999ms);
  EXPECT_TRUE(server.channel().isOpen());
  server.channel().advanceTimeBy(1ms);
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_TRUE(server.saw.has("handshake failed"));
  EXPECT_THAT(server.error(), HasSubstr("not done within 10000 ms"));

  const TlsContext context = clientBuilder().handshakeTimeout(1s).build();
  Saw saw;
  EmbeddedChannel client([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(context, "localhost");
    channel.pipeline().emplaceLast<Witness>(saw);
  });
  const Future<void> written = client.writeOneOutbound(ByteBuf::of("x"));
  client.advanceTimeBy(1s);
  EXPECT_FALSE(client.isOpen());
  EXPECT_TRUE(written.cause().is(Errc::timedOut));
  EXPECT_EQ(context.figures().timedOut, 1u);
  EXPECT_EQ(context.figures().failed, 1u);
}

TEST(TlsHandshake, HasNoTimeLimitOnceItIsDone) {
  TlsPair pair;
  pair.carry();
  pair.server().advanceTimeBy(1h);
  EXPECT_TRUE(pair.server().isOpen());
}

TEST(TlsHandshake, ReadsByItselfWithoutAutoRead) {
  Saw serverSaw;
  Saw clientSaw;
  const auto fill = [](Saw& saw, auto&&... args) {
    return [&saw, args...](Channel& channel) {
      channel.setAutoRead(false);
      channel.pipeline().emplaceLast<TlsHandler>(args...);
      channel.pipeline().emplaceLast<Witness>(saw);
    };
  };
  EmbeddedChannel server(fill(serverSaw, serverBuilder().build()));
  EmbeddedChannel client(fill(clientSaw, clientBuilder().build(), std::string("localhost")));
  for (int i = 0; i < 4; ++i) {
    TlsPair::move(client, server);
    TlsPair::move(server, client);
  }
  EXPECT_TRUE(serverSaw.has("handshake"));
  EXPECT_TRUE(clientSaw.has("handshake"));

  client.writeOutbound(ByteBuf::of("asked for"));
  TlsPair::move(client, server);
  server.run([&] { server.read(); });
  server.runPendingTasks();
  EXPECT_EQ(serverSaw.text, "asked for");
}

TEST(TlsHandshake, DoesNotWaitForItselfWhenMuchIsWritten) {
  TlsPair pair;
  const std::string much(1'000'000, 'm');  // far above the high water mark
  const Future<void> written = pair.client().writeOneOutbound(ByteBuf::of(much));
  pair.client().flushOutbound();
  EXPECT_FALSE(pair.client().isWritable());
  pair.carry();
  EXPECT_TRUE(written.isSuccess());
  EXPECT_EQ(pair.serverSaw.text.size(), much.size());
  EXPECT_TRUE(pair.client().isWritable());
}

TEST(TlsHandshake, EndsWithTheConnection) {
  TlsEnd server;
  server.receive("\x16\x03");
  server.channel().endInput();
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_THAT(server.saw.log, testing::Contains("handshake failed"));
  EXPECT_TRUE(server.saw.errors.empty()) << "a peer that just goes is no error of a handler";
}

TEST(TlsHandshake, EndsWithClose) {
  TlsEnd server;
  const Future<void> shaken = server.channel().run(
      [&] { return server.channel().pipeline().get<TlsHandler>()->handshakeFuture(); });
  server.channel().close();
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_TRUE(shaken.cause().is(Errc::closed));
}

TEST(TlsHandshake, EndsWithAGracefulClose) {
  TlsEnd server;
  server.receive("\x16\x03");
  const Future<void> written = server.channel().writeOneOutbound(ByteBuf::of("x"));
  server.channel().run([&] { server.channel().closeGracefully(); });
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_TRUE(server.saw.has("handshake failed"));
  EXPECT_TRUE(written.cause().is(Errc::closed));
  EXPECT_EQ(written.cause().message(), "TLS handshake the channel closes: closed");
}

TEST(TlsHandshake, FailsItsFutureWhenItsHandlerIsRemoved) {
  TlsEnd server;
  server.receive("\x16\x03");
  const Future<void> shaken = server.channel().run(
      [&] { return server.channel().pipeline().get<TlsHandler>()->handshakeFuture(); });
  server.channel().run([&] { server.channel().pipeline().remove<TlsHandler>(); });
  EXPECT_TRUE(shaken.cause().is(Errc::closed));
  EXPECT_EQ(server.saw.text, "\x16\x03") << "what was not decrypted goes on as it came";
  EXPECT_TRUE(server.channel().isOpen());
}

// T7
TEST(TlsHandshake, KnowsWhatIsNotTls) {
  TlsEnd http;
  http.receive("GET / HTTP/1.1\r\n\r\n");
  EXPECT_FALSE(http.channel().isOpen());
  ASSERT_EQ(http.saw.errors.size(), 1u);
  EXPECT_EQ(http.saw.errors[0].code(), TlsErrc::notTls);
  EXPECT_THAT(http.error(), HasSubstr("speaks plain HTTP"));
  EXPECT_EQ(http.sent(), "");

  TlsEnd garbage;
  garbage.receive("\x80\x2e\x01\x03");
  EXPECT_FALSE(garbage.channel().isOpen());
  EXPECT_EQ(garbage.saw.errors.at(0).code(), TlsErrc::notTls);
}

// T7
TEST(TlsHandshake, RefusesRecordsThatAreWrong) {
  const std::string long_record = std::string("\x16\x03\x01\x48\x01", 5) + "\x01";
  const std::string empty_record("\x16\x03\x01\x00\x00\x01", 6);
  const std::string not_hello("\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9);
  for (const std::string& bytes : {long_record, empty_record, not_hello}) {
    TlsEnd server;
    server.receive(bytes + std::string(200, '\0'));
    EXPECT_FALSE(server.channel().isOpen());
    EXPECT_TRUE(server.saw.has("handshake failed"));
    EXPECT_EQ(server.sent().substr(0, 2), "\x15\x03") << "an alert";
    EXPECT_EQ(server.channel().liveBuffers(), 0);
  }
  // Heartbeats, and what else has no meaning here.
  TlsEnd server;
  RawTls client(RawTls::Role::client);
  server.talk(client);
  ASSERT_TRUE(server.saw.has("handshake"));
  server.receive(std::string("\x18\x03\x03\xff\xff\x01\x40\x00", 8));
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_EQ(server.saw.errors.at(0).code(), TlsErrc::protocol);
}

TEST(TlsHandshake, RefusesAClientHelloAboveItsLimit) {
  TlsEnd server(serverBuilder().maxClientHello(512));
  RawTls client(RawTls::Role::client);
  client.askFor(std::string(180, 'a') + ".example.org");
  client.handshake();
  std::string hello = client.take();
  hello[6] = 0;
  hello[7] = 2;  // 512 bytes, and a header
  hello[8] = 0;
  server.receive(hello);
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_THAT(server.error(), HasSubstr("longer than 512 bytes"));
  EXPECT_EQ(server.sent(), std::string("\x15\x03\x01\x00\x02\x02\x32", 7));
}

// An empty record before the hello must not lead past the choice by name.
TEST(TlsHandshake, IsNotReachedAroundTheReader) {
  TlsEnd server(serverBuilder()
                    .identity("known.example", TlsIdentity::selfSigned({"known.example"}))
                    .refuseUnknownNames());
  RawTls client(RawTls::Role::client);
  client.askFor("unknown.example");
  client.handshake();
  server.receive(std::string("\x16\x03\x01\x00\x00", 5) + client.take());
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_EQ(server.sent(), std::string("\x15\x03\x01\x00\x02\x02\x0a", 7));
}

TEST(TlsHandshake, DoesNotLetAPeerWriteOurLog) {
  TlsEnd server(serverBuilder()
                    .identity("known.example", TlsIdentity::selfSigned({"known.example"}))
                    .refuseUnknownNames());
  RawTls client(RawTls::Role::client);
  client.askFor("evil\nname" + std::string(200, 'x'));
  client.handshake();
  server.receive(client.take());
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_THAT(server.error(), HasSubstr("evil?name"));
  EXPECT_LT(server.error().size(), 500u);
}

// T12
TEST(TlsHandshake, DoesNotMindWhatAnotherConnectionLeftInOpenSslsQueue) {
  TlsPair pair;
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
  pair.carry();
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
  pair.client().writeOutbound(ByteBuf::of("fine"));
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
  pair.carry();
  EXPECT_EQ(pair.serverSaw.text, "fine");
  ERR_clear_error();
}

TEST(TlsHandshake, OfAClientNeedsAName) {
  const TlsContext client = clientBuilder().build();
  const TlsContext server = serverBuilder().build();
  EXPECT_THROW(TlsHandler(client, ""), std::invalid_argument);
  EXPECT_THROW(TlsHandler{client}, std::invalid_argument);
  EXPECT_THROW(TlsHandler(server, "localhost"), std::invalid_argument);
  EXPECT_THROW(TlsHandler(client, "no name at all"), std::invalid_argument);
  EXPECT_THROW(TlsHandler(client, std::string("a\0b", 3)), std::invalid_argument);
}

// --- client certificates ---

TEST(TlsHandshake, AsksClientsForCertificates) {
  const TlsIdentity alice = TlsIdentity::selfSigned({"alice"});
  const TlsContextBuilder server =
      serverBuilder().clientAuth(TlsClientAuth::required).trust(TlsTrust::fromPem(alice.chain()));
  TlsPair known(server, clientBuilder().identity(alice));
  known.carry();
  EXPECT_TRUE(known.serverSaw.has("handshake"));
  const TlsInfo info =
      known.server().run([&] { return known.server().pipeline().get<TlsHandler>()->info(); });
  ASSERT_EQ(info.peerCertificates.size(), 1u);
  EXPECT_EQ(info.peerCertificates[0].subject, "CN=alice");

  TlsPair missing(server, clientBuilder());
  missing.carry();
  ASSERT_EQ(missing.serverSaw.errors.size(), 1u);
  EXPECT_EQ(missing.serverSaw.errors[0].code(), TlsErrc::certificate);
  EXPECT_THAT(missing.serverSaw.errors[0].message(), HasSubstr("the peer showed none"));
  EXPECT_FALSE(missing.server().isOpen());

  TlsPair unknown(server, clientBuilder().identity(TlsIdentity::selfSigned({"mallory"})));
  unknown.carry();
  ASSERT_EQ(unknown.serverSaw.errors.size(), 1u);
  EXPECT_EQ(unknown.serverSaw.errors[0].code(), TlsErrc::certificate);

  TlsPair optional(
      serverBuilder().clientAuth(TlsClientAuth::optional).trust(TlsTrust::fromPem(alice.chain())),
      clientBuilder());
  optional.carry();
  EXPECT_TRUE(optional.serverSaw.has("handshake"));
}

// --- on a pool of threads ---

TEST(TlsHandshake, CanBeDoneOnAPool) {
  ThreadPool pool(2);
  const TlsContextBuilder server = serverBuilder().offloadHandshakes(pool);
  const TlsContextBuilder client = clientBuilder().offloadHandshakes(pool);
  TlsPair pair(server, client);
  pair.client().writeOneOutbound(ByteBuf::of("from the pool"));
  pair.client().flushOutbound();
  const Deadline until = Deadline::after(30s);
  while (pair.serverSaw.text.empty() && !until.isDue(Clock::real().nanos())) {
    pair.carry();
    std::this_thread::yield();
  }
  EXPECT_EQ(pair.serverSaw.text, "from the pool");
  EXPECT_TRUE(pair.clientSaw.has("handshake"));
}

TEST(TlsHandshake, GoesOnOnTheLoopWhenThePoolIsFull) {
  ThreadPool pool(1);
  pool.shutdownGracefully().sync();
  TlsPair pair(serverBuilder().offloadHandshakes(pool), clientBuilder());
  pair.carry();
  EXPECT_TRUE(pair.serverSaw.has("handshake"));
}

TEST(TlsHandshake, OnAPoolThatNeverRunsIsCutAtItsTimeLimit) {
  ThreadPool pool(1);
  std::promise<void> release;
  pool.execute([gate = release.get_future().share()] { gate.wait(); });
  {
    TlsPair pair(serverBuilder().offloadHandshakes(pool).handshakeTimeout(1s), clientBuilder());
    pair.carry();
    EXPECT_FALSE(pair.serverSaw.has("handshake"));
    pair.server().advanceTimeBy(1s);
    EXPECT_FALSE(pair.server().isOpen());
    EXPECT_TRUE(pair.serverSaw.errors.at(0).is(Errc::timedOut));
    release.set_value();
    pool.shutdownGracefully().sync();
    pair.server().runPendingTasks();
  }
}

}  // namespace
}  // namespace millrace
