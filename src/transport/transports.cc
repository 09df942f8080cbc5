// SPDX-License-Identifier: Apache-2.0
#include "transport/local/local_transport.h"
#include "transport/socket/socket_transport.h"

#include <millrace/loop/io.h>
#include <millrace/transport/transports.h>

#include <cerrno>

namespace millrace {

Result<ChannelKind> kindFor(const SocketAddress& address, Datagrams datagrams) {
  const bool packets = datagrams == Datagrams::yes;
  switch (address.family()) {
    case AddressFamily::inet4:
      return packets ? ChannelKind::udp4 : ChannelKind::tcp4;
    case AddressFamily::inet6:
      return packets ? ChannelKind::udp6 : ChannelKind::tcp6;
    case AddressFamily::unixPath:
    case AddressFamily::unixAbstract:
    case AddressFamily::unixUnnamed:
      return packets ? ChannelKind::unixDatagram : ChannelKind::unixStream;
    case AddressFamily::local:
      if (!packets) return ChannelKind::local;
      break;
    case AddressFamily::none:
      break;
  }
  return Error::fromErrno(EAFNOSUPPORT, "channel", "for the address " + address.toString());
}

const Transport* transportFor(const IoType& type, ChannelKind kind) noexcept {
  if (kind == ChannelKind::local) return &localTransport();
  const bool sockets = &type == &io::epollType || &type == &io::uringType ||
                       &type == &io::pollType || &type == &io::blockingType;
  return sockets ? &socketTransport() : nullptr;
}

}  // namespace millrace
