// SPDX-License-Identifier: Apache-2.0
#include "tls/session_store.h"

#include <gtest/gtest.h>

#include <ctime>

namespace millrace::tls {
namespace {

/// One that could go on, as far as OpenSSL can see.
SslSessionPtr session(int version = TLS1_3_VERSION, std::string id = "id") {
  SslSessionPtr made(SSL_SESSION_new());
  SSL_SESSION_set_protocol_version(made.get(), version);
  SSL_SESSION_set1_id(made.get(), reinterpret_cast<const unsigned char*>(id.data()),
                      static_cast<unsigned int>(id.size()));
  SSL_SESSION_set_timeout(made.get(), 1000);
  SSL_SESSION_set_time(made.get(), std::time(nullptr));
  return made;
}

TEST(SessionStore, GivesNothingToSomebodyUnknown) {
  SessionStore store;

  EXPECT_EQ(store.take("a:443", ""), nullptr);
  EXPECT_EQ(store.size(), 0U);
}

TEST(SessionStore, GivesEachSessionOfTls13Once) {
  SessionStore store;
  SslSessionPtr one = session();
  const SSL_SESSION* raw = one.get();
  store.put("a:443", std::move(one));

  EXPECT_EQ(store.take("b:443", ""), nullptr);
  EXPECT_EQ(store.take("a:443", "").get(), raw);
  EXPECT_EQ(store.take("a:443", ""), nullptr);
  EXPECT_EQ(store.size(), 0U);
}

TEST(SessionStore, GivesASessionOfTls12AsOftenAsItIsAsked) {
  SessionStore store;
  SslSessionPtr one = session(TLS1_2_VERSION);
  const SSL_SESSION* raw = one.get();
  store.put("a:443", std::move(one));

  EXPECT_EQ(store.take("a:443", "").get(), raw);
  EXPECT_EQ(store.take("a:443", "").get(), raw);
  EXPECT_EQ(store.size(), 1U);
}

TEST(SessionStore, GivesTheNewestFirst) {
  SessionStore store;
  SslSessionPtr older = session();
  SslSessionPtr newer = session();
  const SSL_SESSION* first = newer.get();
  const SSL_SESSION* second = older.get();
  store.put("a:443", std::move(older));
  store.put("a:443", std::move(newer));

  EXPECT_EQ(store.take("a:443", "").get(), first);
  EXPECT_EQ(store.take("a:443", "").get(), second);
}

TEST(SessionStore, KeepsAFewForEachPeer) {
  SessionStore store;
  for (int i = 0; i < 10; ++i) store.put("a:443", session());

  std::size_t count = 0;
  while (store.take("a:443", "")) ++count;

  EXPECT_EQ(count, SessionStore::kMostPerPeer);
}

TEST(SessionStore, PassesOverWhatCannotGoOn) {
  SessionStore store;
  SslSessionPtr good = session();
  const SSL_SESSION* raw = good.get();
  store.put("a:443", std::move(good));
  store.put("a:443", SslSessionPtr(SSL_SESSION_new()));  // neither an id nor a ticket

  EXPECT_EQ(store.take("a:443", "").get(), raw);
  EXPECT_EQ(store.size(), 0U);
}

TEST(SessionStore, ForgetsWhomItHasNotSeenForTheLongestTime) {
  SessionStore store;
  store.put("first:1", session(TLS1_2_VERSION));
  store.put("second:1", session(TLS1_2_VERSION));
  EXPECT_NE(store.take("first:1", ""), nullptr);  // used again

  for (std::size_t i = 0; i + 1 < SessionStore::kMostPeers; ++i) {
    store.put("other:" + std::to_string(i), session(TLS1_2_VERSION));
  }

  EXPECT_EQ(store.size(), SessionStore::kMostPeers);
  EXPECT_NE(store.take("first:1", ""), nullptr);
  EXPECT_EQ(store.take("second:1", ""), nullptr);
}

TEST(SessionStore, DoesNotGiveWhatIsOverItsTime) {
  SessionStore store;
  SslSessionPtr old = session(TLS1_2_VERSION);
  SSL_SESSION_set_time(old.get(), std::time(nullptr) - 1001);
  store.put("a:443", std::move(old));

  EXPECT_EQ(store.take("a:443", ""), nullptr);
}

TEST(SessionStore, DropsWhatIsOfAnotherScope) {
  SessionStore store;
  SslSessionPtr one = session();
  SSL_SESSION_set1_id_context(one.get(), reinterpret_cast<const unsigned char*>("old"), 3);
  const SSL_SESSION* raw = one.get();
  SSL_SESSION_up_ref(one.get());
  const SslSessionPtr again(one.get());
  store.put("a:443", std::move(one));

  EXPECT_EQ(store.take("a:443", "new"), nullptr);
  EXPECT_EQ(store.take("a:443", "old"), nullptr);
  SSL_SESSION_up_ref(again.get());
  store.put("a:443", SslSessionPtr(again.get()));
  EXPECT_EQ(store.take("a:443", "old").get(), raw);
}

}  // namespace
}  // namespace millrace::tls
