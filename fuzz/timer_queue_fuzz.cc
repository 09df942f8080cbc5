// SPDX-License-Identifier: Apache-2.0
// Plays bytes as operations on a TimerQueue and on its model (tests/support/timer_model.h); a
// difference ends the process.
#include "support/timer_model.h"

#include <millrace/base/log.h>

#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = [] {
    millrace::setLogFilter("off");
    return true;
  }();
  static_cast<void>(quiet);
  millrace::test::TimerModel model;
  const std::string difference = model.play({data, size});
  if (!difference.empty()) {
    std::fprintf(stderr, "%s\n", difference.c_str());
    std::abort();
  }
  return 0;
}
