// SPDX-License-Identifier: Apache-2.0
#include "tls/warm_sessions.h"

#include "tls/openssl.h"
#include "tls/session.h"
#include "tls/tls_fixture.h"

#include <millrace/loop/event_loop.h>

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace millrace::tls {
namespace {

class WarmSessionsTest : public testing::Test {
 protected:
  /// A session that is used, with its place.
  struct One {
    explicit One(SSL_CTX* ctx) : session(ctx, true) {}
    Session session;
    WarmSessions::Place place;
  };

  WarmSessionsTest() { SSL_CTX_set_mode(ctx_.get(), SSL_MODE_RELEASE_BUFFERS); }

  One& use() {
    all.emplace_back(ctx_.get());
    useAgain(all.back());
    return all.back();
  }
  void useAgain(One& one) {
    if (!one.place.isTaken()) WarmSessions::use(channel_.loop(), one.session, one.place);
  }
  std::size_t warm() const {
    std::size_t count = 0;
    for (const One& each : all) count += each.session.keepsBuffers() ? 1 : 0;
    return count;
  }

  std::deque<One> all;

 private:
  SslCtxPtr ctx_{SSL_CTX_new(TLS_server_method())};
  EmbeddedChannel channel_;
};

TEST_F(WarmSessionsTest, KeepBuffersFromTheirFirstUseOn) {
  Session fresh(SslCtxPtr(SSL_CTX_new(TLS_server_method())).get(), true);
  fresh.keepBuffers(false);
  ASSERT_FALSE(fresh.keepsBuffers());

  const One& one = use();

  EXPECT_TRUE(one.session.keepsBuffers());
  EXPECT_TRUE(one.place.isTaken());
}

TEST_F(WarmSessionsTest, AreNeverMoreThanThereArePlaces) {
  for (std::size_t i = 0; i < WarmSessions::kPlaces + 3; ++i) use();

  EXPECT_EQ(warm(), WarmSessions::kPlaces);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(all[i].session.keepsBuffers()) << i;
    EXPECT_FALSE(all[i].place.isTaken()) << i;
  }
}

TEST_F(WarmSessionsTest, ThatLostTheirPlaceGetAnotherWithTheNextUse) {
  for (std::size_t i = 0; i < WarmSessions::kPlaces + 1; ++i) use();
  ASSERT_FALSE(all.front().place.isTaken());

  useAgain(all.front());

  EXPECT_TRUE(all.front().session.keepsBuffers());
  EXPECT_EQ(warm(), WarmSessions::kPlaces);
}

TEST_F(WarmSessionsTest, ThatLeaveAreForgotten) {
  One& first = use();

  first.place.leave();
  first.place.leave();

  EXPECT_FALSE(first.session.keepsBuffers());
  for (std::size_t i = 0; i < 2 * WarmSessions::kPlaces; ++i) use();
  EXPECT_EQ(warm(), WarmSessions::kPlaces);
}

TEST_F(WarmSessionsTest, ThatDieAreForgotten) {
  for (std::size_t i = 0; i < WarmSessions::kPlaces; ++i) use();

  all.clear();

  for (std::size_t i = 0; i < WarmSessions::kPlaces + 1; ++i) use();
  EXPECT_EQ(warm(), WarmSessions::kPlaces);
}

// Half a record is in the buffer that is to go.
TEST(WarmConnections, LoseNothingWhenTheyCoolDownInTheMiddleOfARecord) {
  const TlsContext server = serverBuilder().build();
  const TlsContext client = clientBuilder().build();
  TlsPair pair(server, client);
  pair.carry();
  pair.client().writeOutbound(ByteBuf::of("before"));
  pair.carry();
  pair.client().writeOutbound(ByteBuf::of(std::string(5000, 'x')));
  const std::string record = pair.client().outboundText();
  pair.server().writeInbound(ByteBuf::of(record.substr(0, 1000)));

  const SslCtxPtr ctx(SSL_CTX_new(TLS_server_method()));
  std::vector<std::unique_ptr<Session>> sessions;
  std::deque<WarmSessions::Place> places(2 * WarmSessions::kPlaces);
  for (WarmSessions::Place& each : places) {
    sessions.push_back(std::make_unique<Session>(ctx.get(), true));
    WarmSessions::use(pair.server().loop(), *sessions.back(), each);
  }
  pair.server().writeInbound(ByteBuf::of(record.substr(1000)));

  EXPECT_EQ(pair.serverSaw.text, "before" + std::string(5000, 'x'));
  EXPECT_TRUE(pair.serverSaw.errors.empty());
  places.clear();
}

}  // namespace
}  // namespace millrace::tls
