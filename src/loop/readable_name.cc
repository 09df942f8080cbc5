// SPDX-License-Identifier: Apache-2.0
#include "loop/readable_name.h"

#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <string_view>

namespace millrace {

std::string readableName(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : mangled;
}

// "millrace::internal::completing<int, main::{lambda()#1}>(millrace::Promise<int>,
// …)::{lambda()#1}"
std::string readableName(const std::type_info& type) {
  std::string name = readableName(type.name());
  constexpr std::string_view kWrapper = "millrace::internal::completing<";
  const auto end = name.find(">(millrace::Promise<");
  if (!name.starts_with(kWrapper) || end == std::string::npos) return name;
  // The second argument of the template: the first may have commas between brackets of its own.
  int depth = 0;
  for (std::size_t i = kWrapper.size(); i < end; ++i) {
    if (name[i] == '<' || name[i] == '(') ++depth;
    if (name[i] == '>' || name[i] == ')') --depth;
    if (name[i] == ',' && depth == 0) return name.substr(i + 2, end - i - 2);
  }
  return name;
}

}  // namespace millrace
