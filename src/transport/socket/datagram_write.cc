// SPDX-License-Identifier: Apache-2.0
// How datagrams go: as many with one call as were flushed, and several as one where the kernel cuts
// them apart again (GSO).
#include "channel/channel_fast.h"
#include "channel/loop_channels.h"
#include "transport/socket/datagram_channel.h"

#include <millrace/channel/datagram.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/datagram.h>
#include <millrace/sys/events.h>
#include <millrace/sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <sys/socket.h>
#include <utility>

namespace millrace {

namespace {

constexpr std::size_t kBatch = 64;
/// UDP_MAX_SEGMENTS of kernels before 6.9, and what fits a datagram of either family.
constexpr std::size_t kMaxSegments = 64;
constexpr std::size_t kMaxJoined = 65'000;
/// No event tells when another socket has room for one more.
constexpr Duration kRetryDatagram = std::chrono::milliseconds(1);

/// The kernel, or the path, cannot take several as one.
bool meansNoSegments(int error) noexcept {
  return error == EINVAL || error == EIO || error == EMSGSIZE || error == EOPNOTSUPP;
}

}  // namespace

/// A message that waits to be sent. `bytes` is null if it cannot be: cancelled, or to nobody.
struct DatagramChannel::Outgoing {
  const ByteBuf* bytes = nullptr;
  const SocketAddress* to = nullptr;  // null: the peer of the channel

  bool isSamePeer(const Outgoing& other) const noexcept {
    if (to == nullptr || other.to == nullptr) return to == other.to;
    return *to == *other.to;
  }
};

DatagramChannel::Outgoing DatagramChannel::outgoing(OutboundBuffer& out,
                                                    std::size_t i) const noexcept {
  if (out.isCancelled(i)) return {};
  const Message& msg = out.flushed(i);
  Outgoing found;
  if (const auto* datagram = msg.as<Datagram>()) {
    found.bytes = &datagram->bytes;
    if (datagram->peer) found.to = &datagram->peer;
  } else {
    found.bytes = msg.as<ByteBuf>();
  }
  const bool toNobody = found.to == nullptr && !isConnected_.load(std::memory_order_relaxed);
  return toNobody ? Outgoing() : found;
}

bool DatagramChannel::acceptsMessage(const Message& msg) const { return msg.is<Datagram>(); }

int DatagramChannel::doWrite(OutboundBuffer& out) {
  Progress progress = Progress::sent;
  for (int turns = settings().writeSpinCount; turns > 0 && progress == Progress::sent; --turns) {
    failUnsendable(out);
    if (!isOpen()) return 0;  // a listener closed it
    if (!out.hasFlushed()) break;
    progress = joins_ ? writeSegments(out) : writeBatch(out);
    if (!isOpen()) return 0;
  }
  local().count(LoopChannels::failedWrites, out.takeFailures());
  return progress == Progress::failed ? EBADF : 0;
}

// What stands first and cannot be sent.
void DatagramChannel::failUnsendable(OutboundBuffer& out) {
  while (isOpen() && out.hasFlushed() && outgoing(out, 0).bytes == nullptr) {
    if (out.isCancelled()) {
      out.removeFront(Error(Errc::cancelled, "write", describe()));
      continue;
    }
    out.removeFront(Error::fromErrno(
        EDESTADDRREQ, "write", describe() + " (write a Datagram with a peer, or connect first)"));
  }
}

DatagramChannel::Progress DatagramChannel::writeBatch(OutboundBuffer& out) {
  std::array<mmsghdr, kBatch> headers;
  std::array<std::uint16_t, kBatch> counts;
  const std::size_t count = prepare(out, headers.data(), counts.data(), nullptr);
  return sendPrepared(out, headers.data(), counts.data(), count);
}

DatagramChannel::Progress DatagramChannel::writeSegments(OutboundBuffer& out) {
  std::array<mmsghdr, kBatch> headers;
  std::array<std::uint16_t, kBatch> counts;
  std::array<SegmentControl, kBatch> controls;
  const std::size_t count = prepare(out, headers.data(), counts.data(), controls.data());
  return sendPrepared(out, headers.data(), counts.data(), count);
}

// Fills headers up to the first message that cannot be sent; `counts` says how many messages are in
// each. With `controls` several messages may be one. REQUIRES: the first one can be sent
std::size_t DatagramChannel::prepare(OutboundBuffer& out, mmsghdr* headers, std::uint16_t* counts,
                                     SegmentControl* controls) const {
  iovec* parts = local().parts();
  std::size_t free = LoopChannels::kMaxParts;
  std::size_t used = 0;
  for (std::size_t i = 0; i < out.flushedCount() && used < kBatch && free != 0; ++used) {
    const Outgoing first = outgoing(out, i);
    if (first.bytes == nullptr) break;
    const std::size_t joined = controls == nullptr ? 1 : segmentsFrom(out, i, free);
    msghdr& header = (headers[used] = mmsghdr{}).msg_hdr;
    if (first.to != nullptr) {
      header.msg_name = const_cast<sockaddr*>(first.to->raw());  // NOLINT: only read
      header.msg_namelen = first.to->rawSize();
    }
    header.msg_iov = parts;
    header.msg_iovlen = joined;
    for (std::size_t k = 0; k < joined; ++k) {
      const std::span<const std::byte> data = outgoing(out, i + k).bytes->data();
      *parts++ = {const_cast<std::byte*>(data.data()), data.size()};  // NOLINT: only read
    }
    if (joined > 1) {
      setSegmentSize(header, controls[used],
                     static_cast<std::uint16_t>(first.bytes->readableBytes()));
    }
    counts[used] = static_cast<std::uint16_t>(joined);
    free -= joined;
    i += joined;
  }
  return used;
}

// How many messages from `first` on may go as one: equally long, the last may be shorter.
std::size_t DatagramChannel::segmentsFrom(OutboundBuffer& out, std::size_t first,
                                          std::size_t most) const noexcept {
  const Outgoing head = outgoing(out, first);
  const std::size_t size = head.bytes->readableBytes();
  if (size == 0 || size > segment_) return 1;
  std::size_t sum = size;
  std::size_t count = 1;
  for (; count < std::min(most, kMaxSegments) && first + count < out.flushedCount(); ++count) {
    const Outgoing next = outgoing(out, first + count);
    if (next.bytes == nullptr || !next.isSamePeer(head)) break;
    const std::size_t more = next.bytes->readableBytes();
    if (more == 0 || more > size || sum + more > kMaxJoined) break;
    sum += more;
    if (more < size) return count + 1;
  }
  return count;
}

DatagramChannel::Progress DatagramChannel::sendPrepared(OutboundBuffer& out, mmsghdr* headers,
                                                        const std::uint16_t* counts,
                                                        std::size_t count) {
  const int result = sendMessages(socket_.fd(), headers, static_cast<unsigned>(count));
  if (result < 0) return writeFailed(out, -result, counts[0] > 1);
  reported_ = false;
  std::size_t messages = 0;
  std::uint64_t bytes = 0;
  for (int i = 0; i < result; ++i) {
    messages += counts[i];
    bytes += headers[i].msg_len;
  }
  local().count(LoopChannels::bytesWritten, bytes);
  for (; messages != 0 && isOpen(); --messages) out.removeFront();
  return Progress::sent;
}

// Only one datagram fails, the first one.
DatagramChannel::Progress DatagramChannel::writeFailed(OutboundBuffer& out, int error,
                                                       bool wasSegmented) {
  const Outgoing first = outgoing(out, 0);
  if (error == EAGAIN) {
    waitUntilWritable(first.to != nullptr);
    return Progress::full;
  }
  if (error == EBADF || error == ENOTSOCK) return Progress::failed;
  if (wasSegmented && meansNoSegments(error)) {
    joins_ = false;  // one by one from now on
    return Progress::sent;
  }
  const SocketAddress to = first.to != nullptr ? *first.to : remoteAddress();
  const Error why = Error::fromErrno(error, "write", to.toString());
  // The answer to a datagram that went before: this one was not even tried.
  if (error == ECONNREFUSED && !isUnix_ && !reported_) {
    reported_ = true;
    pipeline().fireExceptionCaught(why);
    return Progress::sent;
  }
  reported_ = false;
  out.removeFront(why);
  return Progress::sent;
}

// A Unix socket without a peer is always writable, whether the receiver has room or not.
void DatagramChannel::waitUntilWritable(bool toOthers) {
  kernelIsFull();
  if (!isUnix_ || !toOthers) {
    if (Result<void> wanted = socket_.want(kWritable); !wanted) failWith(wanted.error());
    return;
  }
  local().after(kRetryDatagram, [self = ChannelPtr(this)] {
    auto& channel = static_cast<DatagramChannel&>(*self);
    const Scope scope(channel);
    channel.flushAgain();
  });
}

}  // namespace millrace
