// SPDX-License-Identifier: Apache-2.0
// Whether this build is many times slower than a release: tests that only repeat do less then.
#pragma once

#include "support/sanitized.h"

namespace millrace::explorer {

#ifdef __OPTIMIZE__
constexpr bool kSlowBuild = test::kSanitized;
#else
constexpr bool kSlowBuild = true;
#endif

}  // namespace millrace::explorer
