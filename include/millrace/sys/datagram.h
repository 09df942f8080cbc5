// SPDX-License-Identifier: Apache-2.0
// What UDP sockets do beyond others: they join multicast groups and move several datagrams as one.
// Thin; threads: any.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/sys/socket_address.h>

#include <array>
#include <cstddef>
#include <cstdint>

struct msghdr;

namespace millrace {

/// The index of the network interface that has this inet address; its port does not matter. Fails
/// with ENODEV if none has.
MILLRACE_API Result<unsigned> interfaceOf(const SocketAddress& address);

// Multicast. Groups are IPv4 or IPv6 like the socket, their port does not matter; `interface` is an
// index, 0 lets the routes decide. Fail with EINVAL for what is no group, ENODEV, EADDRNOTAVAIL,
// ENOBUFS (net.ipv4.igmp_max_memberships). A closed socket leaves all its groups.

/// Receives what anybody sends to the group. Fails with EADDRINUSE if it is a member already.
MILLRACE_API Result<void> joinGroup(int fd, const SocketAddress& group, unsigned interface = 0);
/// Ends joinGroup and every joinSource. Fails with EADDRNOTAVAIL if it is no member.
MILLRACE_API Result<void> leaveGroup(int fd, const SocketAddress& group, unsigned interface = 0);

/// A group, one sender to it, and where.
struct GroupSource {
  SocketAddress group;
  SocketAddress source;
  unsigned interface = 0;
};
/// Receives what this source sends to the group; may be called for several sources. After joinGroup
/// it narrows the membership to the source. Fails with EINVAL while sources are blocked.
MILLRACE_API Result<void> joinSource(int fd, const GroupSource& which);
/// Ends one joinSource. Fails with EADDRNOTAVAIL if there is none.
MILLRACE_API Result<void> leaveSource(int fd, const GroupSource& which);
/// After joinGroup: drops what this source sends. Fails with EINVAL if it is no member.
MILLRACE_API Result<void> blockSource(int fd, const GroupSource& which);
/// Ends blockSource. Fails with EADDRNOTAVAIL if it is not blocked.
MILLRACE_API Result<void> unblockSource(int fd, const GroupSource& which);

/// Room for the control data of one message that a GSO send or a GRO receive needs.
struct SegmentControl {
  alignas(8) std::array<std::byte, 32> bytes{};
};

/// Makes the kernel cut this message into datagrams of `size` bytes each, the last one may be
/// shorter (GSO). Replaces the control data of `message` by `control`, which must live until it is
/// sent. The send fails with -EINVAL if that gives too many (64 on old kernels) or they do not fit
/// the path, -EIO where it cannot be done. REQUIRES: size > 0
MILLRACE_API void setSegmentSize(msghdr& message, SegmentControl& control,
                                 std::uint16_t size) noexcept;

/// Lets datagrams of one sender arrive as one large message (GRO), if they come that way. Fails
/// with ENOPROTOOPT on old kernels.
MILLRACE_API Result<void> enableGro(int fd);
/// Before a receive: makes room for the size of segments. `control` must live until it was read.
MILLRACE_API void expectSegmentSize(msghdr& message, SegmentControl& control) noexcept;
/// After a receive: how long the datagrams in this message are, but for the last one, which may be
/// shorter. 0 if it is one datagram.
MILLRACE_API std::size_t segmentSize(const msghdr& message) noexcept;

}  // namespace millrace
