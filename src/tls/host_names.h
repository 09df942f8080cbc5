// SPDX-License-Identifier: Apache-2.0
// Host names as clients ask for them, and a table of them with wildcards.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace millrace::tls {

/// `name` in lower case and without a dot at its end; nothing if it is no host name: empty, too long, with
/// characters that names do not have, or an address.
std::optional<std::string> normalHostName(std::string_view name);
/// True for "192.0.2.1" and "2001:db8::1".
bool isAddress(const std::string& text);
/// The same as normalHostName() for "*.example.org", which is allowed here, and keeps its star.
std::optional<std::string> normalPattern(std::string_view pattern);

/// Names to places. A star stands for one label, and an exact name goes before it.
class HostNames {
 public:
  /// `pattern` is normal. The last one with a pattern wins.
  void add(const std::string& pattern, std::size_t place) { places_[pattern] = place; }
  /// `name` is normal.
  std::optional<std::size_t> find(const std::string& name) const;
  bool empty() const noexcept { return places_.empty(); }

 private:
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace millrace::tls
