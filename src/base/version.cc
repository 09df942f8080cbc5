// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/version.h>

#define MR_TEXT2(x) #x
#define MR_TEXT(x) MR_TEXT2(x)

namespace millrace {

const char* version() noexcept {
  return MR_TEXT(MILLRACE_VERSION_MAJOR) "." MR_TEXT(MILLRACE_VERSION_MINOR) "." MR_TEXT(
      MILLRACE_VERSION_PATCH);
}

}  // namespace millrace
