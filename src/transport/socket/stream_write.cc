// SPDX-License-Identifier: Apache-2.0
// What streams write by calls of their own. Files are in stream_file.cc, what a ring sends is in stream_ring.cc.
#include "channel/loop_channels.h"
#include "transport/socket/stream_channel.h"

#include <millrace/channel/fd_message.h>
#include <millrace/channel/file_region.h>
#include <millrace/channel/message.h>
#include <millrace/sys/events.h>
#include <millrace/sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace millrace {

namespace {

/// Bytes of one gathering write; the kernel takes no more than 2 GiB.
constexpr std::size_t kMaxWrite = std::size_t{1} << 30;
/// After the kernel had no memory for a write.
constexpr Duration kRetryWrite = std::chrono::milliseconds(10);

}  // namespace

bool StreamChannel::acceptsMessage(const Message& msg) const {
  return msg.is<FileRegion>() || (msg.is<FdMessage>() && isUnixSocket());
}

int StreamChannel::doWrite(OutboundBuffer& out) {
  if (sending_) {
    kernelIsFull();
    return 0;
  }
  // What writeWhole() got comes first.
  if (const std::ptrdiff_t wrote = std::exchange(unexpected_, 0); wrote > 0) {
    noteWritten(wrote);
    out.removeBytes(static_cast<std::size_t>(wrote));
  } else if (wrote < 0) {
    return writeFailed(static_cast<int>(-wrote));
  }
  if (way_ == Way::ring && out.hasFlushed() && isOpen()) {
    if (out.flushed().is<ByteBuf>()) return writeByRing(out);
    leaveRing();  // files and descriptors go by calls of their own
  }
  return writeAll(out);
}

int StreamChannel::writeAll(OutboundBuffer& out) {
  for (int turns = settings().writeSpinCount; out.hasFlushed() && turns > 0; --turns) {
    const std::ptrdiff_t wrote = writeOnce(out);
    if (wrote < 0) return writeFailed(static_cast<int>(-wrote));
    if (!isOpen()) return 0;                                            // a listener closed it
    if (way_ == Way::ring) return out.hasFlushed() ? doWrite(out) : 0;  // or made it change its way
  }
  return 0;
}

std::ptrdiff_t StreamChannel::writeOnce(OutboundBuffer& out) {
  ByteBuf* first = out.flushed().as<ByteBuf>();
  if (first == nullptr) return out.flushed().is<FdMessage>() ? writeFds(out) : writeFile(out);
  std::ptrdiff_t wrote = 0;
  if (out.flushedCount() == 1) {
    const std::span<const std::byte> data = first->data();
    if (!data.empty()) {
      wrote = sendSocket(socket_.fd(), data.data(), data.size(), socket_.flags());
    }
  } else {
    iovec* parts = local().parts();
    std::size_t bytes = 0;
    const std::size_t count = out.gather(parts, LoopChannels::kMaxParts, kMaxWrite, bytes);
    if (count != 0) {
      wrote = sendParts(socket_.fd(), parts, static_cast<int>(count), socket_.flags());
    }
  }
  if (wrote < 0) return wrote;
  noteWritten(wrote);
  out.removeBytes(static_cast<std::size_t>(wrote));
  return wrote;
}

int StreamChannel::writeFailed(int error) {
  if (error == EAGAIN) {
    waitUntilWritable();
    return 0;
  }
  if (isForeign(error)) socket_.disown();
  if (error != ENOBUFS && error != ENOMEM) return error;
  writeLater();
  return 0;
}

void StreamChannel::waitUntilWritable() {
  kernelIsFull();
  Result<void> wanted = socket_.isRegistered() ? socket_.want(kWritable) : enterReadiness();
  if (!wanted) failWith(wanted.error());
}

// No event tells when the kernel has memory again.
void StreamChannel::writeLater() {
  kernelIsFull();
  local().after(kRetryWrite, [self = ChannelPtr(this)] {
    auto& channel = static_cast<StreamChannel&>(*self);
    const Scope scope(channel);
    channel.flushAgain();
  });
}

}  // namespace millrace
