// SPDX-License-Identifier: Apache-2.0
// Messages of TLS 1.3 that come behind the handshake: in halves, and many at once.
#include "tls/tls_fixture.h"

#include <millrace/loop/event_loop.h>

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

namespace millrace {
namespace {

/// A client whose server has sent a ticket in several records.
class TlsTicketInHalves : public testing::Test {
 protected:
  void SetUp() override {
    client.talk(server);
    ASSERT_TRUE(client.saw.has("handshake"));
    SSL_set_max_send_fragment(server.ssl(), 512);
    const std::string data(2000, 'a');
    SSL_SESSION_set1_ticket_appdata(SSL_get_session(server.ssl()), data.data(), data.size());
    SSL_new_session_ticket(server.ssl());
    server.handshake();
    rest = server.take();
    const auto size = static_cast<std::size_t>(static_cast<std::uint8_t>(rest[3]) << 8 |
                                               static_cast<std::uint8_t>(rest[4]));
    first = rest.substr(0, 5 + size);
    rest.erase(0, first.size());
    ASSERT_FALSE(rest.empty());
  }

  TlsEnd client{clientBuilder(), "localhost"};
  RawTls server{RawTls::Role::server, &testIdentity()};
  std::string first;
  std::string rest;
};

TEST_F(TlsTicketInHalves, LetsAWriteInBetweenWait) {
  client.receive(first);
  client.channel().writeOutbound(ByteBuf::of("request"));
  EXPECT_TRUE(client.channel().isOpen());
  EXPECT_EQ(client.error(), "");

  client.receive(rest);

  server.feed(client.sent());
  EXPECT_EQ(server.read(), "request");
}

TEST_F(TlsTicketInHalves, LetsACloseInBetweenWait) {
  client.receive(first);
  client.channel().run([&] { return client.channel().Channel::close(); });

  client.receive(rest);

  server.feed(client.sent());
  EXPECT_TRUE(server.sawClose());
}

/// Writes and flushes through TLS when ciphertext passes it, before or behind it.
class WritesInBetween : public ChannelHandler {
 public:
  enum class When { before, behind };
  WritesInBetween(bool& isArmed, When when) : isArmed_(isArmed), when_(when) {}
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
    if (when_ == When::before) act(ctx);
    ctx.write(std::move(msg), std::move(done));
    if (when_ == When::behind) act(ctx);
  }

 private:
  void act(Context& ctx) {
    if (!std::exchange(isArmed_, false)) return;
    ctx.channel().write(ByteBuf::of("in between"));
    ctx.channel().flush();
  }
  bool& isArmed_;
  const When when_;
};

/// The peer asks for `updates` new keys at once; what comes of a write in the middle of the answers.
std::string readBehindNewKeys(int updates, WritesInBetween::When when) {
  bool isArmed = false;
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<WritesInBetween>(isArmed, when);
    channel.pipeline().emplaceLast<TlsHandler>(serverBuilder().build());
  });
  RawTls client(RawTls::Role::client);
  for (int i = 0; i < 3; ++i) {
    client.handshake();
    server.writeInbound(ByteBuf::of(client.take()));
    client.feed(server.outboundText());
  }
  std::string all;
  for (int i = 0; i < updates; ++i) {
    SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED);
    client.handshake();
    all += client.take();
  }
  isArmed = true;
  server.writeInbound(ByteBuf::of(all));
  server.runPendingTasks();
  client.feed(server.outboundText());
  return client.read();
}

TEST(TlsNewKeys, KeepTheOrderOfWhatIsWrittenWhileTheyAreAnswered) {
  EXPECT_EQ(readBehindNewKeys(2, WritesInBetween::When::before), "in between");
  EXPECT_EQ(readBehindNewKeys(10, WritesInBetween::When::behind), "in between");
}

}  // namespace
}  // namespace millrace
