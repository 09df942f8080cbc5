// SPDX-License-Identifier: Apache-2.0
// A server's TlsHandler, and whatever a peer may send to it; see tls_play.h.
#include "tls_play.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  millrace::fuzz::playTls(/*testsServer=*/true, {data, size});
  return 0;
}
