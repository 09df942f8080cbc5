// SPDX-License-Identifier: Apache-2.0
#include "transport/socket/stream_channel.h"

#include "buffer/pool_core.h"
#include "channel/channel_fast.h"
#include "channel/loop_channels.h"
#include "sys/transfer.h"
#include "transport/socket/unix_fds.h"

#include <millrace/channel/message.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/io.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/ring_io.h>
#include <millrace/sys/events.h>
#include <millrace/sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace millrace {

namespace {

/// Read and thrown away at a time.
constexpr std::size_t kDiscard = 64 * 1024;

constexpr std::uint32_t kInput = kReadable | kPeerClosed;

}  // namespace

StreamChannel::StreamChannel(EventLoop& loop, Fd fd, bool isUnix, Stage stage,
                             const SocketAddress& peer)
    : Channel(loop),
      socket_(std::move(fd)),
      remote_(peer),
      isUnix_(isUnix),
      connected_(stage == Stage::connected) {
  if (connected_) addressesAreKnown();
}

StreamChannel::~StreamChannel() = default;

SocketAddress StreamChannel::localAddress() const {
  return whileOpen([this] {
    const Result<SocketAddress> name = sockName(socket_.fd());
    return name ? *name : SocketAddress();
  });
}

Result<void> StreamChannel::applyOption(const OptionKey& key, const OptionValue& value) {
  if (key.isOfSocket()) return setSocketOption(socket_.fd(), key, value);
  if (&key == &options::receiveDescriptors) return receiveDescriptors(std::get<int>(value));
  Result<void> applied = Channel::applyOption(key, value);
  if (applied && &key == &options::receiveSizes) predictor_.begin(settings().receiveSizes);
  return applied;
}

Result<OptionValue> StreamChannel::lookUpOption(const OptionKey& key) const {
  if (&key == &options::receiveDescriptors) {
    return OptionValue(fdReceiver_ == nullptr ? 0 : static_cast<int>(fdReceiver_->most));
  }
  if (!key.isOfSocket()) return Channel::lookUpOption(key);
  return getSocketOption(socket_.fd(), key);
}

Error StreamChannel::ioError(int error, const char* operation) const {
  return Error::fromErrno(error, operation, remote_.toString());
}

// --- life ---

// A socket that is not connected would be reported as hung up: it enters with connect().
Result<void> StreamChannel::doRegister() {
  if (loop().io().readiness() == nullptr) {
    return Error(Errc::notSupported, "register",
                 describe() + " on " + loop().name() + " (engine " + loop().ioType().name + ")");
  }
  if (&loop().ioType() == &io::blockingType && !socket_.isBlocking()) {
    if (Result<void> set = socket_.makeBlocking(); !set) return set;
  }
  ring_ = loop().io().ring();
  return connected_ ? enter() : Result<void>();
}

Result<void> StreamChannel::enter() {
  parked_ = false;
  predictor_.begin(settings().receiveSizes);
  // Where the ring will do the reading, doBeginRead() begins it.
  if (mayUseRing() && !isPaused() && !hasEarly() && way_ == Way::readiness) {
    smallBursts_ = kSmallBursts;
    return {};
  }
  return enterReadiness();
}

Result<void> StreamChannel::enterReadiness() {
  if (way_ == Way::leaving) return {};  // the ring's last completion does it
  IoClient& client = fdReceiver_ == nullptr ? static_cast<IoClient&>(*this) : *fdReceiver_;
  const std::uint32_t output = hasFlushed() ? kWritable : 0;
  Result<void> added = socket_.add(*loop().io().readiness(), kInput | kUrgent | output, client);
  // Unix sockets end a read where descriptors or credentials come along, though there is more.
  if (socket_.isEdge() && isUnix_) odd_ |= kThorough;
  if (ring_ != nullptr) odd_ |= kOnRing;
  return added;
}

// The ring may have work under way. It is told to stop, and keeps the channel until it has.
void StreamChannel::doDeregister() noexcept {
  leaveRing();
  socket_.leave();
  if (ringId_ == 0) return;
  if (way_ != Way::leaving && !sending_) {
    ring_->leave(std::exchange(ringId_, 0));
  } else if (!awaited_) {
    awaited_ = true;
    ref();
  }
}

void StreamChannel::doClose() noexcept {
  // The ring may have gone with its loop.
  if (RingIo* ring = ringId_ == 0 ? nullptr : loop().io().ring()) ring->leave(ringId_);
  ringId_ = 0;
  early_.reset();
  socket_.close();
  if (std::exchange(awaited_, false)) unref();  // whoever closes it has a reference of his own
}

Result<void> StreamChannel::doBind(const SocketAddress& local) {
  return bindSocket(socket_.fd(), local);
}

Result<bool> StreamChannel::doConnect(const SocketAddress& remote, const SocketAddress& local) {
  if (local) {
    if (Result<void> bound = bindSocket(socket_.fd(), local); !bound) return bound.error();
  }
  Result<bool> connected = connectSocket(socket_.fd(), remote);
  if (!connected) return connected;
  remote_ = remote;
  if (Result<void> entered = enter(); !entered) return entered.error();
  connected_ = *connected;
  if (*connected) return true;
  if (Result<void> wanted = socket_.want(kWritable); !wanted) return wanted.error();
  return false;
}

void StreamChannel::finishConnect() {
  const int error = socketError(socket_.fd());
  socket_.unwant(kWritable);
  if (error != 0) {
    connectDone(ioError(error, "connect"));
    return;
  }
  connected_ = true;
  connectDone(Error());
}

Result<void> StreamChannel::doShutdownOutput() {
  const int result = shutdownSocket(socket_.fd(), ShutdownHow::write);
  if (result < 0) return ioError(-result, "shutdown");
  return {};
}

void StreamChannel::lost(const Error& why) noexcept {
  const Scope scope(*this);
  socket_.forget();
  if (isForeign(why.errnoValue())) socket_.disown();
  failWith(why);
}

// False if the kernel did not take all of it, or nothing at once; doWrite() then finds out why.
inline bool StreamChannel::writeWhole(ByteBuf& bytes) noexcept {
  const std::span<const std::byte> data = bytes.data();
  if (data.empty()) return false;
  const std::ptrdiff_t wrote = sendOnce(socket_.fd(), data.data(), data.size(), socket_.flags());
  if (__builtin_expect(wrote != static_cast<std::ptrdiff_t>(data.size()), 0)) {
    unexpected_ = wrote == -EINTR ? 0 : wrote;
    return false;
  }
  noteWritten(wrote);
  return true;
}

// Nobody wants to read: a failure cannot wait for that, a hang-up can.
void StreamChannel::broken(std::uint32_t events) {
  if ((events & kFailed) != 0) {
    if (const int error = socketError(socket_.fd()); error != 0) {
      failWith(ioError(error, "read"));
      return;
    }
  }
  if (socket_.isEdge()) return;
  socket_.remove();
  parked_ = true;
}

// --- reading ---

void StreamChannel::doBeginRead() {
  if (way_ != Way::readiness) return;  // the ring reads, or will let us know that it does not
  if (ring_ != nullptr && smallBursts_ == kSmallBursts && !hasEarly() && mayUseRing() &&
      goToRing()) {
    return;
  }
  if (!socket_.isRegistered() && !parked_) {
    if (Result<void> entered = enterReadiness(); !entered) {
      failWith(entered.error());
      return;
    }
  }
  if (parked_) {
    if (Result<void> entered = enter(); !entered) {
      failWith(entered.error());
      return;
    }
  }
  if (Result<void> wanted = socket_.want(kInput); !wanted) {
    failWith(wanted.error());
    return;
  }
  if (readable_ || hasEarly()) socket_.again();
}

void StreamChannel::doStopRead() {
  leaveRing();
  socket_.unwant(kInput);
  // Failures are seen all the same.
  if (ring_ == nullptr || way_ != Way::readiness || socket_.isRegistered() || parked_) return;
  if (!connected_ || !isRegistered()) return;
  if (Result<void> entered = enterReadiness(); !entered) failWith(entered.error());
}

[[gnu::always_inline]] inline internal::Block* StreamChannel::receive(
    std::size_t room, std::ptrdiff_t& got) noexcept {
  internal::Block* block =
      local().pool().core().allocateClass(internal::SizeClasses::ofPower(predictor_.exponent()));
  got = recvOnce(socket_.fd(), block->bytes, room, socket_.flags());
  return block;
}

// The usual: one read that brings less than there is room for, and so has emptied the socket.
// REQUIRES: isUsual()
[[gnu::always_inline]] inline void StreamChannel::readUsual() {
  std::ptrdiff_t got = 0;
  const std::size_t room = predictor_.guess();
  internal::Block* block = receive(room, got);
  const auto count = static_cast<std::size_t>(got);
  // Nothing, a failure (a large number), or as much as there is room for.
  if (__builtin_expect(count - 1 >= room - 1 || odd_ != 0, 0)) {
    readable_ = true;
    return readBurstFrom(block, got, 0);
  }
  readable_ = false;
  local().count(LoopChannels::bytesRead, count);
  predictor_.burstEnded(count, room);
  allowSolo();
  passRead(Message(ByteBuf::ofBlock(block, count)));
  endBurst(true);
}

void StreamChannel::readBurst() {
  if (!beginBurst()) return;
  const std::size_t reads = hasEarly() ? 1 : 0;
  if (reads != 0 && !passEarly()) {
    endBurst(true);
    if (mayReadOn()) socket_.again();
    return;
  }
  if (fdReceiver_ != nullptr && fdReceiver_->most != 0) return readFdsBurst();
  std::ptrdiff_t got = 0;
  internal::Block* block = receive(predictor_.guess(), got);
  readBurstFrom(block, got, reads);
}

// `reads`: those that this burst has had already.
[[gnu::noinline]] void StreamChannel::readBurstFrom(internal::Block* block, std::ptrdiff_t got,
                                                    std::size_t reads) {
  std::size_t total = 0;
  std::int64_t began = 0;
  for (;;) {
    if (got == -EINTR) {
      got = recvSocket(socket_.fd(), block->bytes, predictor_.guess(), socket_.flags());
    }
    if (got <= 0) {
      block->drop();
      readable_ = false;
      break;
    }
    // Never more than there is room for, whatever stands between us and the kernel says.
    const std::size_t count = std::min(static_cast<std::size_t>(got), predictor_.guess());
    ++reads;
    total += count;
    if (count == predictor_.guess()) {
      predictor_.filled();
    } else if ((odd_ & kThorough) == 0) {
      readable_ = false;
    }
    if (socket_.isBlocking()) readable_ = false;  // the engine tells when there is more
    passRead(Message(ByteBuf::ofBlock(block, count)));
    flushLongBurst(began);
    if (!readable_ || !mayContinueBurst() || !mayReadMore(reads, total)) break;
    block = receive(predictor_.guess(), got);
  }
  predictor_.burstEnded(total, predictor_.guess());
  local().count(LoopChannels::bytesRead, total);
  endBurst(reads != 0);
  if (got <= 0) inputFailed(got);
  if (readable_ && mayReadOn()) {
    socket_.again();
  } else if (ring_ != nullptr && isOpen()) {
    considerRing(total);
  }
}

bool StreamChannel::mayReadMore(std::size_t reads, std::size_t total) const noexcept {
  return reads < static_cast<std::size_t>(settings().maxMessagesPerRead) &&
         total < settings().maxBytesPerRead;
}

void StreamChannel::inputFailed(std::ptrdiff_t got) {
  if (got == 0) {
    inputEnded();
  } else if (got != -EAGAIN) {
    if (isForeign(static_cast<int>(-got))) socket_.disown();
    failWith(ioError(static_cast<int>(-got), "read"));
  }
}

// --- events: connect, then write, then read ---

void StreamChannel::ready(std::uint32_t events) noexcept {
  const EventScope<StreamChannel, &StreamChannel::writeWhole> scope(*this);
  // The usual: something to read, and somebody who wants it.
  if (__builtin_expect(events == kReadable && early_ == nullptr && isUsual(), 1)) {
    return readUsual();
  }
  readEvents(events);
}

// Anything else.
[[gnu::noinline]] void StreamChannel::readEvents(std::uint32_t events) {
  if (events == 0) socket_.againCame();
  if (isConnecting()) {
    if ((events & (kWritable | kFailed | kHangup)) == 0) return;
    finishConnect();
    events &= ~kHangup;
  }
  if ((events & kWritable) != 0) {
    flushAgain();
    if (!hasFlushed()) socket_.unwant(kWritable);
  }
  if ((events & (kInput | kFailed | kHangup)) != 0) {
    readable_ = true;
    // Urgent data ends reads, too, and the end or a failure come behind all of it.
    if ((events & (kPeerClosed | kFailed | kHangup | kUrgent)) != 0) odd_ |= kThorough;
  }
  if (!isOpen() || !(readable_ || hasEarly())) return;
  if (isLingering()) {
    discardInput();
  } else if (mayReadOn()) {
    readBurst();
  } else if ((events & (kFailed | kHangup)) != 0) {
    broken(events);
  }
}

// --- lingering ---

void StreamChannel::doLinger() {
  leaveRing();
  if (way_ == Way::leaving) return;  // and comes back here
  Result<void> wanted = socket_.isRegistered() ? socket_.want(kInput) : enterReadiness();
  parked_ = false;
  if (!wanted) {
    lingerDone();
    return;
  }
  if (socket_.isBlocking()) return;
  readable_ = true;
  socket_.again();
}

void StreamChannel::discardInput() {
  ByteBuf waste = pool().allocate(kDiscard);
  const int most = socket_.isBlocking() ? 1 : settings().maxMessagesPerRead;
  for (int i = 0; i < most; ++i) {
    const std::ptrdiff_t got =
        recvSocket(socket_.fd(), waste.writable().data(), kDiscard, socket_.flags());
    if (got == -EAGAIN) {
      readable_ = false;
      return;
    }
    if (got <= 0) {
      discardEnded(got);
      return;
    }
  }
  if (!socket_.isBlocking()) socket_.again();
}

// A peer that has ended its stream may still read: what was flushed goes first.
void StreamChannel::discardEnded(std::ptrdiff_t got) {
  readable_ = false;
  if (got < 0) {
    closeNow(ioError(static_cast<int>(-got), "read"));
  } else if (isOutputEnded()) {
    lingerDone();
  } else {
    socket_.unwant(kInput);
  }
}

}  // namespace millrace
