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
        return "certificate or key cannot be used";
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

int peekReason() noexcept {
  const unsigned long code = ERR_peek_error();
  return code == 0 || ERR_GET_LIB(code) != ERR_LIB_SSL ? 0 : ERR_GET_REASON(code);
}

std::string takeReason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return {};
  const char* text = ERR_reason_error_string(code);
  if (text != nullptr) return text;
  return "error " + std::to_string(code);
}

Error credentialsError(std::string_view what, std::string_view problem) {
  return {make_error_code(TlsErrc::credentials), "TLS",
          std::string(what) + " " + std::string(problem)};
}

}  // namespace tls
}  // namespace millrace
