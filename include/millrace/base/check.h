// SPDX-License-Identifier: Apache-2.0
// Checks for our own mistakes: a failed one prints where and why, then ends the process.
// They are on in every build. What the network or the user may do wrong is never a check.
#pragma once

#include <millrace/base/export.h>

namespace millrace {

/// Prints "millrace: bug: <text> (<condition>, <file>:<line>)" to standard error and aborts.
[[noreturn]] MILLRACE_API void checkFailed(const char* condition, const char* text,
                                           const char* file, int line) noexcept;

}  // namespace millrace

/// Ends the process with `text` unless `cond` holds.
#define MR_CHECK(cond, text)                            \
  (__builtin_expect(!!(cond), 1) ? static_cast<void>(0) \
                                 : ::millrace::checkFailed(#cond, text, __FILE__, __LINE__))
