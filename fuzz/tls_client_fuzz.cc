// SPDX-License-Identifier: Apache-2.0
// A client's TlsHandler, and whatever a peer may send to it; see tls_play.h.
#include "tls_play.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  millrace::fuzz::playTls(/*testsServer=*/false, {data, size});
  return 0;
}
