// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>

#include <cstdio>
#include <cstdlib>

namespace millrace {

void checkFailed(const char* condition, const char* text, const char* file, int line) noexcept {
  std::fprintf(stderr, "millrace: bug: %s (%s, %s:%d)\n", text, condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace millrace
