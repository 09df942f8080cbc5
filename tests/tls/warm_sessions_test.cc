// SPDX-License-Identifier: Apache-2.0
#include "tls/warm_sessions.h"

#include "tls/openssl.h"
#include "tls/session.h"
#include "tls/tls_fixture.h"

#include <millrace/loop/event_loop.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <malloc.h>
#include <memory>
#include <openssl/crypto.h>
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

/// So many others on a loop that nobody else has a place any more.
class Crowd {
 public:
  explicit Crowd(EventLoop& loop) {
    for (std::size_t i = 0; i < WarmSessions::kPlaces; ++i) {
      sessions_.push_back(std::make_unique<Session>(ctx_.get(), true));
      WarmSessions::use(loop, *sessions_.back(), places_.emplace_back());
    }
  }

 private:
  const SslCtxPtr ctx_{SSL_CTX_new(TLS_server_method())};
  std::vector<std::unique_ptr<Session>> sessions_;
  std::deque<WarmSessions::Place> places_;  // go first
};

// Before OpenSSL 3.0.14 the buffer would go though it is in use: behind a header, and in half a body.
TEST(WarmConnections, LoseNothingWhenTheyCoolDownInTheMiddleOfARecord) {
  for (const std::size_t there : {std::size_t{5}, std::size_t{1000}}) {
    TlsPair pair;
    pair.carry();
    pair.client().writeOutbound(ByteBuf::of("before"));
    pair.carry();
    pair.client().writeOutbound(ByteBuf::of(std::string(5000, 'x')));
    const std::string record = pair.client().outboundText();
    pair.server().writeInbound(ByteBuf::of(record.substr(0, there)));

    const Crowd crowd(pair.server().loop());
    pair.server().writeInbound(ByteBuf::of(record.substr(there)));

    EXPECT_EQ(pair.serverSaw.text, "before" + std::string(5000, 'x')) << there;
    EXPECT_TRUE(pair.serverSaw.errors.empty()) << there;
  }
}

// What OpenSSL has of the heap, if we may count it: before anybody has used it.
std::atomic<std::ptrdiff_t> heldByOpenSsl{0};
void* countedMalloc(std::size_t size, const char*, int) {
  void* made = std::malloc(size);
  heldByOpenSsl += static_cast<std::ptrdiff_t>(::malloc_usable_size(made));
  return made;
}
void countedFree(void* memory, const char*, int) {
  heldByOpenSsl -= static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  std::free(memory);
}
void* countedRealloc(void* memory, std::size_t size, const char*, int) {
  heldByOpenSsl -= static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  void* made = std::realloc(memory, size);
  heldByOpenSsl += static_cast<std::ptrdiff_t>(::malloc_usable_size(made));
  return made;
}
const bool isCounted = CRYPTO_set_mem_functions(&countedMalloc, &countedRealloc, &countedFree) == 1;

TEST(WarmConnections, GiveTheirBuffersBackWhenTheyCoolDown) {
  ASSERT_TRUE(isCounted);
  TlsPair pair;
  pair.carry();
  pair.client().writeOutbound(ByteBuf::of("question"));
  pair.carry();
  pair.server().writeOutbound(ByteBuf::of("answer"));
  pair.carry();
  ASSERT_EQ(pair.clientSaw.text, "answer");
  EmbeddedChannel elsewhere;
  { const Crowd warmUp(elsewhere.loop()); }

  const std::ptrdiff_t before = heldByOpenSsl;
  std::ptrdiff_t ofTheCrowd = 0;
  {
    const Crowd others(elsewhere.loop());
    ofTheCrowd = heldByOpenSsl - before;
  }
  const Crowd crowd(pair.server().loop());
  const std::ptrdiff_t freed = before + ofTheCrowd - heldByOpenSsl;

  EXPECT_GE(freed, 2 * 16 * 1024);  // of reading, and of writing
}

}  // namespace
}  // namespace millrace::tls
