// SPDX-License-Identifier: Apache-2.0
#include "tls/openssl.h"

#include <openssl/err.h>

namespace millrace {

namespace {

class TlsCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "tls"; }
  std::string message(int value) const override {
    switch (static_cast<TlsErrc>(value)) {
      case TlsErrc::credentials:
        return "cannot be used";
      case TlsErrc::handshake:
        return "handshake failed";
      case TlsErrc::certificate:
        return "certificate refused";
      case TlsErrc::notTls:
        return "not TLS";
      case TlsErrc::protocol:
        return "protocol error";
      case TlsErrc::truncated:
        return "the stream ended without close_notify";
    }
    return "unknown error";
  }
};

}  // namespace

const std::error_category& tlsErrorCategory() noexcept {
  static const TlsCategory category;
  return category;
}

namespace tls {

void wipe(std::vector<std::string>& secrets) noexcept {
  for (std::string& each : secrets) OPENSSL_cleanse(each.data(), each.size());
  secrets.clear();
}

std::string takeReason(int* number) {
  unsigned long chosen = 0;
  while (const unsigned long code = ERR_get_error()) {
    if (chosen == 0 || ERR_GET_LIB(code) == ERR_LIB_SSL) chosen = code;
  }
  if (number != nullptr) *number = ERR_GET_LIB(chosen) == ERR_LIB_SSL ? ERR_GET_REASON(chosen) : 0;
  if (chosen == 0) return {};
  const char* text = ERR_reason_error_string(chosen);
  if (text != nullptr) return text;
  return "error " + std::to_string(chosen);
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 253;
  std::string words(text.substr(0, kMost));
  for (char& c : words) {
    if (c < ' ' || c > '~') c = '?';
  }
  return words;
}

Error credentialsError(std::string_view what, std::string_view problem) {
  return {make_error_code(TlsErrc::credentials), "TLS",
          std::string(what) + " " + std::string(problem)};
}

}  // namespace tls
}  // namespace millrace
