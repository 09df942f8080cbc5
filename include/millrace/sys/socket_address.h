// SPDX-License-Identifier: Apache-2.0
// SocketAddress: where a socket is or goes. A value: copied, compared, hashed, printed.
//
// It holds the kernel's own form, so system calls take it as it stands. Inet addresses live inside
// of it and are cheap to copy; the name of a Unix address is on the heap, and every copy has its
// own. Nothing here asks a resolver: hosts are numbers. Threads: as its owner.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

struct sockaddr;
struct sockaddr_un;

namespace millrace {

enum class AddressFamily : std::uint8_t {
  none,          ///< no address
  inet4,         ///< IPv4 and port
  inet6,         ///< IPv6, port and scope
  unixPath,      ///< Unix socket with a name in the file system
  unixAbstract,  ///< Unix socket with a name in the kernel only
  unixUnnamed,   ///< Unix socket without a name: the client's end, or a pair
  local,         ///< within this process; no kernel knows it
};

class MILLRACE_API SocketAddress {
 public:
  /// No address.
  SocketAddress() noexcept = default;
  SocketAddress(const SocketAddress& other) noexcept : form_(other.form_) {
    if (hasName()) copyName();
  }
  /// A Unix name leaves `other`, which is no address then; other addresses stay what they were.
  SocketAddress(SocketAddress&& other) noexcept : form_(other.form_) {
    if (hasName()) other.form_ = Form();
  }
  SocketAddress& operator=(const SocketAddress& other) noexcept {
    if (this == &other) return *this;
    if (hasName()) dropName();
    form_ = other.form_;
    if (hasName()) copyName();
    return *this;
  }
  SocketAddress& operator=(SocketAddress&& other) noexcept {
    if (this == &other) return *this;
    if (hasName()) dropName();
    form_ = other.form_;
    if (hasName()) other.form_ = Form();
    return *this;
  }
  ~SocketAddress() {
    if (hasName()) dropName();
  }

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
  /// A name within this process, of which the first 107 bytes count. Empty: one that is free, when it
  /// is bound.
  static SocketAddress local(std::string_view name) noexcept;

  /// From a numeric host, such as "10.0.0.1", "::1" or "fe80::1%eth0". Fails with EINVAL.
  static Result<SocketAddress> ofHost(std::string_view host, std::uint16_t port);
  /// From text: "10.0.0.1:80", "[::1]:80", "unix:/run/a.sock", "unix:@name" (abstract), "local:name". What
  /// `toString` wrote is read back as it was, but for unnamed ones and abstract names with zero
  /// bytes. Fails with EINVAL and says what was expected.
  static Result<SocketAddress> parse(std::string_view text);
  /// From what the kernel filled in. Fails with EAFNOSUPPORT for families that are not ours.
  static Result<SocketAddress> fromRaw(const void* raw, std::size_t size);

  AddressFamily family() const noexcept { return form_.family; }
  bool isInet() const noexcept;
  bool isUnix() const noexcept;
  /// 127.0.0.0/8, ::1, every Unix address, and those within this process.
  bool isLoopback() const noexcept;
  /// 0.0.0.0 or ::, whatever the port.
  bool isAny() const noexcept;
  explicit operator bool() const noexcept { return form_.family != AddressFamily::none; }

  /// 0 for what has no port.
  std::uint16_t port() const noexcept;
  /// The same address with another port. REQUIRES: isInet()
  SocketAddress withPort(std::uint16_t port) const noexcept;
  /// Interface index of an IPv6 address, else 0.
  std::uint32_t scope() const noexcept;
  /// The host as numbers, without brackets; "" for what is not inet.
  std::string host() const;
  /// The path or the abstract name; "" for what is not Unix. Valid as long as this object is neither
  /// changed nor moved from.
  std::string_view name() const noexcept;
  /// "10.0.0.1:80", "[fe80::1%2]:80", "unix:/run/a.sock", "unix:@name", "unix:", "local:name",
  /// "none".
  std::string toString() const;

  /// For system calls: a struct sockaddr_in, _in6 or _un of `rawSize` bytes. Valid as long as this
  /// object is neither changed nor moved.
  const sockaddr* raw() const noexcept {
    return hasName() ? reinterpret_cast<const sockaddr*>(unixForm())
                     : reinterpret_cast<const sockaddr*>(form_.bytes.data());
  }
  unsigned rawSize() const noexcept { return form_.size; }
  /// The kernel's number of the family (AF_INET, AF_INET6, AF_UNIX, or AF_UNSPEC).
  int domain() const noexcept;

  friend bool operator==(const SocketAddress& a, const SocketAddress& b) noexcept {
    return a.form_.family == b.form_.family && a.bytes() == b.bytes();
  }
  std::size_t hash() const noexcept { return std::hash<std::string_view>()(bytes()); }

 private:
  // Trivial, so that it is copied as a whole. The bytes are a sockaddr_in or _in6, the family alone
  // (unnamed), or the address of a sockaddr_un; it stands first, for LeakSanitizer finds pointers
  // at multiples of their size only. What is not in use is zero, so equal means equal bytes.
  struct Form {
    alignas(8) std::array<std::byte, 28> bytes{};
    std::uint8_t size = 0;  // of the kernel's form, wherever it is
    AddressFamily family = AddressFamily::none;
  };

  bool hasName() const noexcept {
    return form_.family == AddressFamily::unixPath || form_.family == AddressFamily::unixAbstract ||
           form_.family == AddressFamily::local;
  }
  // REQUIRES: hasName()
  const sockaddr_un* unixForm() const noexcept {
    const sockaddr_un* form = nullptr;
    std::memcpy(&form, form_.bytes.data(), sizeof(void*));
    return form;
  }
  void copyName() noexcept;
  void dropName() noexcept;
  std::string_view bytes() const noexcept {
    return {reinterpret_cast<const char*>(raw()), rawSize()};
  }
  static SocketAddress unixName(AddressFamily family, std::string_view name) noexcept;

  Form form_;
};

static_assert(sizeof(SocketAddress) == 32);

}  // namespace millrace

template <>
struct std::hash<millrace::SocketAddress> {
  std::size_t operator()(const millrace::SocketAddress& address) const noexcept {
    return address.hash();
  }
};
