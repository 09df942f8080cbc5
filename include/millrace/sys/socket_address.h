// SPDX-License-Identifier: Apache-2.0
// SocketAddress: where a socket is or goes. A value: copied, compared, hashed, printed.
//
// It holds the kernel's own form, so system calls take it as it stands. Nothing here asks a
// resolver: hosts are numbers. Threads: as its owner.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

struct sockaddr;

namespace millrace {

enum class AddressFamily : std::uint8_t {
  none,          ///< no address
  inet4,         ///< IPv4 and port
  inet6,         ///< IPv6, port and scope
  unixPath,      ///< Unix socket with a name in the file system
  unixAbstract,  ///< Unix socket with a name in the kernel only
  unixUnnamed,   ///< Unix socket without a name: the client's end, or a pair
};

class MILLRACE_API SocketAddress {
 public:
  /// No address.
  SocketAddress() noexcept = default;

  /// An IPv4 address, most significant byte first: `inet4({127, 0, 0, 1}, 80)`.
  static SocketAddress inet4(const std::array<std::uint8_t, 4>& ip, std::uint16_t port) noexcept;
  /// An IPv6 address; `scope` is the index of the interface for link-local ones.
  static SocketAddress inet6(const std::array<std::uint8_t, 16>& ip, std::uint16_t port,
                             std::uint32_t scope = 0) noexcept;
  static SocketAddress any4(std::uint16_t port) noexcept { return inet4({}, port); }
  static SocketAddress any6(std::uint16_t port) noexcept { return inet6({}, port); }
  static SocketAddress loopback4(std::uint16_t port) noexcept {
    return inet4({127, 0, 0, 1}, port);
  }
  static SocketAddress loopback6(std::uint16_t port) noexcept;
  /// Fails with EINVAL if empty or with a zero byte in it, ENAMETOOLONG beyond 107 bytes.
  static Result<SocketAddress> unixPath(std::string_view path);
  /// Any bytes, also none. Fails with ENAMETOOLONG beyond 107 bytes.
  static Result<SocketAddress> unixAbstract(std::string_view name);

  /// From a numeric host, such as "10.0.0.1", "::1" or "fe80::1%eth0". Fails with EINVAL.
  static Result<SocketAddress> ofHost(std::string_view host, std::uint16_t port);
  /// From text: "10.0.0.1:80", "[::1]:80", "unix:/run/a.sock", "unix:@name" (abstract). What
  /// `toString` wrote is read back as it was, but for unnamed ones and abstract names with zero
  /// bytes. Fails with EINVAL and says what was expected.
  static Result<SocketAddress> parse(std::string_view text);
  /// From what the kernel filled in. Fails with EAFNOSUPPORT for families that are not ours.
  static Result<SocketAddress> fromRaw(const void* raw, std::size_t size);

  AddressFamily family() const noexcept { return family_; }
  bool isInet() const noexcept;
  bool isUnix() const noexcept;
  /// 127.0.0.0/8, ::1 and every Unix address.
  bool isLoopback() const noexcept;
  /// 0.0.0.0 or ::, whatever the port.
  bool isAny() const noexcept;
  explicit operator bool() const noexcept { return family_ != AddressFamily::none; }

  /// 0 for what has no port.
  std::uint16_t port() const noexcept;
  /// The same address with another port. REQUIRES: isInet()
  SocketAddress withPort(std::uint16_t port) const noexcept;
  /// Interface index of an IPv6 address, else 0.
  std::uint32_t scope() const noexcept;
  /// The host as numbers, without brackets; "" for what is not inet.
  std::string host() const;
  /// The path or the abstract name; "" for what is not Unix. Valid as long as this object.
  std::string_view name() const noexcept;
  /// "10.0.0.1:80", "[fe80::1%2]:80", "unix:/run/a.sock", "unix:@name", "unix:", "none".
  std::string toString() const;

  /// For system calls: a struct sockaddr_in, _in6 or _un of `rawSize` bytes.
  const sockaddr* raw() const noexcept {
    return reinterpret_cast<const sockaddr*>(storage_.data());
  }
  unsigned rawSize() const noexcept { return size_; }
  /// The kernel's number of the family (AF_INET, AF_INET6, AF_UNIX, or AF_UNSPEC).
  int domain() const noexcept;

  friend bool operator==(const SocketAddress& a, const SocketAddress& b) noexcept {
    return a.family_ == b.family_ && a.bytes() == b.bytes();
  }
  std::size_t hash() const noexcept { return std::hash<std::string_view>()(bytes()); }

 private:
  std::string_view bytes() const noexcept {
    return {reinterpret_cast<const char*>(storage_.data()), size_};
  }
  static SocketAddress unixName(AddressFamily family, std::string_view name) noexcept;

  // Room for the largest, sockaddr_un; bytes that are not in use are zero, so equal means equal
  // bytes.
  alignas(8) std::array<std::byte, 112> storage_{};
  std::uint8_t size_ = 0;
  AddressFamily family_ = AddressFamily::none;
};

}  // namespace millrace

template <>
struct std::hash<millrace::SocketAddress> {
  std::size_t operator()(const millrace::SocketAddress& address) const noexcept {
    return address.hash();
  }
};
