// SPDX-License-Identifier: Apache-2.0
// Which functions addresses belong to, for people who look for the one that blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

/// One function on a stack, as far as it can be told.
struct CodePlace {
  std::string function;       ///< as the linker knows it (mangled); empty if nobody knows
  std::string module;         ///< the file of the program or library
  std::uintptr_t offset = 0;  ///< from the beginning of the module

  /// The name as people write it, else module and offset, which addr2line understands.
  std::string text() const;
};

/// The functions at these addresses, innermost first. Where functions were inlined an address gives
/// several. With libdw every function has its name, also those of the program itself; it reads the
/// files of the program and its libraries, which takes a while.
std::vector<CodePlace> placesOf(const std::vector<std::uintptr_t>& addresses);
/// The same without libdw: what the dynamic linker knows, exported functions only.
std::vector<CodePlace> exportedPlacesOf(const std::vector<std::uintptr_t>& addresses);
/// True if functions that are not exported have names, too.
bool canNameEveryFunction() noexcept;

/// The innermost function that is neither the system's (libc, the C++ library, a sanitizer) nor
/// ours. Without one: what a user's callable calls that was inlined into its caller, else the
/// innermost that is not the system's. Null for an empty stack.
const CodePlace* blockingFunction(const std::vector<CodePlace>& stack);

}  // namespace millrace
