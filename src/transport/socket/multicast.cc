// SPDX-License-Identifier: Apache-2.0
#include "transport/socket/on_descriptor.h"

#include <millrace/sys/socket.h>
#include <millrace/transport/multicast.h>

#include <cerrno>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>

namespace millrace {

namespace {

Result<void> leaveBy(int fd, unsigned interface) {
  const Result<int> domain = getOption(fd, SOL_SOCKET, SO_DOMAIN);
  if (!domain) return domain.error();
  const auto index = static_cast<int>(interface);
  const ip_mreqn by{{}, {}, index};
  Result<void> set = *domain == AF_INET6
                         ? setOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, index)
                         : setOptionBytes(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
  if (set) return set;
  return Error::fromErrno(set.error().errnoValue(), "sendGroupsBy",
                          "interface " + std::to_string(interface));
}

}  // namespace

Future<void> joinGroup(Channel& channel, const SocketAddress& group, unsigned interface) {
  return onDescriptor(channel, "joinGroup",
                      [group, interface](int fd) { return joinGroup(fd, group, interface); });
}

Future<void> leaveGroup(Channel& channel, const SocketAddress& group, unsigned interface) {
  return onDescriptor(channel, "leaveGroup",
                      [group, interface](int fd) { return leaveGroup(fd, group, interface); });
}

Future<void> joinSource(Channel& channel, const GroupSource& which) {
  return onDescriptor(channel, "joinSource", [which](int fd) { return joinSource(fd, which); });
}

Future<void> leaveSource(Channel& channel, const GroupSource& which) {
  return onDescriptor(channel, "leaveSource", [which](int fd) { return leaveSource(fd, which); });
}

Future<void> blockSource(Channel& channel, const GroupSource& which) {
  return onDescriptor(channel, "blockSource", [which](int fd) { return blockSource(fd, which); });
}

Future<void> unblockSource(Channel& channel, const GroupSource& which) {
  return onDescriptor(channel, "unblockSource",
                      [which](int fd) { return unblockSource(fd, which); });
}

Future<void> sendGroupsBy(Channel& channel, unsigned interface) {
  return onDescriptor(channel, "sendGroupsBy",
                      [interface](int fd) { return leaveBy(fd, interface); });
}

}  // namespace millrace
