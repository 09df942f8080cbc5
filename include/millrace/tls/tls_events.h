// SPDX-License-Identifier: Apache-2.0
// What TlsHandler sends through userEventTriggered(), each at most once, in this order.
#pragma once

#include <millrace/base/error.h>

namespace millrace {

/// The handshake has ended. Before the first message on success; the channel closes on failure.
struct TlsHandshakeCompletion {
  Error failure;  ///< none: it went well
  bool isSuccess() const noexcept { return !failure; }
};

/// The peer has said that it will send no more (close_notify): what came so far is whole.
struct TlsCloseCompletion {};

}  // namespace millrace
