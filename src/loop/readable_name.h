// SPDX-License-Identifier: Apache-2.0
// Names of types and functions as people write them.
#pragma once

#include <string>
#include <typeinfo>

namespace millrace {

/// The demangled form of `mangled`, or `mangled` itself if it is not a mangled name.
std::string readableName(const char* mangled);
/// The name of a callable's type. What submit() has wrapped goes by its own name.
std::string readableName(const std::type_info& type);

}  // namespace millrace
