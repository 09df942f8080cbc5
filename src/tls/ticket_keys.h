// SPDX-License-Identifier: Apache-2.0
// TicketKeys: the secrets that session tickets are sealed with. They outlive every reload of certificates, so
// that resumption survives it.
//
//   now:     [current] seals and opens        [previous] opens only, and asks for a new ticket
//   rotate:  a new one becomes current, what was current becomes previous, what was previous is forgotten
//
// Threads: any.
#pragma once

#include "tls/openssl.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <openssl/crypto.h>
#include <optional>
#include <string>
#include <vector>

namespace millrace::tls {

class TicketKeys {
 public:
  /// Of one secret that users give.
  static constexpr std::size_t kSecretBytes = 80;

  /// Keys of its own, which change every `lifeNanos`.
  explicit TicketKeys(std::int64_t lifeNanos);

  /// Keys of the users', which change only here. The first one seals. REQUIRES: each of kSecretBytes
  void set(const std::vector<std::string>& secrets);

  /// OpenSSL's callback for tickets: 1 done, 2 done and a new ticket is due, 0 no such key, -1 failure.
  int use(unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac,
          bool seal);
  /// Changes the keys if it is time.
  void rotate(std::int64_t nowNanos);

 private:
  static constexpr std::size_t kNameBytes = 16;
  static constexpr std::size_t kKeyBytes = 32;
  struct Key {
    Key() noexcept = default;
    Key(const Key&) noexcept = default;
    Key& operator=(const Key&) noexcept = default;
    ~Key() { OPENSSL_cleanse(this, sizeof *this); }
    std::array<unsigned char, kNameBytes> name;
    std::array<unsigned char, kKeyBytes> mac;
    std::array<unsigned char, kKeyBytes> cipher;
  };
  static Key random();
  struct Found {
    Key key;
    bool isCurrent;
  };
  std::optional<Found> find(const unsigned char* name);

  const std::int64_t life_;
  std::mutex mutex_;
  std::vector<Key> keys_;  // the current one first
  std::int64_t since_ = 0;
  bool areGiven_ = false;  // by the user
};

}  // namespace millrace::tls
