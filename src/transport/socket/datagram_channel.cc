// SPDX-License-Identifier: Apache-2.0
#include "transport/socket/datagram_channel.h"

#include "channel/channel_fast.h"
#include "transport/socket/unix_path.h"

#include <millrace/channel/datagram.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/io_handler.h>
#include <millrace/sys/datagram.h>
#include <millrace/sys/events.h>
#include <millrace/sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <sys/socket.h>
#include <utility>

namespace millrace {

namespace {

constexpr std::size_t kLongest = 65536;
/// Messages of joined datagrams are large; so many at once.
constexpr std::size_t kGroBatch = 4;

/// What the network says of datagrams that were sent: the socket is as good as before.
bool concernsOneDatagram(int error) noexcept {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENONET:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
    case EPROTO:
    case EMSGSIZE:
    case ETIMEDOUT:
    case EACCES:
    case EPERM:
    case ENOBUFS:
    case ENOMEM:
      return true;
    default:
      return false;
  }
}

SocketAddress addressOf(const msghdr& header) {
  if (header.msg_namelen == 0) return {};
  Result<SocketAddress> from = SocketAddress::fromRaw(header.msg_name, header.msg_namelen);
  return from ? std::move(*from) : SocketAddress();
}

}  // namespace

DatagramChannel::DatagramChannel(EventLoop& loop, Fd fd, bool isUnix)
    : Channel(loop), socket_(std::move(fd)), isUnix_(isUnix) {}

SocketAddress DatagramChannel::localAddress() const {
  return whileOpen([this] {
    const Result<SocketAddress> name = sockName(socket_.fd());
    return name ? *name : SocketAddress();
  });
}

// Asked of the kernel: it changes while other threads look.
SocketAddress DatagramChannel::remoteAddress() const {
  if (!isConnected_.load(std::memory_order_acquire)) return {};
  return whileOpen([this] {
    const Result<SocketAddress> name = peerName(socket_.fd());
    return name ? *name : SocketAddress();
  });
}

Result<void> DatagramChannel::applyOption(const OptionKey& key, const OptionValue& value) {
  if (&key == &options::datagramSize) {
    const int size = std::get<int>(value);
    if (size < 1 || size > static_cast<int>(kLongest)) {
      return Error::fromErrno(EINVAL, "setOption datagramSize",
                              std::to_string(size) + " (it must be 1 to 65536)");
    }
    size_ = static_cast<std::uint32_t>(size);
    return {};
  }
  if (!key.isOfSocket()) return Channel::applyOption(key, value);
  Result<void> set = setSocketOption(socket_.fd(), key, value);
  if (!set) return set;
  if (&key == &options::udpGro) gro_ = std::get<bool>(value);
  if (&key == &options::udpSegment) {
    segment_ = static_cast<std::uint16_t>(std::get<int>(value));
    joins_ = segment_ != 0;
  }
  return set;
}

Result<OptionValue> DatagramChannel::lookUpOption(const OptionKey& key) const {
  if (&key == &options::datagramSize) return OptionValue(static_cast<int>(size_));
  if (!key.isOfSocket()) return Channel::lookUpOption(key);
  return getSocketOption(socket_.fd(), key);
}

// --- life ---

Result<void> DatagramChannel::doRegister() {
  ReadinessIo* io = loop().io().readiness();
  if (io == nullptr) {
    return Error(Errc::notSupported, "register",
                 describe() + " on " + loop().name() + " (engine " + loop().ioType().name + ")");
  }
  return socket_.add(*io, kReadable, *this);
}

void DatagramChannel::doDeregister() noexcept { socket_.leave(); }

Result<void> DatagramChannel::doBind(const SocketAddress& local) {
  if (Result<void> bound = bindOrExplain(socket_.fd(), local, SocketType::datagram); !bound) {
    return bound;
  }
  path_.took(local);
  boundTo_ = local;
  bound_ = true;
  return {};
}

Result<bool> DatagramChannel::doConnect(const SocketAddress& remote, const SocketAddress& local) {
  if (local) {
    if (Result<void> bound = doBind(local); !bound) return bound.error();
  }
  Result<bool> connected = connectSocket(socket_.fd(), remote);
  if (!connected) return connected;
  isConnected_.store(true, std::memory_order_release);
  bound_ = true;
  return true;
}

// The kernel gives a port back that it had picked; who sends to us would not find us again.
Result<void> DatagramChannel::doDisconnect() {
  if (!isConnected_.load(std::memory_order_relaxed)) return {};
  const SocketAddress before = localAddress();
  if (Result<void> dissolved = connectDissolve(socket_.fd()); !dissolved) return dissolved;
  isConnected_.store(false, std::memory_order_release);
  if (!before.isInet() || localAddress().port() != 0) return {};
  SocketAddress wanted = boundTo_;
  if (!wanted) {
    wanted =
        before.family() == AddressFamily::inet6 ? SocketAddress::any6(0) : SocketAddress::any4(0);
  }
  return bindSocket(socket_.fd(), wanted.withPort(before.port()));
}

void DatagramChannel::doClose() noexcept {
  socket_.close();
  path_.release();
}

void DatagramChannel::lost(const Error& why) noexcept {
  const Scope scope(*this);
  socket_.forget();
  failWith(why);
}

// --- events: write, then read ---

void DatagramChannel::ready(std::uint32_t events) noexcept {
  const Scope scope(*this);
  if (events == 0) socket_.againCame();
  if ((events & kWritable) != 0) {
    flushAgain();
    if (!hasFlushed()) socket_.unwant(kWritable);
  }
  if ((events & (kReadable | kFailed | kHangup)) != 0) readable_ = true;
  if (!isOpen() || !readable_) return;
  if (mayReadOn()) {
    readBurst();
  } else if ((events & kFailed) != 0) {
    takeError();
  }
}

void DatagramChannel::doBeginRead() {
  if (Result<void> wanted = socket_.want(kReadable); !wanted) {
    failWith(wanted.error());
    return;
  }
  if (readable_) socket_.again();
}

void DatagramChannel::doStopRead() { socket_.unwant(kReadable); }

// Nobody reads; the failure of something that was sent does not wait for that.
void DatagramChannel::takeError() {
  if (const int error = socketError(socket_.fd()); error != 0) inputFailed(error);
}

void DatagramChannel::inputFailed(int error) {
  const Error why = Error::fromErrno(error, "read", remoteAddress().toString());
  if (concernsOneDatagram(error)) {
    pipeline().fireExceptionCaught(why);
  } else {
    failWith(why);
  }
}

// --- reading ---

/// One message as the kernel filled it.
struct DatagramChannel::Received {
  ByteBuf bytes;
  const msghdr& header;
  std::size_t size;  // as it was sent
};

std::size_t DatagramChannel::room() const noexcept { return gro_ ? kLongest : size_; }

void DatagramChannel::readBurst() {
  if (!beginBurst()) return;
  const auto most = static_cast<std::size_t>(settings().maxMessagesPerRead);
  std::size_t taken = 0;
  std::size_t passed = 0;
  int error = 0;
  do {
    error = receiveBatch(most - taken, taken, passed);
    if (error == EAGAIN) {
      readable_ = false;
      error = 0;
    }
    if (error == 0) continue;
    // It counts, so that a flood of them does not keep the loop.
    ++taken;
    inputFailed(error);
  } while (readable_ && taken < most && mayContinueBurst());
  endBurst(passed != 0);
  if (readable_ && mayReadOn()) socket_.again();
}

// Gives 0 or an errno. `taken` grows by what was received, `passed` by what handlers got.
int DatagramChannel::receiveBatch(std::size_t most, std::size_t& taken, std::size_t& passed) {
  std::array<mmsghdr, kMostAtOnce> headers;
  std::array<iovec, kMostAtOnce> parts;
  std::array<ByteBuf, kMostAtOnce> buffers;
  std::array<sockaddr_storage, kMostAtOnce> names;
  std::array<SegmentControl, kGroBatch> controls;
  const bool named = !isConnected_.load(std::memory_order_relaxed);
  const std::size_t asked = std::min<std::size_t>(most, gro_ ? kGroBatch : batch_);
  for (std::size_t i = 0; i < asked; ++i) {
    buffers[i] = pool().allocate(room());
    parts[i] = {buffers[i].writable().data(), room()};
    headers[i] = {};
    headers[i].msg_hdr.msg_iov = &parts[i];
    headers[i].msg_hdr.msg_iovlen = 1;
    if (named) {
      headers[i].msg_hdr.msg_name = &names[i];
      headers[i].msg_hdr.msg_namelen = sizeof names[i];
    }
    if (gro_) expectSegmentSize(headers[i].msg_hdr, controls[i]);
  }
  const int got =
      recvMessages(socket_.fd(), headers.data(), static_cast<unsigned>(asked), MSG_TRUNC);
  if (got < 0) return -got;
  const auto count = static_cast<std::size_t>(got);
  if (count < asked) readable_ = false;
  adaptBatch(asked, count);
  taken += count;
  for (std::size_t i = 0; i < count && isOpen(); ++i) {
    Received each{std::move(buffers[i]), headers[i].msg_hdr, headers[i].msg_len};
    passed += pass(each);
  }
  return 0;
}

void DatagramChannel::adaptBatch(std::size_t asked, std::size_t got) noexcept {
  if (got == asked) {
    batch_ = std::min<std::uint8_t>(static_cast<std::uint8_t>(batch_ * 2), kMostAtOnce);
  } else if (got <= batch_ / 4u) {
    batch_ = std::max<std::uint8_t>(batch_ / 2, kFewest);
  }
}

// Gives how many datagrams handlers got.
std::size_t DatagramChannel::pass(Received& from) {
  if ((from.header.msg_flags & MSG_TRUNC) != 0) {
    tellTruncated(from);
    return 0;
  }
  local().count(LoopChannels::bytesRead, from.size);
  from.bytes.advance(from.size);
  ByteBuf bytes = rightSized(std::move(from.bytes));
  const SocketAddress peer = addressOf(from.header);
  const std::size_t segment = gro_ ? segmentSize(from.header) : 0;
  if (segment == 0 || from.size <= segment) {
    passRead(Message(Datagram{std::move(bytes), peer}));
    return 1;
  }
  std::size_t passed = 0;
  for (; bytes.isReadable() && isOpen(); ++passed) {
    const std::size_t size = std::min(segment, bytes.readableBytes());
    passRead(Message(Datagram{bytes.readSlice(size), peer}));
  }
  return passed;
}

// Handlers keep datagrams: a short one should not keep memory for a long one.
ByteBuf DatagramChannel::rightSized(ByteBuf&& bytes) {
  const std::size_t size = bytes.readableBytes();
  if (size >= bytes.pinnedBytes() / 4) return std::move(bytes);
  if (size == 0) return {};
  ByteBuf small = pool().allocate(size);
  small.writeBytes(bytes.data());
  return small;
}

void DatagramChannel::tellTruncated(const Received& from) {
  local().count(LoopChannels::truncated);
  pipeline().fireUserEventTriggered(
      Message(DatagramTruncated{from.size, room(), addressOf(from.header)}));
}

}  // namespace millrace
