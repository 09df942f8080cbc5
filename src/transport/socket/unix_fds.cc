// SPDX-License-Identifier: Apache-2.0
// Descriptors over Unix streams, and who is at the other end.
#include "transport/socket/unix_fds.h"

#include "channel/channel_fast.h"
#include "channel/loop_channels.h"
#include "transport/socket/on_descriptor.h"
#include "transport/socket/stream_channel.h"

#include <millrace/channel/fd_message.h>
#include <millrace/sys/events.h>
#include <millrace/sys/socket.h>
#include <millrace/sys/unix_socket.h>
#include <millrace/transport/unix_channel.h>

#include <array>
#include <cerrno>
#include <iterator>
#include <span>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

namespace millrace {

namespace {

using FdRoom = std::array<Fd, kMaxFdsPerMessage>;

Message received(ByteBuf&& bytes, FdRoom& room, const FdsReceived& got) {
  if (got.fds == 0 && !got.truncated) return Message(std::move(bytes));
  FdMessage made;
  made.bytes = std::move(bytes);
  made.fds.assign(std::move_iterator(room.begin()),
                  std::move_iterator(room.begin() + static_cast<std::ptrdiff_t>(got.fds)));
  made.truncated = got.truncated;
  return Message(std::move(made));
}

}  // namespace

Future<PeerCredentials> peerCredentials(Channel& channel) {
  return onDescriptor(channel, "peerCredentials", [](int fd) { return peerCredentials(fd); });
}

void FdReceiver::ready(std::uint32_t events) noexcept { channel_.readyWithFds(events); }
void FdReceiver::lost(const Error& why) noexcept { channel_.lost(why); }

bool StreamChannel::isUnixSocket() const {
  const Result<int> domain = getOption(socket_.fd(), SOL_SOCKET, SO_DOMAIN);
  return domain && *domain == AF_UNIX;
}

// --- receiving ---

Result<void> StreamChannel::receiveDescriptors(int most) {
  if (most < 0 || most > static_cast<int>(kMaxFdsPerMessage)) {
    return Error::fromErrno(EINVAL, "setOption receiveDescriptors",
                            std::to_string(most) + " (it must be 0 to 253)");
  }
  if (!isUnixSocket()) {
    return Error(Errc::notSupported, "setOption receiveDescriptors", "on " + describe());
  }
  const bool isNew = fdReceiver_ == nullptr;
  if (isNew) fdReceiver_ = std::make_unique<FdReceiver>(*this);
  fdReceiver_->most = static_cast<std::size_t>(most);
  if (!isNew || !socket_.isRegistered()) return {};
  // The engine is to ask the receiver from now on.
  socket_.remove();
  if (Result<void> entered = enter(); !entered) return entered;
  if (hasFlushed()) {
    if (Result<void> wanted = socket_.want(kWritable); !wanted) return wanted;
  }
  if (mayReadOn()) doBeginRead();
  return {};
}

void StreamChannel::readyWithFds(std::uint32_t events) noexcept {
  const Scope scope(*this);
  readEvents(events);
}

// A read ends behind the bytes that descriptors came with: only an empty one tells that nothing is
// left.
void StreamChannel::readFdsBurst() {
  FdRoom room;
  std::size_t reads = 0;
  std::size_t total = 0;
  FdsReceived got;
  do {
    ByteBuf bytes = pool().allocate(predictor_.guess());
    iovec part{bytes.writable().data(), predictor_.guess()};
    got = recvWithFds(socket_.fd(), &part, 1, std::span(room).first(fdReceiver_->most));
    if (got.bytes <= 0) {
      readable_ = false;
      break;
    }
    const auto count = static_cast<std::size_t>(got.bytes);
    bytes.advance(count);
    ++reads;
    total += count;
    if (count == predictor_.guess()) predictor_.filled();
    passRead(received(std::move(bytes), room, got));
  } while (mayContinueBurst() && mayReadMore(reads, total));
  predictor_.burstEnded(total, predictor_.guess());
  local().count(LoopChannels::bytesRead, total);
  endBurst(reads != 0);
  if (got.bytes <= 0) inputFailed(got.bytes);
  if (readable_ && mayReadOn()) socket_.again();
}

// --- sending ---

// Nothing of it has gone: the stream is whole without it.
std::ptrdiff_t StreamChannel::refuseFds(OutboundBuffer& out, const Error& why) {
  out.removeFront(why);
  if (isOpen()) local().count(LoopChannels::failedWrites, out.takeFailures());
  return 0;
}

// They go with the first bytes; what is left of the message then is bytes.
std::ptrdiff_t StreamChannel::writeFds(OutboundBuffer& out) {
  FdMessage& msg = *out.flushed().as<FdMessage>();
  if (msg.bytes.readableBytes() == 0 || msg.fds.size() > kMaxFdsPerMessage) {
    return refuseFds(
        out, Error::fromErrno(
                 EINVAL, "write",
                 describe() + " (descriptors need a byte to go with, and are at most 253)"));
  }
  std::array<int, kMaxFdsPerMessage> numbers;
  for (std::size_t i = 0; i < msg.fds.size(); ++i) numbers[i] = msg.fds[i].get();
  const std::span<const std::byte> data = msg.bytes.data();
  const iovec part{const_cast<std::byte*>(data.data()), data.size()};  // NOLINT: only read
  const std::ptrdiff_t sent =
      sendWithFds(socket_.fd(), &part, 1, std::span(numbers).first(msg.fds.size()));
  if (sent == -ETOOMANYREFS) return refuseFds(out, ioError(ETOOMANYREFS, "write"));
  if (sent < 0) return sent;
  local().count(LoopChannels::bytesWritten, static_cast<std::uint64_t>(sent));
  msg.bytes.skipBytes(static_cast<std::size_t>(sent));
  if (!msg.bytes.isReadable()) {
    out.removeFront();
    return sent;
  }
  ByteBuf rest = std::move(msg.bytes);
  out.flushed() = Message(std::move(rest));
  return sent;
}

}  // namespace millrace
