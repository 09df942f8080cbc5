// SPDX-License-Identifier: Apache-2.0
// FdMessage: bytes with open descriptors, for Unix stream channels.
//
//   channel->send(FdMessage::of(ByteBuf::of("take it"), std::move(fd)));
#pragma once

#include <millrace/buffer/byte_buf.h>
#include <millrace/channel/message.h>
#include <millrace/sys/fd.h>

#include <utility>
#include <vector>

namespace millrace {

/// A value that owns its descriptors: whoever drops it closes them.
///
/// Written: the peer gets duplicates with the first of the bytes, ours are closed when those are
/// sent. At least one byte and at most 253 descriptors (kMaxFdsPerMessage), else the write fails
/// with EINVAL. Read: only where options::receiveDescriptors is set; what comes without descriptors
/// is a ByteBuf.
struct FdMessage {
  ByteBuf bytes;
  std::vector<Fd> fds;
  /// Read: more were sent than may come, or than this process may open. Those are closed already.
  bool truncated = false;

  static FdMessage of(ByteBuf bytes, Fd fd) {
    FdMessage made;
    made.bytes = std::move(bytes);
    made.fds.push_back(std::move(fd));
    return made;
  }
};

static_assert(sizeof(FdMessage) <= Message::kInPlace, "no allocation for the message itself");

}  // namespace millrace
