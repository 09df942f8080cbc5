// SPDX-License-Identifier: Apache-2.0
#include "loop/readable_name.h"

#include <cstdlib>
#include <cxxabi.h>
#include <memory>

namespace millrace {

std::string readableName(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : mangled;
}

}  // namespace millrace
