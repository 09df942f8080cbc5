// SPDX-License-Identifier: Apache-2.0
// TlsErrc: what TLS can fail with, beside closed and timedOut of <millrace/base/error.h>.
//
//   void exceptionCaught(Context& ctx, const Error& error) override {
//     if (error.code() == TlsErrc::truncated) ...
#pragma once

#include <millrace/base/export.h>

#include <system_error>

namespace millrace {

enum class TlsErrc {
  credentials = 1,  ///< a certificate, key or list of authorities cannot be used
  handshake,        ///< the two sides did not come together
  certificate,      ///< the peer's certificate was refused, or it has none
  notTls,           ///< what came is not TLS at all
  protocol,  ///< the peer broke the rules after the handshake, or sent an alert: it may refuse our
             ///< certificate that late
  truncated  ///< the stream ended without close_notify: something may be missing
};

/// The category of `TlsErrc` ("tls").
MILLRACE_API const std::error_category& tlsErrorCategory() noexcept;
inline std::error_code make_error_code(TlsErrc e) noexcept {  // NOLINT: the standard's name
  return {static_cast<int>(e), tlsErrorCategory()};
}

}  // namespace millrace

template <>
struct std::is_error_code_enum<millrace::TlsErrc> : std::true_type {};
