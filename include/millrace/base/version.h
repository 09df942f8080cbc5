// SPDX-License-Identifier: Apache-2.0
// The version of Millrace. CMake reads these three lines: they are the one place that says it.
#pragma once

#include <millrace/base/export.h>

#define MILLRACE_VERSION_MAJOR 0
#define MILLRACE_VERSION_MINOR 1
#define MILLRACE_VERSION_PATCH 0

namespace millrace {

/// The version of the library that is linked, such as "0.1.0"; compare it with the macros above to
/// notice headers and library of different versions. Any thread.
MILLRACE_API const char* version() noexcept;

}  // namespace millrace
