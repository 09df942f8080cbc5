// SPDX-License-Identifier: Apache-2.0
// Multicast: datagram channels that receive what is sent to a group of addresses.
//
//   joinGroup(*channel, SocketAddress::inet4({239, 1, 2, 3}, 0)).sync();
//
// Groups are of the channel's family, their port does not matter: bind to the port, on any address.
// `interface` is an index (interfaceOf() finds one by its address); 0 lets the routes decide. A
// closed channel leaves all its groups. How far what it sends goes is options::ipMulticastTtl,
// ipMulticastLoop and their IPv6 kin.
//
// Threads: any. Failure: EINVAL for what is no group, ENODEV for no such interface, EADDRINUSE and
// EADDRNOTAVAIL for members already and not yet, Errc::closed, and Errc::notSupported for channels
// that are no kernel's sockets.
#pragma once

#include <millrace/base/export.h>
#include <millrace/concurrent/future.h>
#include <millrace/sys/datagram.h>
#include <millrace/sys/socket_address.h>

namespace millrace {

class Channel;

/// Receives what anybody sends to the group.
MILLRACE_API Future<void> joinGroup(Channel& channel, const SocketAddress& group,
                                    unsigned interface = 0);
/// Ends joinGroup() and every joinSource().
MILLRACE_API Future<void> leaveGroup(Channel& channel, const SocketAddress& group,
                                     unsigned interface = 0);
/// Receives what this source sends to the group; may be called for several sources.
MILLRACE_API Future<void> joinSource(Channel& channel, const GroupSource& which);
/// Ends one joinSource().
MILLRACE_API Future<void> leaveSource(Channel& channel, const GroupSource& which);
/// After joinGroup(): drops what this source sends, until unblockSource().
MILLRACE_API Future<void> blockSource(Channel& channel, const GroupSource& which);
MILLRACE_API Future<void> unblockSource(Channel& channel, const GroupSource& which);
/// Where datagrams to groups leave; 0: as the routes say, the default.
MILLRACE_API Future<void> sendGroupsBy(Channel& channel, unsigned interface);

}  // namespace millrace
