// SPDX-License-Identifier: Apache-2.0
// Datagram: the message of channels that carry packets instead of a stream.
//
//   void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }   // echo
//   channel->send(Datagram{ByteBuf::of("ping"), SocketAddress::loopback4(7)});
//
// Each one is read whole and written whole. One without bytes is a datagram like any other. Longer ones
// than options::datagramSize (2048 bytes unless set) are dropped when they come, see DatagramTruncated.
#pragma once

#include <millrace/buffer/byte_buf.h>
#include <millrace/channel/message.h>
#include <millrace/sys/socket_address.h>

#include <cstddef>

namespace millrace {

/// A value. An answer goes to whom the question came from, so what was read may be written back.
struct Datagram {
  ByteBuf bytes;
  /// Who sent it when it was read, who gets it when it is written. No address on a connected
  /// channel: there the peer is Channel::remoteAddress(), and a plain ByteBuf may be written, too.
  SocketAddress peer;
};

template <>
inline constexpr bool isRelocatable<Datagram> = true;
static_assert(sizeof(Datagram) <= Message::kInPlace, "no allocation per datagram");

/// User event: a datagram did not fit options::datagramSize and was dropped, for half a datagram is
/// none. Also counted in ChannelMetrics. It is no exceptionCaught(), which handlers answer by
/// closing: any stranger can send one.
struct DatagramTruncated {
  std::size_t size = 0;  ///< how long it was
  std::size_t room = 0;  ///< how much there was room for
  SocketAddress peer;
};

}  // namespace millrace
