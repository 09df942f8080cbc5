// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>
#include <millrace/sys/socket_address.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <net/if.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <sys/un.h>
#include <type_traits>

namespace millrace {

namespace {

constexpr std::size_t kPathOffset = offsetof(sockaddr_un, sun_path);
constexpr std::size_t kMaxName = sizeof(sockaddr_un::sun_path) - 1;
constexpr const char* kParse = "SocketAddress::parse";

static_assert(sizeof(sockaddr_in) <= 28 && sizeof(sockaddr_in6) <= 28);
static_assert(sizeof(sockaddr_un) <= UINT8_MAX);

template <class T, class Storage>
T load(const Storage& storage) noexcept {
  T value;
  std::memcpy(&value, storage.data(), sizeof value);
  return value;
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value = 0;
  const char* last = text.data() + text.size();
  const auto [end, failure] = std::from_chars(text.data(), last, value);
  if (failure != std::errc() || end != last) return std::nullopt;
  return value;
}

Error bad(const char* operation, std::string_view text, std::string_view why) {
  std::string detail("\"");
  detail.append(text).append("\" (").append(why).append(")");
  return Error::fromErrno(EINVAL, operation, detail);
}

}  // namespace

SocketAddress SocketAddress::inet4(const std::array<std::uint8_t, 4>& ip,
                                   std::uint16_t port) noexcept {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_port = htons(port);
  std::memcpy(&raw.sin_addr, ip.data(), ip.size());
  SocketAddress made;
  std::memcpy(made.form_.bytes.data(), &raw, sizeof raw);
  made.form_.size = sizeof raw;
  made.form_.family = AddressFamily::inet4;
  return made;
}

SocketAddress SocketAddress::inet6(const std::array<std::uint8_t, 16>& ip, std::uint16_t port,
                                   std::uint32_t scope) noexcept {
  sockaddr_in6 raw{};
  raw.sin6_family = AF_INET6;
  raw.sin6_port = htons(port);
  raw.sin6_scope_id = scope;
  std::memcpy(&raw.sin6_addr, ip.data(), ip.size());
  SocketAddress made;
  std::memcpy(made.form_.bytes.data(), &raw, sizeof raw);
  made.form_.size = sizeof raw;
  made.form_.family = AddressFamily::inet6;
  return made;
}

SocketAddress SocketAddress::loopback6(std::uint16_t port) noexcept {
  std::array<std::uint8_t, 16> ip{};
  ip.back() = 1;
  return inet6(ip, port);
}

SocketAddress SocketAddress::unixName(AddressFamily family, std::string_view name) noexcept {
  SocketAddress made;
  made.form_.family = family;
  if (family == AddressFamily::unixUnnamed) {
    const sa_family_t unixFamily = AF_UNIX;
    std::memcpy(made.form_.bytes.data(), &unixFamily, sizeof unixFamily);
    made.form_.size = sizeof unixFamily;
    return made;
  }
  auto* raw = new sockaddr_un{};
  raw->sun_family = AF_UNIX;
  // One zero byte is part of the name: the one that ends a path or that begins an abstract name.
  const std::size_t lead = family == AddressFamily::unixPath ? 0 : 1;
  std::copy_n(name.data(), name.size(), raw->sun_path + lead);
  std::memcpy(made.form_.bytes.data(), &raw, sizeof(void*));
  made.form_.size = static_cast<std::uint8_t>(kPathOffset + name.size() + 1);
  return made;
}

void SocketAddress::copyName() noexcept {
  const auto* own = new sockaddr_un(*unixForm());
  std::memcpy(form_.bytes.data(), &own, sizeof(void*));
}

void SocketAddress::dropName() noexcept { delete unixForm(); }

Result<SocketAddress> SocketAddress::unixPath(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) {
    return bad("SocketAddress::unixPath", path, "give a path without zero bytes");
  }
  if (path.size() > kMaxName) {
    return Error::fromErrno(ENAMETOOLONG, "SocketAddress::unixPath", path);
  }
  return unixName(AddressFamily::unixPath, path);
}

Result<SocketAddress> SocketAddress::unixAbstract(std::string_view name) {
  if (name.size() > kMaxName) {
    return Error::fromErrno(ENAMETOOLONG, "SocketAddress::unixAbstract", name);
  }
  return unixName(AddressFamily::unixAbstract, name);
}

SocketAddress SocketAddress::local(std::string_view name) noexcept {
  return unixName(AddressFamily::local, name.substr(0, kMaxName));
}

Result<SocketAddress> SocketAddress::ofHost(std::string_view host, std::uint16_t port) {
  constexpr const char* kOperation = "SocketAddress::ofHost";
  constexpr const char* kWhy = "expected numbers, such as 127.0.0.1 or ::1; names need a resolver";
  const auto percent = host.find('%');
  const std::string digits(host.substr(0, percent));
  if (digits.find('\0') != std::string::npos) return bad(kOperation, host, kWhy);
  std::array<std::uint8_t, 4> ip4{};
  if (percent == std::string_view::npos && ::inet_pton(AF_INET, digits.c_str(), ip4.data()) == 1) {
    return inet4(ip4, port);
  }
  std::array<std::uint8_t, 16> ip6{};
  if (::inet_pton(AF_INET6, digits.c_str(), ip6.data()) != 1) return bad(kOperation, host, kWhy);
  if (percent == std::string_view::npos) return inet6(ip6, port);
  const std::string_view zone = host.substr(percent + 1);
  const auto index = number<std::uint32_t>(zone);
  const std::uint32_t scope = index ? *index : ::if_nametoindex(std::string(zone).c_str());
  if (scope == 0 && !index) return bad(kOperation, host, "there is no such network interface");
  return inet6(ip6, port, scope);
}

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  if (text.starts_with("unix:@")) return unixAbstract(text.substr(6));
  if (text.starts_with("unix:")) return unixPath(text.substr(5));
  if (text.starts_with("local:")) return local(text.substr(6));
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return bad(kParse, text, "expected host:port, [host]:port, unix:/path or unix:@name");
  }
  std::string_view host = text.substr(0, colon);
  const auto port = number<std::uint16_t>(text.substr(colon + 1));
  if (!port) return bad(kParse, text, "the port is a number from 0 to 65535");
  const bool brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (brackets != (host.find(':') != std::string_view::npos)) {
    return bad(kParse, text, "IPv6 hosts stand in brackets, such as [::1]:80, and no others do");
  }
  if (brackets) host = host.substr(1, host.size() - 2);
  return ofHost(host, *port);
}

Result<SocketAddress> SocketAddress::fromRaw(const void* raw, std::size_t size) {
  sa_family_t family = AF_UNSPEC;
  if (size >= sizeof family) std::memcpy(&family, raw, sizeof family);
  if (family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, raw, sizeof in);
    std::array<std::uint8_t, 4> ip{};
    std::memcpy(ip.data(), &in.sin_addr, ip.size());
    return inet4(ip, ntohs(in.sin_port));
  }
  if (family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    std::memcpy(&in, raw, sizeof in);
    std::array<std::uint8_t, 16> ip{};
    std::memcpy(ip.data(), &in.sin6_addr, ip.size());
    return inet6(ip, ntohs(in.sin6_port), in.sin6_scope_id);
  }
  if (family == AF_UNIX) {
    const char* path = static_cast<const char*>(raw) + kPathOffset;
    // The kernel counts the ending zero of a longest path although the struct has no room for it.
    const std::size_t length = std::min(size - kPathOffset, kMaxName + 1);
    if (length == 0) return unixName(AddressFamily::unixUnnamed, {});
    if (path[0] == '\0') return unixAbstract({path + 1, length - 1});
    return unixPath({path, ::strnlen(path, length)});
  }
  return Error::fromErrno(
      EAFNOSUPPORT, "SocketAddress::fromRaw",
      "family " + std::to_string(family) + ", " + std::to_string(size) + " bytes");
}

bool SocketAddress::isInet() const noexcept {
  return form_.family == AddressFamily::inet4 || form_.family == AddressFamily::inet6;
}

bool SocketAddress::isUnix() const noexcept { return domain() == AF_UNIX; }

bool SocketAddress::isLoopback() const noexcept {
  if (form_.family == AddressFamily::inet4) {
    return ntohl(load<sockaddr_in>(form_.bytes).sin_addr.s_addr) >> 24 == 127;
  }
  if (form_.family == AddressFamily::inet6) {
    const auto raw6 = load<sockaddr_in6>(form_.bytes);
    return std::memcmp(&raw6.sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
  }
  return isUnix() || form_.family == AddressFamily::local;
}

bool SocketAddress::isAny() const noexcept {
  if (form_.family == AddressFamily::inet4)
    return load<sockaddr_in>(form_.bytes).sin_addr.s_addr == 0;
  if (form_.family != AddressFamily::inet6) return false;
  const auto raw6 = load<sockaddr_in6>(form_.bytes);
  return std::memcmp(&raw6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
}

std::uint16_t SocketAddress::port() const noexcept {
  if (!isInet()) return 0;
  return ntohs(load<sockaddr_in>(form_.bytes).sin_port);  // the same place in both families
}

SocketAddress SocketAddress::withPort(std::uint16_t port) const noexcept {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  MR_CHECK(isInet(), "SocketAddress::withPort() of an address that has no port");
  SocketAddress made = *this;
  const std::uint16_t order = htons(port);
  std::memcpy(made.form_.bytes.data() + offsetof(sockaddr_in, sin_port), &order, sizeof order);
  return made;
}

std::uint32_t SocketAddress::scope() const noexcept {
  if (form_.family != AddressFamily::inet6) return 0;
  return load<sockaddr_in6>(form_.bytes).sin6_scope_id;
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (form_.family == AddressFamily::inet4) {
    const auto raw4 = load<sockaddr_in>(form_.bytes);
    ::inet_ntop(AF_INET, &raw4.sin_addr, text, sizeof text);
  } else if (form_.family == AddressFamily::inet6) {
    const auto raw6 = load<sockaddr_in6>(form_.bytes);
    ::inet_ntop(AF_INET6, &raw6.sin6_addr, text, sizeof text);
  }
  std::string host(text);
  if (scope() != 0) host.append("%").append(std::to_string(scope()));
  return host;
}

std::string_view SocketAddress::name() const noexcept {
  if (!hasName()) return {};
  const std::size_t lead = form_.family == AddressFamily::unixPath ? 0 : 1;
  return {unixForm()->sun_path + lead, form_.size - kPathOffset - 1};
}

std::string SocketAddress::toString() const {
  switch (form_.family) {
    case AddressFamily::none:
      return "none";
    case AddressFamily::inet4:
      return host() + ":" + std::to_string(port());
    case AddressFamily::inet6:
      return "[" + host() + "]:" + std::to_string(port());
    case AddressFamily::unixAbstract:
      return "unix:@" + std::string(name());
    case AddressFamily::local:
      return "local:" + std::string(name());
    case AddressFamily::unixPath:
    case AddressFamily::unixUnnamed:
      break;
  }
  return "unix:" + std::string(name());
}

int SocketAddress::domain() const noexcept {
  switch (form_.family) {
    case AddressFamily::none:
    case AddressFamily::local:
      return AF_UNSPEC;
    case AddressFamily::inet4:
      return AF_INET;
    case AddressFamily::inet6:
      return AF_INET6;
    case AddressFamily::unixPath:
    case AddressFamily::unixAbstract:
    case AddressFamily::unixUnnamed:
      break;
  }
  return AF_UNIX;
}

}  // namespace millrace
