// SPDX-License-Identifier: Apache-2.0
// Streams on an engine with a ring. docs/design/uring.md tells why it is done this way.
//
//   ring        small messages: the ring receives, again and again, and sends what handlers write
//   leaving     the ring was told to stop receiving; what it still brings is kept in order
//   readiness   everything else, just as on epoll: bulk, paused reads, files, descriptors
//
// The ring needs a blocking socket (the kernel waits, no thread does). It stays one until a file is sent.
#include "channel/channel_fast.h"
#include "channel/loop_channels.h"
#include "transport/socket/stream_channel.h"

#include <millrace/loop/event_loop.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/ring_io.h>
#include <millrace/sys/events.h>
#include <millrace/sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace millrace {

namespace {

/// Bytes of one sending operation, about.
constexpr std::size_t kMaxSend = std::size_t{1} << 20;
/// Messages in one sending operation.
constexpr std::size_t kMostParts = 64;
/// Reads in a row that left no room: this is bulk.
constexpr std::uint8_t kFullReads = 2;

}  // namespace

// --- which way ---

// Not Unix sockets: told by the kernel (6.17 and later) that nothing is left to read, the ring does not
// look for an end of the stream that came with the last bytes.
bool StreamChannel::mayUseRing() const noexcept {
  return ring_ != nullptr && !isUnix_ && connected_ && fdReceiver_ == nullptr && readsByItself() &&
         settings().receiveSizes.max >= ring_->receiveSize() && !isLingering() && !isInputEnded() &&
         !isOutputEnded();
}

// Nothing may be left to read by other means: it would come too late.
bool StreamChannel::goToRing() {
  if (!socket_.letKernelWait()) return false;
  if (ringId_ == 0) ringId_ = ring_->enter(socket_.fd(), *this);
  if (!ring_->receive(ringId_, pool())) {
    ring_->leave(std::exchange(ringId_, 0));
    smallBursts_ = 0;  // perhaps later
    return false;
  }
  socket_.remove();
  way_ = Way::ring;
  readable_ = false;
  fullReads_ = 0;
  if (hasFlushed() && !sending_) flushAgain();  // it waited for the other way to be free
  return true;
}

void StreamChannel::leaveRing() {
  if (way_ != Way::ring) return;
  way_ = Way::leaving;
  smallBursts_ = 0;
  if (sending_) ring_->stopSending(ringId_);  // what is left goes the other way
  ring_->stop(ringId_);
}

// The ring has let go of the input.
void StreamChannel::goToReadiness() {
  way_ = Way::readiness;
  if (!isOpen() || !isRegistered()) return;
  if (Result<void> entered = enterReadiness(); !entered) {
    failWith(entered.error());
    return;
  }
  if (isLingering()) {
    doLinger();
  } else if (hasEarly() && mayReadOn()) {
    socket_.again();
  }
}

// After a burst by readiness: whether the ring would do.
void StreamChannel::considerRing(std::size_t total) {
  if (way_ != Way::readiness) return;  // a handler asked for input meanwhile, and so it went there
  if (total >= ring_->receiveSize()) {
    smallBursts_ = 0;
    return;
  }
  if (smallBursts_ < kSmallBursts) ++smallBursts_;
  if (smallBursts_ == kSmallBursts && !readable_ && mayReadOn() && !hasEarly() && mayUseRing()) {
    static_cast<void>(goToRing());
  }
}

// --- completions ---

void StreamChannel::completed(const RingCompletion& completion) noexcept {
  // Outlives the scope: doClose() gives the ring's reference back.
  const ChannelPtr last(awaited_ ? this : nullptr);
  const EventScope<StreamChannel, &StreamChannel::sendByRing> scope(*this);
  if (completion.kind == RingCompletion::sent) {
    ringSent(completion);
  } else {
    ringReceived(completion);
  }
  if (__builtin_expect(awaited_, 0) && way_ != Way::leaving && !sending_) {
    awaited_ = false;
    unref();
    if (!isRegistered() && ringId_ != 0) ring_->leave(std::exchange(ringId_, 0));
  }
}

// It has left the loop, and nobody will wait until the ring has done so, too: a stream that was cut
// somewhere is of no use any more.
void StreamChannel::shuttingDown() noexcept {
  if (!awaited_) return;  // a channel of the loop is closed as such
  const ChannelPtr self(this);
  LoopChannels::cut(*this, Error(Errc::closed, "shutdown", "the loop's time was up"));
}

inline void StreamChannel::ringReceived(const RingCompletion& completion) {
  if (completion.block != nullptr) {
    const auto count = static_cast<std::size_t>(completion.result);
    local().count(LoopChannels::bytesRead, count);
    takeReceived(ByteBuf::ofBlock(completion.block, count), completion.moreNow);
    if (__builtin_expect(count < ring_->receiveSize(), 1)) {
      fullReads_ = 0;
    } else if (++fullReads_ == kFullReads) {
      leaveRing();
    }
  }
  if (__builtin_expect(completion.last, 0)) ringEnded(completion.result);
}

// A burst goes on with the next completion if that comes right away. Others have their turn in between, and may stop
// the reading: then the burst ends before those bytes are kept for later.
inline void StreamChannel::takeReceived(ByteBuf&& bytes, bool moreNow) {
  if (!isOpen()) return;  // thrown away
  if (!isRegistered() || isLingering() || hasEarly() || !beginBurst()) {
    endRingBurst();
    if (isLingering() || !isOpen()) return;  // here, too
    if (early_ == nullptr) early_ = std::make_unique<std::vector<ByteBuf>>();
    early_->push_back(std::move(bytes));
    return;
  }
  if (isUsual()) allowSolo();
  passRead(Message(std::move(bytes)));
  inRingBurst_ = moreNow && mayContinueBurst() && mayReadOn();
  if (!inRingBurst_) endBurst(true);
}

void StreamChannel::endRingBurst() {
  if (std::exchange(inRingBurst_, false) && isRegistered()) endBurst(true);
}

void StreamChannel::ringEnded(int result) {
  const bool wasLeaving = way_ == Way::leaving;
  const bool failed = result < 0 && result != -ECANCELED;
  if (!isOpen()) return;
  if (!wasLeaving || failed) {
    // A failure is told once: whoever reads after it finds nothing.
    leaveRing();
    if (failed || (mayReadOn() && !hasEarly())) inputFailed(result);
  }
  if (isOpen()) goToReadiness();
}

// What came when nobody wanted it. True if all of it is gone now, and the burst may go on.
bool StreamChannel::passEarly() {
  std::size_t passed = 0;
  while (passed < early_->size() && (passed == 0 || mayContinueBurst())) {
    ByteBuf next = std::move((*early_)[passed++]);
    passRead(Message(std::move(next)));
    if (early_ == nullptr) return false;  // it was closed
  }
  if (passed == early_->size()) {
    early_.reset();
    return mayContinueBurst();
  }
  early_->erase(early_->begin(), early_->begin() + static_cast<std::ptrdiff_t>(passed));
  return false;
}

// --- sending ---

SendMode StreamChannel::sendMode(std::size_t bytes) const noexcept {
  const std::size_t from = settings().zeroCopyFrom;
  return from != 0 && bytes >= from ? SendMode::inPlace : SendMode::copied;
}

// One message, from the loop's place: it is the ring's until it is sent.
bool StreamChannel::sendByRing(ByteBuf& bytes) noexcept {
  const std::size_t size = bytes.readableBytes();
  if (way_ != Way::ring || sending_ || size == 0) return false;
  sending_ = true;
  handedOver(OutboundBuffer::kOverhead + bytes.pinnedBytes());
  ring_->send(ringId_, std::move(bytes), sendMode(size));
  return true;
}

int StreamChannel::writeByRing(OutboundBuffer& out) {
  std::array<const ByteBuf*, kMostParts> parts;
  std::size_t count = 0;
  std::size_t bytes = 0;
  const std::size_t most = std::min(out.flushedCount(), parts.size());
  for (; count < most; ++count) {
    const ByteBuf* each = out.flushed(count).as<ByteBuf>();
    if (each == nullptr) break;
    bytes += each->readableBytes();
    parts[count] = each;
    if (bytes >= kMaxSend) {
      ++count;
      break;
    }
  }
  if (bytes == 0) {
    out.removeBytes(0);
    return 0;
  }
  sending_ = true;
  kernelIsFull();
  ring_->send(ringId_, std::span(parts.data(), count), sendMode(bytes));
  return 0;
}

// The kernel may have taken it long ago, or does so when it is asked.
bool StreamChannel::doFinishWrite() {
  if (!sending_) return false;
  ByteBuf rest;
  RingCompletion completion{};
  if (!ring_->finishSend(ringId_, completion, rest)) return false;
  ringSent(completion);
  return true;
}

std::size_t StreamChannel::doCountUnsent() const noexcept { return ring_->unsentBytes(ringId_); }

void StreamChannel::ringSent(const RingCompletion& completion) {
  const int result = completion.result;
  sending_ = false;
  if (!isOpen()) return;
  if (handOverDone()) {  // it was a message on its own
    if (completion.rest != nullptr) handBack(std::move(*completion.rest));
    if (result >= 0) {
      noteWritten(result);
    } else if (completion.rest != nullptr) {
      unexpected_ = result;  // as if it had waited with the others
    } else {
      if (isForeign(-result)) socket_.disown();
      closeNow(ioError(-result, "write"));
      return;
    }
    flushAgain();
    return;
  }
  unexpected_ = result;
  flushAgain();
}

}  // namespace millrace
