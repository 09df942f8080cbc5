// SPDX-License-Identifier: Apache-2.0
#include "tls/ticket_keys.h"

#include <millrace/base/clock.h>

#include <gtest/gtest.h>

#include <openssl/core_names.h>

namespace millrace::tls {
namespace {

using CipherPtr = std::unique_ptr<EVP_CIPHER_CTX, Freer<&EVP_CIPHER_CTX_free>>;
using MacPtr = std::unique_ptr<EVP_MAC, Freer<&EVP_MAC_free>>;
using MacCtxPtr = std::unique_ptr<EVP_MAC_CTX, Freer<&EVP_MAC_CTX_free>>;

constexpr std::int64_t kLife = 1'000'000'000'000;  // far more than a test takes

/// The parts of a ticket that OpenSSL keeps, and a sealed text in place of a session.
struct Ticket {
  unsigned char name[16] = {};
  unsigned char iv[EVP_MAX_IV_LENGTH] = {};
  std::string sealed;
};

constexpr std::string_view kText = "sixteen bytes ok";

class Tickets : public testing::Test {
 protected:
  /// What OpenSSL does with the callback.
  int use(TicketKeys& keys, Ticket& ticket, bool seal) {
    cipher.reset(EVP_CIPHER_CTX_new());
    const MacPtr kind(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
    const MacCtxPtr mac(EVP_MAC_CTX_new(kind.get()));
    return keys.use(ticket.name, ticket.iv, cipher.get(), mac.get(), seal);
  }
  Ticket seal(TicketKeys& keys) {
    Ticket ticket;
    EXPECT_EQ(use(keys, ticket, true), 1);
    unsigned char out[64];
    int size = 0;
    EVP_EncryptUpdate(cipher.get(), out, &size,
                      reinterpret_cast<const unsigned char*>(kText.data()),
                      static_cast<int>(kText.size()));
    int rest = 0;
    EVP_EncryptFinal_ex(cipher.get(), out + size, &rest);
    ticket.sealed.assign(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size + rest));
    return ticket;
  }
  /// What the callback says about `ticket`; what it opens is the right text.
  int open(TicketKeys& keys, Ticket ticket) {
    const int verdict = use(keys, ticket, false);
    if (verdict <= 0) return verdict;
    unsigned char out[64];
    int size = 0;
    EVP_DecryptUpdate(cipher.get(), out, &size,
                      reinterpret_cast<const unsigned char*>(ticket.sealed.data()),
                      static_cast<int>(ticket.sealed.size()));
    int rest = 0;
    EXPECT_EQ(EVP_DecryptFinal_ex(cipher.get(), out + size, &rest), 1);
    EXPECT_EQ(
        std::string_view(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size + rest)),
        kText);
    return verdict;
  }

  CipherPtr cipher;
};

std::string secret(char fill) { return std::string(TicketKeys::kSecretBytes, fill); }

TEST_F(Tickets, TheCurrentKeyOpensWhatItSealed) {
  TicketKeys keys(kLife);

  EXPECT_EQ(open(keys, seal(keys)), 1);
}

TEST_F(Tickets, TwoOfTheSameKeyLookDifferent) {
  TicketKeys keys(kLife);
  const Ticket one = seal(keys);
  const Ticket other = seal(keys);

  EXPECT_EQ(std::string(one.name, one.name + 16), std::string(other.name, other.name + 16));
  EXPECT_NE(one.sealed, other.sealed);
}

TEST_F(Tickets, NobodyElseHasTheKeys) {
  TicketKeys mine(kLife);
  TicketKeys theirs(kLife);

  EXPECT_EQ(open(theirs, seal(mine)), 0);
}

TEST_F(Tickets, ThePreviousKeyStillOpensAndAsksForANewTicket) {
  TicketKeys keys(kLife);
  const Ticket old = seal(keys);

  keys.rotate(Clock::real().nanos() + kLife);

  EXPECT_EQ(open(keys, old), 2);
}

TEST_F(Tickets, TheKeyBeforeThePreviousOneIsForgotten) {
  TicketKeys keys(kLife);
  const std::int64_t start = Clock::real().nanos();
  const Ticket first = seal(keys);
  keys.rotate(start + kLife);
  const Ticket second = seal(keys);

  keys.rotate(start + 2 * kLife);

  EXPECT_EQ(open(keys, first), 0);
  EXPECT_EQ(open(keys, second), 2);
}

TEST_F(Tickets, NothingChangesBeforeItsTime) {
  TicketKeys keys(kLife);
  const Ticket ticket = seal(keys);

  keys.rotate(Clock::real().nanos() + kLife / 2);

  EXPECT_EQ(open(keys, ticket), 1);
}

TEST_F(Tickets, AfterALongRestNoOldTicketIsGood) {
  TicketKeys keys(kLife);
  const Ticket ticket = seal(keys);

  keys.rotate(Clock::real().nanos() + 2 * kLife);

  EXPECT_EQ(open(keys, ticket), 0);
}

TEST_F(Tickets, KeysThatAreGivenAreSharedByWhoeverHasThem) {
  TicketKeys here(kLife);
  TicketKeys there(kLife);
  here.set({secret('a')});
  there.set({secret('b'), secret('a')});

  EXPECT_EQ(open(there, seal(here)), 2);  // not the first one there
  EXPECT_EQ(open(here, seal(there)), 0);
  there.set({secret('a'), secret('b')});
  EXPECT_EQ(open(here, seal(there)), 1);
}

TEST_F(Tickets, KeysThatAreGivenDoNotChangeByThemselves) {
  TicketKeys keys(kLife);
  keys.set({secret('a')});
  const Ticket ticket = seal(keys);

  keys.rotate(Clock::real().nanos() + 10 * kLife);

  EXPECT_EQ(open(keys, ticket), 1);
}

TEST_F(Tickets, GivingKeysForgetsTheOwnOnes) {
  TicketKeys keys(kLife);
  const Ticket ticket = seal(keys);

  keys.set({secret('a')});

  EXPECT_EQ(open(keys, ticket), 0);
}

}  // namespace
}  // namespace millrace::tls
