// SPDX-License-Identifier: Apache-2.0
// What Unix stream channels do beyond others: they know who is at the other end, and carry open
// descriptors (FdMessage, channel/fd_message.h).
//
//   channel.setOption(options::receiveDescriptors, 1);      // the receiver's; off by default
//   channel.send(FdMessage::of(ByteBuf::of("log file"), std::move(fd)));      // the sender's
//
// Descriptors that nobody takes are closed: with the message that nobody took, by the kernel where
// options::receiveDescriptors is off, and where more come than it allows (FdMessage::truncated).
#pragma once

#include <millrace/base/export.h>
#include <millrace/concurrent/future.h>
#include <millrace/sys/unix_socket.h>

namespace millrace {

class Channel;

/// The process at the other end, its user and group, as they were when it connected or listened;
/// the kernel vouches for it. Any thread; on the loop it is done at once. Fails with ENOTCONN for
/// channels that have no such peer, Errc::closed, and Errc::notSupported for those that are no
/// sockets.
MILLRACE_API Future<PeerCredentials> peerCredentials(Channel& channel);

}  // namespace millrace
