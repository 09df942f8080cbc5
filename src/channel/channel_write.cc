// SPDX-License-Identifier: Apache-2.0
// What is written, and when it goes. Loop thread. docs/design/back-pressure.md tells why.
#include "channel/channel_fast.h"
#include "channel/channel_rare.h"
#include "channel/loop_channels.h"
#include "loop/readable_name.h"

#include <millrace/base/log.h>
#include <millrace/loop/event_loop.h>

#include <cerrno>
#include <utility>

namespace millrace {

bool Channel::hasFlushed() const noexcept {
  return outbound_ != nullptr && outbound_->hasFlushed();
}

bool Channel::acceptsMessage(const Message&) const { return false; }

// --- write and flush, the channel's end of the pipeline ---

// The message that waits for the end of its event joins the others.
void Channel::spillNow() noexcept {
  local_->soloOwner = nullptr;
  if (outbound_ == nullptr) outbound_ = local_->takeOutbound();
  outbound_->add(Message(std::move(local_->solo.bytes())), Promise<void>());
  local_->solo.drop();
  if ((flags_ & kFlushWanted) != 0) outbound_->addFlush();
  if (isOpen() && pendingBytes() > settings_->waterMarks.high) updateWritability();
}

void Channel::writeSlowly(Message& msg) {
  Promise<void> none;
  writeSlowly(msg, none);
}

void Channel::writeSlowly(Message& msg, Promise<void>& done) {
  constexpr std::uint32_t kEnded = kOutputEnded | kEndOutputAfterFlush;
  if (!isOpen() || (flags_ & kEnded) != 0 || local_ == nullptr || !msg.isByteBuf()) {
    if (!mayWrite(msg, done)) return;
  }
  spill();
  if (outbound_ == nullptr) outbound_ = local_->takeOutbound();
  outbound_->add(std::move(msg), std::move(done));
  if (pendingBytes() > settings_->waterMarks.high) updateWritability();
  makeDirty();
}

void Channel::flushSlowly() {
  spill();
  if (outbound_ == nullptr) return;
  outbound_->addFlush();
  mark(kFlushWanted);
  if (outbound_->pendingBytes() >= kFlushAtOnce) {
    const Scope scope(*this);  // a task may flush, too, and a listener may close
    writePending();
  } else {
    makeDirty();
  }
}

// What is not the usual: false if the message was refused.
bool Channel::mayWrite(Message& msg, Promise<void>& done) {
  if (!isOpen() || (flags_ & (kOutputEnded | kEndOutputAfterFlush)) != 0) {
    refuseWrite(closedError("write"), msg, done);
  } else if (local_ == nullptr) {
    refuseWrite(Error::fromErrno(ENOTCONN, "write", describe() + " (not registered yet)"), msg,
                done);
  } else if (!msg.is<ByteBuf>() && !acceptsMessage(msg)) {
    refuseWrite(Error(Errc::notSupported, "write",
                      "a message of type " + readableName(msg.type()) + " to " + describe() +
                          " (an encoder is missing in the pipeline)"),
                msg, done);
  } else {
    return true;
  }
  return false;
}

void Channel::refuseWrite(const Error& why, Message& msg, Promise<void>& done) {
  msg.reset();
  if (done.valid()) {
    done.tryFailure(why);
    return;
  }
  if (local_ != nullptr) local_->count(LoopChannels::failedWrites);
  // A peer may go at any time; but a message that no channel takes is a mistake of the program.
  const bool isMistake = why.is(Errc::notSupported);
  log(isMistake ? LogLevel::warn : LogLevel::debug, "channel", why.message());
}

// Goes to the kernel as far as that takes it.
void Channel::writePending() {
  spill();
  unmark(kFlushWanted);
  if (!hasFlushed() || (flags_ & (kInFlush | kFullKernel)) != 0 || isConnecting() || !isOpen()) {
    return;
  }
  if (!isActive()) {
    takeAwayOutbound(Error::fromErrno(ENOTCONN, "write", describe()));
    return;
  }
  mark(kInFlush);
  const int error = doWrite(*outbound_);
  unmark(kInFlush);
  // The usual end: everything is written, and nobody wants more.
  constexpr std::uint32_t kMore = kEndOutputAfterFlush | kCloseAfterFlush;
  if (__builtin_expect(error == 0 && outbound_ != nullptr && outbound_->empty() &&
                           (flags_ & kMore) == 0 && has(kWritableBit),
                       1)) {
    local_->giveOutbound(std::exchange(outbound_, nullptr));
    return;
  }
  afterWrite(error);
}

void Channel::flushIfLong(std::int64_t& began) {
  const std::int64_t now = Clock::real().nanos();
  if (began == 0) began = now;
  if (now - began < kLongBurstNanos) return;
  began = now;
  writePending();
}

void Channel::flushAgain() {
  unmark(kFullKernel);
  if (!isOpen() || !isRegistered()) return;  // the next registration does it
  if (hasFlushed()) {
    writePending();
  } else {
    afterWrite(0);
  }
}

void Channel::kernelIsFull() { mark(kFullKernel); }

void Channel::handBack(ByteBuf&& rest) {
  if (outbound_ == nullptr) outbound_ = local_->takeOutbound();
  outbound_->putBack(std::move(rest));
}

void Channel::afterWrite(int error) {
  if (error != 0) {
    closeNow(Error::fromErrno(error, "write", remoteAddress().toString()));
    return;
  }
  // A listener may have closed the channel meanwhile.
  if (outbound_ != nullptr) {
    if (outbound_->empty()) {
      local_->giveOutbound(std::exchange(outbound_, nullptr));
    } else if (outbound_->hasFlushed() && (flags_ & kFullKernel) == 0) {
      mark(kFlushWanted);  // by a listener, or the write had its share
      makeDirty();
    }
  }
  if (!has(kWritableBit)) updateWritability();
  if ((flags_ & kEndOutputAfterFlush) != 0 && !hasUnsent()) endOutput();
  if ((flags_ & kCloseAfterFlush) != 0) closeNow({});
}

// What the kernel has not taken after this it will never get.
void Channel::writeLastTime() {
  if ((flags_ & kFullKernel) == 0) writePending();
  int turns = settings_->writeSpinCount;
  while (isOpen() && hasUnsent() && --turns >= 0 && doFinishWrite()) {
  }
}

void Channel::takeAwayOutbound(const Error& why) {
  if (outbound_ == nullptr) return;
  // Listeners that write meanwhile find the channel closed, or begin a new buffer. While doWrite() is
  // on the stack it uses this one: then it is emptied only, and writePending() gives it back.
  OutboundBuffer* out = outbound_;
  const bool inUse = (flags_ & kInFlush) != 0;
  if (!inUse) outbound_ = nullptr;
  out->failAll(why);
  const std::size_t failures = out->takeFailures();
  if (local_ == nullptr) {
    delete out;
  } else {
    local_->count(LoopChannels::failedWrites, failures);
    if (!inUse) local_->giveOutbound(out);
  }
  if (isOpen() && !has(kWritableBit)) updateWritability();
}

// --- ending the output ---

void Channel::shutdownOutputInLoop(Promise<void>&& done) {
  if (done.valid() && !done.setUncancellable()) return;
  if (!isOpen()) {
    done.tryFailure(closedError("shutdownOutput"));
    return;
  }
  if ((flags_ & kOutputEnded) != 0) {
    done.trySuccess();
    return;
  }
  spill();
  if (done.valid()) rare().outputEnders.push_back(std::move(done));
  mark(kEndOutputAfterFlush);
  if ((flags_ & kInFlush) != 0)
    return;  // by a listener of what is being written: afterWrite() ends it
  if (hasUnsent()) {
    writePending();
  } else {
    endOutput();
  }
}

// Everything that was flushed is written; what was not never will be.
void Channel::endOutput() {
  unmark(kEndOutputAfterFlush);
  const Result<void> ended = doShutdownOutput();
  // Where a stream cannot be ended, or not yet, writing goes on.
  const bool goesOn = !ended && !isLingering();
  if (!goesOn) mark(kOutputEnded);
  if (rare_ != nullptr) {
    for (const Promise<void>& each : std::exchange(rare_->outputEnders, {})) {
      each.tryComplete(ended);
    }
  }
  if (!isOpen() || goesOn) return;
  if (outbound_ != nullptr) {
    takeAwayOutbound(Error(Errc::closed, "write", describe() + " (its output is shut down)"));
  }
  if (isLingering()) {
    beginLinger();
  } else if ((flags_ & kInputEnded) != 0) {
    closeNow({});
  }
}

// --- water marks ---

std::size_t Channel::pendingBytes() const noexcept {
  const std::size_t held = (rare_ == nullptr ? 0 : rare_->held) + unsent_;
  if (outbound_ != nullptr) return held + outbound_->pendingBytes();
  if (local_ == nullptr || local_->soloOwner != this) return held;
  return held + OutboundBuffer::kOverhead + local_->solo.bytes().pinnedBytes();
}

void Channel::countHeld(std::ptrdiff_t bytes) noexcept {
  rare().held += static_cast<std::size_t>(bytes);
  if (local_ == nullptr || !isOpen()) return;
  // As long as nothing changes, what the handler writes next may wait for the end of its event.
  if (has(kWritableBit) && pendingBytes() <= settings_->waterMarks.high) return;
  updateWritability();
}

std::size_t Channel::bytesBeforeUnwritable() const noexcept {
  const std::size_t pending = pendingBytes();
  const std::size_t high = settings_->waterMarks.high;
  return isWritable() && pending < high ? high - pending : 0;
}

std::size_t Channel::bytesBeforeWritable() const noexcept {
  const std::size_t pending = pendingBytes();
  const std::size_t low = settings_->waterMarks.low;
  return isWritable() || pending < low ? 0 : pending - low;
}

// isWritable() changes at once; handlers are told when the event that changed it is over.
void Channel::updateWritability() noexcept {
  spill();  // the fast path tells nobody
  const std::size_t pending = pendingBytes();
  if (has(kWritableBit)) {
    if (pending <= settings_->waterMarks.high) return;
    unset(kWritableBit);
  } else {
    if (pending > settings_->waterMarks.low) return;
    set(kWritableBit);
    // Whoever stopped writing when he saw it waits to be told.
    if ((flags_ & kToldWritable) != 0) mark(kTellWritable);
  }
  updatePause();
  makeDirty();
}

// Reads rest while nothing more can be written.
void Channel::updatePause() {
  bool wanted = settings_->pauseReadsWhenUnwritable && !has(kWritableBit);
  if (readsRefused_ != 0) {
    wanted = true;
  } else if (readsAsked_ != 0) {
    wanted = false;
  }
  if (isLingering()) wanted = false;
  if (wanted == ((flags_ & kPaused) != 0)) return;
  if (wanted) {
    mark(kPaused);
    local_->count(LoopChannels::pausedReads);
    doStopRead();
    return;
  }
  unmark(kPaused);
  if ((flags_ & (kReadWanted | kInputEnded)) == kReadWanted && isOpen()) doBeginRead();
}

void Channel::changeReadPause(ReadPause from, ReadPause to) {
  const auto count = [this](ReadPause wish, int step) {
    if (wish == ReadPause::never) readsAsked_ = static_cast<std::uint8_t>(readsAsked_ + step);
    if (wish == ReadPause::always) readsRefused_ = static_cast<std::uint8_t>(readsRefused_ + step);
  };
  count(from, -1);
  count(to, 1);
  if (local_ != nullptr && isOpen()) updatePause();
}

void Channel::tellWritability() {
  const bool writable = has(kWritableBit);
  const bool blinked = (flags_ & kTellWritable) != 0;
  unmark(kTellWritable);
  if ((writable == ((flags_ & kToldWritable) != 0) && !(blinked && writable)) || !isOpen()) return;
  if (writable) {
    mark(kToldWritable);
  } else {
    unmark(kToldWritable);
  }
  pipeline_.fireChannelWritabilityChanged();
}

// --- the list of those that have something to do after the event ---

void Channel::cleaned() noexcept {
  unmark(kDirty);
  ChannelPtr left;  // outlives the scope
  if ((flags_ & kLeaveWhenClean) != 0) {
    unmark(kLeaveWhenClean);
    left = ChannelPtr::adopt(this);
    if (!isRegistered()) return;  // else it has come back meanwhile
  }
  const Scope scope(*this);
  writeAfterEvent();
}

void Channel::writeAfterEvent() noexcept {
  spill();
  if ((flags_ & kFlushWanted) != 0) writePending();
  if (outbound_ != nullptr) {
    // What waits beyond its event should not keep more memory than it needs.
    if (const std::size_t copies = outbound_->compact(); copies != 0) {
      local_->count(LoopChannels::copies, copies);
      if (!has(kWritableBit)) updateWritability();
    }
  }
  tellWritability();
}

void Channel::dropped(Message& msg) noexcept {
  if (local_ != nullptr) local_->count(LoopChannels::dropped);
  log(LogLevel::debug, "channel", describe(), ": no handler took a message of type ",
      readableName(msg.type()));
  msg.reset();
}

}  // namespace millrace
