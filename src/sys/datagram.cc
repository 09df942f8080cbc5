// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>
#include <millrace/sys/datagram.h>
#include <millrace/sys/socket.h>

#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <utility>

namespace millrace {

namespace {

// Not in the headers of every libc.
constexpr int kUdpSegment = 103;  // UDP_SEGMENT
constexpr int kUdpGro = 104;      // UDP_GRO

// The kernel reads an int from GRO and a 16-bit number for GSO.
static_assert(sizeof(SegmentControl) >= CMSG_SPACE(sizeof(int)));
static_assert(alignof(SegmentControl) >= alignof(cmsghdr));

int levelOf(const SocketAddress& group) noexcept {
  return group.domain() == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
}

void copyTo(sockaddr_storage& to, const SocketAddress& address) noexcept {
  std::memcpy(&to, address.raw(), address.rawSize());
}

// The text names the group instead of the number of the option.
Result<void> named(Result<void> done, const char* operation, const std::string& detail) {
  if (done.ok()) return done;
  return Error::fromErrno(done.error().errnoValue(), operation, detail);
}

Result<void> changeGroup(int fd, int option, const char* operation, const SocketAddress& group,
                         unsigned interface) {
  group_req request{};
  request.gr_interface = interface;
  copyTo(request.gr_group, group);
  return named(setOptionBytes(fd, levelOf(group), option, &request, sizeof request), operation,
               group.host() + ", interface " + std::to_string(interface));
}

Result<void> changeSource(int fd, int option, const char* operation, const GroupSource& which) {
  group_source_req request{};
  request.gsr_interface = which.interface;
  copyTo(request.gsr_group, which.group);
  copyTo(request.gsr_source, which.source);
  return named(setOptionBytes(fd, levelOf(which.group), option, &request, sizeof request),
               operation,
               which.group.host() + " from " + which.source.host() + ", interface " +
                   std::to_string(which.interface));
}

bool hasAddress(const ifaddrs& entry, const SocketAddress& address) {
  const int domain = address.domain();
  if (!address.isInet() || entry.ifa_addr == nullptr) return false;
  if (entry.ifa_addr->sa_family != domain) return false;
  sockaddr_in6 raw{};
  const std::size_t size = domain == AF_INET6 ? sizeof raw : sizeof(sockaddr_in);
  std::memcpy(&raw, entry.ifa_addr, size);
  // Link-local addresses have a scope here; whoever asks may not know it.
  if (domain == AF_INET6 && address.scope() == 0) raw.sin6_scope_id = 0;
  const auto found = SocketAddress::fromRaw(&raw, size);
  return found.ok() && found->withPort(address.port()) == address;
}

}  // namespace

Result<unsigned> interfaceOf(const SocketAddress& address) {
  constexpr const char* kOperation = "interfaceOf";
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return Error::fromErrno(errno, kOperation, address.toString());
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, &::freeifaddrs);
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
    if (!hasAddress(*at, address)) continue;
    if (const unsigned index = ::if_nametoindex(at->ifa_name); index != 0) return index;
  }
  return Error::fromErrno(ENODEV, kOperation, address.toString());
}

Result<void> joinGroup(int fd, const SocketAddress& group, unsigned interface) {
  return changeGroup(fd, MCAST_JOIN_GROUP, "joinGroup", group, interface);
}

Result<void> leaveGroup(int fd, const SocketAddress& group, unsigned interface) {
  return changeGroup(fd, MCAST_LEAVE_GROUP, "leaveGroup", group, interface);
}

Result<void> joinSource(int fd, const GroupSource& which) {
  return changeSource(fd, MCAST_JOIN_SOURCE_GROUP, "joinSource", which);
}

Result<void> leaveSource(int fd, const GroupSource& which) {
  return changeSource(fd, MCAST_LEAVE_SOURCE_GROUP, "leaveSource", which);
}

Result<void> blockSource(int fd, const GroupSource& which) {
  return changeSource(fd, MCAST_BLOCK_SOURCE, "blockSource", which);
}

Result<void> unblockSource(int fd, const GroupSource& which) {
  return changeSource(fd, MCAST_UNBLOCK_SOURCE, "unblockSource", which);
}

void setSegmentSize(msghdr& message, SegmentControl& control, std::uint16_t size) noexcept {
  MR_CHECK(size > 0, "setSegmentSize() of segments without bytes");
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(sizeof size);
  cmsghdr* segment = CMSG_FIRSTHDR(&message);
  segment->cmsg_level = IPPROTO_UDP;
  segment->cmsg_type = kUdpSegment;
  segment->cmsg_len = CMSG_LEN(sizeof size);
  std::memcpy(CMSG_DATA(segment), &size, sizeof size);
}

Result<void> enableGro(int fd) { return setOption(fd, IPPROTO_UDP, kUdpGro, 1); }

void expectSegmentSize(msghdr& message, SegmentControl& control) noexcept {
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
}

std::size_t segmentSize(const msghdr& message) noexcept {
  auto& all = const_cast<msghdr&>(message);  // the macros want it so and change nothing
  for (cmsghdr* at = CMSG_FIRSTHDR(&all); at != nullptr; at = CMSG_NXTHDR(&all, at)) {
    if (at->cmsg_level != IPPROTO_UDP || at->cmsg_type != kUdpGro) continue;
    int size = 0;
    if (at->cmsg_len < CMSG_LEN(sizeof size)) return 0;
    std::memcpy(&size, CMSG_DATA(at), sizeof size);
    return size > 0 ? static_cast<std::size_t>(size) : 0;
  }
  return 0;
}

}  // namespace millrace
