// SPDX-License-Identifier: Apache-2.0
#include "transport/socket/socket_transport.h"

#include "transport/socket/datagram_channel.h"
#include "transport/socket/server_channel.h"
#include "transport/socket/stream_channel.h"

#include <millrace/channel/channel.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/socket.h>

#include <cerrno>
#include <sys/socket.h>
#include <utility>

namespace millrace {

namespace {

SocketAddress exampleOf(ChannelKind kind) {
  switch (kind) {
    case ChannelKind::tcp4:
    case ChannelKind::udp4:
      return SocketAddress::any4(0);
    case ChannelKind::tcp6:
    case ChannelKind::udp6:
      return SocketAddress::any6(0);
    default:
      return *SocketAddress::unixAbstract("");
  }
}

bool isUnix(ChannelKind kind) noexcept {
  return kind == ChannelKind::unixStream || kind == ChannelKind::unixDatagram;
}

bool isDatagram(ChannelKind kind) noexcept {
  return kind == ChannelKind::udp4 || kind == ChannelKind::udp6 ||
         kind == ChannelKind::unixDatagram;
}

class SocketTransport final : public Transport {
 public:
  using Transport::adopt;
  Result<ChannelPtr> newServer(EventLoop& loop, ChannelKind kind) const override {
    Result<Fd> fd = openSocket(exampleOf(kind), SocketType::stream);
    if (!fd) return fd.error();
    // A server that is started again finds its port still waiting for stray packets.
    if (!isUnix(kind)) {
      if (Result<void> set = setOption(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1); !set) {
        return set.error();
      }
    }
    return ChannelPtr(new ServerChannel(loop, std::move(*fd), isUnix(kind)));
  }

  Result<ChannelPtr> newClient(EventLoop& loop, ChannelKind kind) const override {
    const SocketType type = isDatagram(kind) ? SocketType::datagram : SocketType::stream;
    Result<Fd> fd = openSocket(exampleOf(kind), type);
    if (!fd) return fd.error();
    if (isDatagram(kind)) {
      return ChannelPtr(new DatagramChannel(loop, std::move(*fd), isUnix(kind)));
    }
    return ChannelPtr(new StreamChannel(loop, std::move(*fd), isUnix(kind),
                                        StreamChannel::Stage::fresh, SocketAddress()));
  }

  Result<ChannelPtr> adopt(EventLoop& loop, AcceptedSocket&& socket) const override {
    return ChannelPtr(new StreamChannel(loop, std::move(socket.fd), !socket.peer.isInet(),
                                        StreamChannel::Stage::connected, socket.peer));
  }
};

}  // namespace

const Transport& socketTransport() noexcept {
  static const SocketTransport sockets;
  return sockets;
}

}  // namespace millrace
