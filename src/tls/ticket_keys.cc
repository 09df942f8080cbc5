// SPDX-License-Identifier: Apache-2.0
#include "tls/ticket_keys.h"

#include <millrace/base/check.h>
#include <millrace/base/clock.h>

#include <cstring>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

namespace millrace::tls {

TicketKeys::TicketKeys(std::int64_t lifeNanos)
    : life_(lifeNanos), keys_{random()}, since_(Clock::real().nanos()) {}

TicketKeys::Key TicketKeys::random() {
  Key key;
  const bool good = RAND_bytes(key.name.data(), kNameBytes) == 1 &&
                    RAND_priv_bytes(key.mac.data(), kKeyBytes) == 1 &&
                    RAND_priv_bytes(key.cipher.data(), kKeyBytes) == 1;
  MR_CHECK(good, "the system has no random bytes for TLS");
  return key;
}

void TicketKeys::set(const std::vector<std::string>& secrets) {
  std::vector<Key> keys;
  for (const std::string& secret : secrets) {
    MR_CHECK(secret.size() == kSecretBytes, "a ticket key of the wrong length");
    Key key;
    std::memcpy(key.name.data(), secret.data(), kNameBytes);
    std::memcpy(key.mac.data(), secret.data() + kNameBytes, kKeyBytes);
    std::memcpy(key.cipher.data(), secret.data() + kNameBytes + kKeyBytes, kKeyBytes);
    keys.push_back(key);
  }
  const std::lock_guard lock(mutex_);
  keys_ = std::move(keys);
  areGiven_ = true;
}

void TicketKeys::rotate(std::int64_t nowNanos) {
  const std::lock_guard lock(mutex_);
  if (areGiven_ || nowNanos - since_ < life_) return;
  // After a long rest the current key is too old to open anything, too.
  const bool isLongAgo = (nowNanos - since_) / 2 >= life_;
  keys_.resize(isLongAgo ? 0 : 1);
  keys_.insert(keys_.begin(), random());
  since_ = nowNanos;
}

std::optional<TicketKeys::Found> TicketKeys::find(const unsigned char* name) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (name == nullptr || std::memcmp(name, keys_[i].name.data(), kNameBytes) == 0) {
      return Found{keys_[i], i == 0};
    }
  }
  return std::nullopt;
}

int TicketKeys::use(unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher,
                    EVP_MAC_CTX* mac, bool seal) {
  rotate(Clock::real().nanos());
  std::optional<Found> found = find(seal ? nullptr : name);
  if (!found) return 0;
  char digest[] = "sha256";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, found->key.mac.data(), kKeyBytes),
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_end()};
  if (seal) {
    std::memcpy(name, found->key.name.data(), kNameBytes);
    if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) != 1 ||
        EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), nullptr, found->key.cipher.data(), iv) != 1) {
      return -1;
    }
  } else if (EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), nullptr, found->key.cipher.data(), iv) !=
             1) {
    return -1;
  }
  if (EVP_MAC_CTX_set_params(mac, params) != 1) return -1;
  return seal || found->isCurrent ? 1 : 2;
}

}  // namespace millrace::tls
