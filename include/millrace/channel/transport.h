// SPDX-License-Identifier: Apache-2.0
// Transport: who makes channels for an engine. The seam between bootstraps and the channel classes.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/ref.h>
#include <millrace/base/result.h>
#include <millrace/sys/fd.h>
#include <millrace/sys/socket_address.h>

#include <cstdint>
#include <memory>

namespace millrace {

class Channel;
class EventLoop;
class LocalLink;
struct IoType;

using ChannelPtr = Ref<Channel>;

/// What sort of socket. The address decides: see kindFor().
enum class ChannelKind : std::uint8_t { tcp4, tcp6, unixStream, udp4, udp6, unixDatagram, local };

enum class Datagrams : std::uint8_t { no, yes };

/// The kind that addresses like this one need. Fails with EAFNOSUPPORT for no address.
MILLRACE_API Result<ChannelKind> kindFor(const SocketAddress& address, Datagrams datagrams);

/// A connection that a listening channel took, as its handlers see it: the message of channelRead().
/// Whoever takes the descriptor owns the connection; dropped, it is closed.
struct AcceptedSocket {
  Fd fd;
  SocketAddress peer;
  std::shared_ptr<LocalLink> inProcess{};  ///< instead of a descriptor; shared with the peer
};

/// Stateless; lives for ever. Every call: any thread. The channels are not registered yet.
class MILLRACE_API Transport {
 public:
  virtual Result<ChannelPtr> newServer(EventLoop& loop, ChannelKind kind) const = 0;
  virtual Result<ChannelPtr> newClient(EventLoop& loop, ChannelKind kind) const = 0;
  /// A connected socket, accepted or foreign. Closes it on failure.
  virtual Result<ChannelPtr> adopt(EventLoop& loop, AcceptedSocket&& socket) const = 0;
  Result<ChannelPtr> adopt(EventLoop& loop, Fd fd, const SocketAddress& peer) const;

 protected:
  ~Transport() = default;
};

}  // namespace millrace
