// SPDX-License-Identifier: Apache-2.0
// Peers that mean no good. The rows are those of the list of attacks.
#include "tls/tls_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace millrace {
namespace {

using testing::HasSubstr;

// T5
TEST(TlsAttack, ByRenegotiationIsRefused) {
  TlsEnd server;
  RawTls client(RawTls::Role::client, nullptr, TLS1_2_VERSION);
  server.talk(client);
  ASSERT_TRUE(server.saw.has("handshake"));
  SSL_renegotiate(client.ssl());
  client.handshake();
  server.receive(client.take());
  client.feed(server.sent());
  client.handshake();
  EXPECT_FALSE(SSL_is_init_finished(client.ssl()));
  EXPECT_EQ(std::count(server.saw.log.begin(), server.saw.log.end(), "handshake"), 1);
}

// T6
TEST(TlsAttack, ByFloodsOfNewKeysIsEnded) {
  TlsEnd server;
  RawTls client(RawTls::Role::client);
  server.talk(client);
  ASSERT_TRUE(server.saw.has("handshake"));
  int updates = 0;
  while (server.channel().isOpen() && updates < 1000) {
    SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED);
    client.handshake();
    server.receive(client.take());
    client.feed(server.sent());
    client.read();
    ++updates;
  }
  EXPECT_GT(updates, 16);
  EXPECT_LT(updates, 100);
  EXPECT_THAT(server.error(), HasSubstr("more new keys"));
}

// T6: all in one read
TEST(TlsAttack, ByManyNewKeysAtOnceIsEndedEarly) {
  TlsEnd server;
  RawTls client(RawTls::Role::client);
  server.talk(client);
  std::string all;
  for (int i = 0; i < 5000; ++i) {
    SSL_key_update(client.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED);
    client.handshake();
    all += client.take();
  }
  server.receive(all);
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_THAT(server.error(), HasSubstr("more new keys"));
}

TEST(TlsAttack, IsNotWhatAPeerWithManyBytesDoes) {
  TlsEnd server;
  RawTls client(RawTls::Role::client);
  server.talk(client);
  for (int i = 0; i < 200; ++i) {
    SSL_key_update(client.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED);
    client.handshake();
    client.write(std::string(70'000, 'x'));
    server.receive(client.take());
  }
  EXPECT_TRUE(server.channel().isOpen());
  EXPECT_EQ(server.saw.text.size(), 200u * 70'000);
}

/// A client that waits for its server, with records in the clear that are allowed there. Gives how many it took.
int takenByAClient(const std::string& record) {
  TlsEnd client(clientBuilder(), "localhost");
  client.sent();
  int taken = 0;
  while (client.channel().isOpen() && taken < 1000) {
    client.receive(record);
    ++taken;
  }
  EXPECT_TRUE(client.saw.has("handshake failed"));
  return taken;
}

// T6
TEST(TlsAttack, ByEmptyRecordsIsEnded) {
  const int taken = takenByAClient(std::string("\x16\x03\x03\x00\x00", 5));
  EXPECT_LT(taken, 40);
}

// T6
TEST(TlsAttack, ByWarningAlertsIsEnded) {
  const int taken = takenByAClient(std::string("\x15\x03\x03\x00\x02\x01\x70", 7));
  EXPECT_GT(taken, 1) << "one is allowed";
  EXPECT_LT(taken, 10);
}

// T6: a client has the tickets of its server to fear
TEST(TlsAttack, ByTicketsIsEnded) {
  TlsEnd client(clientBuilder(), "localhost");
  RawTls server(RawTls::Role::server, &testIdentity());
  client.talk(server);
  ASSERT_TRUE(client.saw.has("handshake"));
  int tickets = 0;
  while (client.channel().isOpen() && tickets < 1000) {
    SSL_new_session_ticket(server.ssl());
    server.handshake();
    client.receive(server.take());
    ++tickets;
  }
  EXPECT_LT(tickets, 100);
  EXPECT_GT(tickets, 8);
}

// T8
TEST(TlsAttack, ByDataBeforeTheHandshakeIsRefused) {
  TlsEnd server;
  RawTls client(RawTls::Role::client);
  client.handshake();
  server.receive(client.take());
  server.sent();
  server.receive(std::string("\x17\x03\x03\x00\x05hello", 10));
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_EQ(server.saw.text, "");
  EXPECT_TRUE(server.saw.has("handshake failed"));
}

// T8
TEST(TlsAttack, ByStrangeAlpnListsIsRefusedOrIgnored) {
  struct Case {
    std::string offered;
    bool goesOn;
    const char* chosen;
  };
  std::string many;
  for (int i = 0; i < 300; ++i) many += std::string("\x03") + "x" + std::to_string(10 + i % 90);
  const Case cases[] = {
      {"", true, ""},         {"\x02h2", true, "h2"}, {"\x08http/1.1\x02h2", true, "h2"},
      {"\x03xyz", false, ""}, {many, false, ""},      {many + "\x02h2", true, "h2"}};
  for (const Case& each : cases) {
    TlsEnd server(serverBuilder().alpn({"h2", "http/1.1"}));
    RawTls client(RawTls::Role::client);
    if (!each.offered.empty()) {
      SSL_set_alpn_protos(client.ssl(), reinterpret_cast<const unsigned char*>(each.offered.data()),
                          static_cast<unsigned int>(each.offered.size()));
    }
    server.talk(client);
    EXPECT_EQ(server.saw.has("handshake"), each.goesOn) << each.offered.substr(0, 20);
    if (!each.goesOn) continue;
    const TlsInfo info =
        server.channel().run([&] { return server.channel().pipeline().get<TlsHandler>()->info(); });
    EXPECT_EQ(info.applicationProtocol, each.chosen);
  }
}

// T10: the connection breaks behind every byte that the peer sends, of the handshake and of an exchange
template <class Make>
void breakBehindEveryByte(RawTls::Role peerRole, const Make& make) {
  for (std::size_t count = 0;; ++count) {
    const std::unique_ptr<TlsEnd> end = make();
    RawTls peer(peerRole, peerRole == RawTls::Role::server ? &testIdentity() : nullptr);
    std::size_t left = count;
    bool hasAsked = false;
    while (true) {
      if (peer.handshake() && !std::exchange(hasAsked, true)) peer.write(std::string(300, 'q'));
      const std::string bytes = peer.take();
      end->receive(std::string_view(bytes).substr(0, left));
      left -= std::min(left, bytes.size());
      const std::string back = end->sent();
      peer.feed(back);
      if (left == 0 || (bytes.empty() && back.empty())) break;
    }
    const bool wasOpen = end->saw.has("handshake");
    const Future<void> waits = end->channel().writeOneOutbound(ByteBuf::of("waits"));
    end->channel().breakWith(Error::fromErrno(ECONNRESET, "read", "peer"));
    ASSERT_FALSE(end->channel().isOpen()) << count;
    ASSERT_EQ(end->saw.errors.size(), 1u) << count;
    ASSERT_EQ(end->saw.errors[0].errnoValue(), ECONNRESET);
    ASSERT_NE(wasOpen, end->saw.has("handshake failed")) << count;
    ASSERT_EQ(waits.cause().errnoValue(), ECONNRESET) << count;
    ASSERT_EQ(end->channel().liveBuffers(), 0) << count;
    if (left != 0) break;  // all was sent
    ASSERT_LT(end->saw.text.size(), 301u);
  }
}

TEST(TlsAttack, ByResetsBehindEveryByteOfAClientLeavesNothing) {
  const TlsContext context = serverBuilder().build();
  breakBehindEveryByte(RawTls::Role::client, [&] { return std::make_unique<TlsEnd>(context); });
}

TEST(TlsAttack, ByResetsBehindEveryByteOfAServerLeavesNothing) {
  const TlsContext context = clientBuilder().resumption(false).build();
  breakBehindEveryByte(RawTls::Role::server,
                       [&] { return std::make_unique<TlsEnd>(context, "localhost"); });
}

// T10: the other way round, a write breaks when the kernel has taken some of it
TEST(TlsAttack, ByWritesThatBreakAnywhereLeavesNothing) {
  const TlsContext context = serverBuilder().build();
  for (std::size_t count = 0; count < 330; ++count) {
    TlsEnd server(context);
    RawTls client(RawTls::Role::client);
    server.talk(client);
    server.channel().stall();
    const Future<void> written =
        server.channel().writeOneOutbound(ByteBuf::of(std::string(300, 'a')));
    server.channel().flushOutbound();
    server.channel().takeBytes(count);
    server.channel().breakNextWrite(ECONNRESET);
    server.channel().resume();
    server.sent();
    ASSERT_EQ(server.channel().liveBuffers(), 0) << count;
    ASSERT_EQ(written.isSuccess(), count >= 300 + 22) << count;
  }
}

TEST(TlsAttack, ByBytesThatWereChangedIsRefused) {
  TlsEnd server;
  RawTls client(RawTls::Role::client);
  server.talk(client);
  client.write("something true");
  std::string bytes = client.take();
  bytes[bytes.size() / 2] ^= 1;
  server.receive(bytes);
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_EQ(server.saw.text, "");
  EXPECT_EQ(server.saw.errors.at(0).code(), TlsErrc::protocol);
  client.feed(server.sent());
  EXPECT_TRUE(client.isBroken()) << "it is told by an alert";
}

}  // namespace
}  // namespace millrace
