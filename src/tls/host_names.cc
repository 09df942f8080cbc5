// SPDX-License-Identifier: Apache-2.0
#include "tls/host_names.h"

#include <algorithm>
#include <arpa/inet.h>

namespace millrace::tls {

namespace {

constexpr std::size_t kLongestName = 253;
constexpr std::size_t kLongestLabel = 63;

bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// Letters, digits, hyphens and underscores, which some names have although they should not.
bool isLabel(std::string_view label) {
  return !label.empty() && label.size() <= kLongestLabel && label.front() != '-' &&
         label.back() != '-' && std::all_of(label.begin(), label.end(), [](char c) {
           return isLetter(c) || isDigit(c) || c == '-' || c == '_';
         });
}

}  // namespace

std::optional<std::string> normalHostName(std::string_view name) {
  if (!name.empty() && name.back() == '.') name.remove_suffix(1);
  if (name.empty() || name.size() > kLongestName) return std::nullopt;
  std::string_view rest = name;
  std::string_view last;
  while (true) {
    const std::size_t dot = rest.find('.');
    last = rest.substr(0, dot);
    if (!isLabel(last)) return std::nullopt;
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  // No name ends in a number: this is an address.
  if (std::all_of(last.begin(), last.end(), isDigit)) return std::nullopt;
  std::string normal(name);
  for (char& c : normal) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return normal;
}

bool isAddress(const std::string& text) {
  if (text.find('\0') != std::string::npos) return false;
  in6_addr any{};
  return inet_pton(AF_INET, text.c_str(), &any) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

std::optional<std::string> normalPattern(std::string_view pattern) {
  if (pattern.substr(0, 2) != "*.") return normalHostName(pattern);
  const std::optional<std::string> rest = normalHostName(pattern.substr(2));
  if (!rest) return std::nullopt;
  return "*." + *rest;
}

std::optional<std::size_t> HostNames::find(const std::string& name) const {
  if (const auto exact = places_.find(name); exact != places_.end()) return exact->second;
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return std::nullopt;
  const auto wild = places_.find("*" + name.substr(dot));
  if (wild == places_.end()) return std::nullopt;
  return wild->second;
}

}  // namespace millrace::tls
