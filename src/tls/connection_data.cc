// SPDX-License-Identifier: Apache-2.0
// What comes and goes once the handshake is done, and how a connection ends.
#include "tls/connection.h"

#include <millrace/channel/channel_events.h>
#include <millrace/channel/channel_option.h>
#include <millrace/channel/context.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/socket_address.h>
#include <millrace/tls/tls_events.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace millrace::tls {

namespace {

/// The largest message of plaintext that goes to the next handler.
constexpr std::size_t kLargestMessage = 64 * 1024;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

}  // namespace

// --- reading ---

void Connection::read(ByteBuf&& ciphertext) {
  inBurst_ = true;
  switch (stage_) {
    case Stage::hello:
      return lookAtHello(std::move(ciphertext));
    case Stage::queued:
      return session_->feed(std::move(ciphertext));
    case Stage::working:
      if (!early_) {
        early_ = std::move(ciphertext);
      } else {
        early_.writeBytes(ciphertext.data());
      }
      return;
    case Stage::handshaking:
      session_->feed(std::move(ciphertext));
      return enterGate();
    case Stage::open:
      if (gotClose_) return;
      session_->feed(std::move(ciphertext));
      return readPlaintext();
    default:
      return;  // what comes after the end is nobody's
  }
}

void Connection::readComplete() {
  inBurst_ = false;
  const bool hasFired = std::exchange(hasFired_, false);
  // Without auto read somebody has asked for a message, and none has come yet.
  const bool wantsMore = stage_ != Stage::failed && (!hasFired || stage_ != Stage::open);
  if (wantsMore && !channel().isAutoRead()) ctx_->read();
  if (ctx_ != nullptr) ctx_->fireChannelReadComplete();
}

inline void Connection::useSession() {
  if (!warm_.isTaken()) WarmSessions::use(channel().loop(), *session_, warm_);
}

void Connection::readPlaintext() {
  const std::shared_ptr<Connection> alive = shared_from_this();
  useSession();
  inRecord_ += session_->buffered();
  for (bool goesOn = session_->buffered() != 0; goesOn;) {
    // Plaintext is never longer than its ciphertext.
    ByteBuf plaintext = ctx_->allocate(std::clamp<std::size_t>(inRecord_, 64, kLargestMessage));
    const Session::Step step = session_->read(plaintext);
    if (step == Session::Step::wantsInput && plaintext) {
      inRecord_ = 0;
    } else {
      inRecord_ -= std::min(inRecord_, plaintext.readableBytes());
    }
    if (session_->hasOutput() && (!sendOutput() || isGone())) return;  // new keys are answered
    if (plaintext && !isClosing_) {
      hasFired_ = true;
      ctx_->fireChannelRead(Message(std::move(plaintext)));
      if (isGone()) return;
    }
    goesOn = afterRead(step);
  }
  // What could not be written meanwhile.
  if (isGone() || saidClose_ || (held_.flushed() == 0 && !endsLater_)) return;
  if (held_.flushed() != 0) seal(kRound);
  if (endsLater_ && !isGone()) endOutput();
  if (ctx_ != nullptr) ctx_->flush();
}

bool Connection::afterRead(Session::Step step) {
  switch (step) {
    case Session::Step::done:
      return true;
    case Session::Step::wantsInput:
      return false;
    case Session::Step::closed:
      peerClosed();
      return false;
    case Session::Step::failed:
      fail(session_->failure("TLS", who()));
      return false;
  }
  return false;
}

void Connection::peerClosed() {
  gotClose_ = true;
  ctx_->fireUserEventTriggered(Message(TlsCloseCompletion{}));
  if (isGone()) return;
  if (isClosing_) return closeIfOver();
  const Result<OptionValue> half = channel().lookUpOption(options::allowHalfClosure);
  if (half && std::get<bool>(*half) && !saidClose_) {
    ctx_->fireUserEventTriggered(Message(InputShutdown{}));
    return;
  }
  close({});
}

bool Connection::inputShutdown() {
  inputEnded_ = true;
  if (stage_ == Stage::open) {
    if (gotClose_) return true;  // told already
    if (isClosing_) {
      closeIfOver();
    } else if (!isLeaving_) {
      ctx_->fireExceptionCaught(Error(make_error_code(TlsErrc::truncated), "TLS", who()));
    }
    return ctx_ == nullptr;
  }
  if (stage_ != Stage::failed) {
    const ChannelPtr keep(&channel());
    giveUp(Error(Errc::closed, "TLS handshake", who() + " has ended its stream"));
    keep->close();
  }
  return ctx_ == nullptr;
}

// --- writing ---

void Connection::write(ByteBuf&& plaintext, Promise<void>&& done) {
  if (stage_ == Stage::failed || stage_ == Stage::gone || isClosing_ || saidClose_ || endsLater_) {
    done.tryFailure(failure_ ? failure_ : Error(Errc::closed, "write", "TLS to " + who()));
    return;
  }
  held_.add(channel(), std::move(plaintext), std::move(done));
}

void Connection::flush() {
  held_.flush();
  if (stage_ == Stage::open && held_.flushed() != 0) seal(kRound);
  if (ctx_ != nullptr) ctx_->flush();
}

// Encrypts what was flushed, up to `budget` bytes. The rest follows when the kernel has taken these: a peer
// that does not read costs plaintext, not both.
void Connection::seal(std::size_t budget) {
  if (isSending_ || (roundUnderWay_ && budget != kNoLimit)) return;
  const std::shared_ptr<Connection> alive = shared_from_this();
  if (!session_->mayWrite()) return;
  useSession();
  do {
    std::size_t left = budget;
    while (held_.flushed() != 0 && left != 0) {
      dropCancelled();
      if (held_.flushed() == 0) break;
      const bool isAlone = held_.flushed() == 1;
      const bool isLarge = held_.front().readableBytes() >= Session::kRecord / 2;
      if (!(isAlone || isLarge ? sealFront(left) : gather(left))) {
        return fail(session_->failure("TLS", who()));
      }
    }
    // Handlers in front of us may write and flush through us in the middle of this.
    isSending_ = true;
    sendSealed(held_.flushed() != 0);
    isSending_ = false;
  } while (!isGone() && !roundUnderWay_ && held_.flushed() != 0);
  if (endsLater_ && !isGone()) endOutput();
}

void Connection::dropCancelled() {
  while (held_.flushed() != 0 && !held_.beginFront()) held_.pop(channel());
}

bool Connection::sealFront(std::size_t& budget) {
  ByteBuf& bytes = held_.front();
  const std::size_t count = std::min(bytes.readableBytes(), budget);
  if (session_->write(bytes.data().first(count)) != Session::Step::done) return false;
  bytes.skipBytes(count);
  budget -= count;
  if (!bytes) popSealed();
  return true;
}

// Most writers do not wait.
void Connection::popSealed() {
  Promise<void> done = held_.pop(channel());
  if (done.valid()) sealed_.push_back(std::move(done));
}

// Small writes share a record.
bool Connection::gather(std::size_t& budget) {
  ByteBuf record = ctx_->allocate(Session::kRecord);
  while (held_.flushed() != 0) {
    dropCancelled();
    if (held_.flushed() == 0) break;
    ByteBuf& bytes = held_.front();
    if (bytes.readableBytes() > Session::kRecord - record.readableBytes()) break;
    record.writeBytes(bytes.data());
    popSealed();
  }
  budget -= std::min(budget, record.readableBytes());
  return session_->write(record.data()) == Session::Step::done;
}

// The last of the buffers carries those who wait for what is in them.
void Connection::sendSealed(bool goesOn) {
  ByteBuf last;
  session_->output([&](ByteBuf&& bytes) {
    if (last && ctx_ != nullptr) ctx_->write(Message(std::move(last)));
    last = std::move(bytes);
  });
  if (ctx_ == nullptr) return;
  if (!goesOn && sealed_.empty()) {
    if (last) ctx_->write(Message(std::move(last)));
    return;
  }
  if (!goesOn && sealed_.size() == 1) {
    Promise<void> done = std::move(sealed_.front());
    sealed_.clear();
    ctx_->write(Message(std::move(last)), std::move(done));
    return;
  }
  roundUnderWay_ = goesOn;
  Promise<void> all(channel().loop());
  all.future().addListener([self = goesOn ? shared_from_this() : nullptr,
                            waiting = std::exchange(sealed_, {})](const Result<void>& result) {
    for (const Promise<void>& each : waiting) each.tryComplete(result);
    if (self == nullptr) return;
    self->roundUnderWay_ = false;
    if (self->isGone()) return;
    self->channel().inEvent([&] {
      // What a handler in front of us did not let through is a hole in the stream.
      if (!result.ok()) return self->fail(result.error());
      self->seal(kRound);
      if (self->ctx_ != nullptr) self->ctx_->flush();
    });
  });
  ctx_->write(Message(std::move(last)), std::move(all));
}

bool Connection::sendOutput() {
  if (!session_->hasOutput()) return true;
  const bool wasSending = std::exchange(isSending_, true);  // as in seal()
  session_->output([this](ByteBuf&& bytes) {
    if (ctx_ != nullptr) ctx_->write(Message(std::move(bytes)));
  });
  isSending_ = wasSending;
  if (ctx_ != nullptr) ctx_->flush();
  return ctx_ != nullptr;
}

// --- the end ---

void Connection::close(Promise<void>&& done) {
  const std::shared_ptr<Connection> alive = shared_from_this();
  const ChannelPtr keep(&channel());
  if (stage_ != Stage::open || (saidClose_ && closeIsSent_ && gotClose_)) {
    if (stage_ != Stage::failed && stage_ != Stage::gone && stage_ != Stage::open) {
      giveUp(Error(Errc::closed, "TLS handshake", "the channel is closed"));
    }
    if (ctx_ != nullptr) return ctx_->close(std::move(done));
    keep->close();  // a handler has removed us meanwhile
    done.trySuccess();
    return;
  }
  closers_.push_back(std::move(done));
  if (std::exchange(isClosing_, true)) return;
  isLeaving_ = true;
  endOutput();
  if (isGone()) return;
  if (settings().closeTimeout.count() <= 0) return finishClose();
  setTimer(settings().closeTimeout, &Connection::finishClose);
  setReadPause(Channel::ReadPause::never);
  if (!channel().isAutoRead()) ctx_->read();
  if (!isGone()) closeIfOver();
}

void Connection::endOutput() {
  if (stage_ != Stage::open || saidClose_) return;
  if (isSending_ || !session_->mayWrite()) {
    endsLater_ = true;  // behind what is being sent, or when it can be
    return;
  }
  if (held_.flushed() != 0) seal(kNoLimit);
  if (isGone() || saidClose_) return;
  sayClose();
  if (ctx_ != nullptr && !held_.empty()) {
    failHeld(Error(Errc::closed, "write", "TLS to " + who()));
  }
}

void Connection::closingGracefully() {
  isLeaving_ = true;
  if (stage_ == Stage::open) return endOutput();
  if (stage_ == Stage::idle || stage_ == Stage::failed || stage_ == Stage::gone) return;
  giveUp(Error(Errc::closed, "TLS handshake", "the channel closes"));
}

void Connection::endOutputLater() {
  endsLater_ = true;
  endOutput();
}

void Connection::sayClose() {
  saidClose_ = true;
  session_->closeNotify();
  ByteBuf last;
  session_->output([&](ByteBuf&& bytes) { last = std::move(bytes); });
  Promise<void> sent(channel().loop());
  sent.future().addListener([self = shared_from_this()] {
    self->closeIsSent_ = true;
    if (self->ctx_ != nullptr) self->channel().inEvent([&] { self->closeIfOver(); });
  });
  ctx_->write(Message(std::move(last)), std::move(sent));
  if (ctx_ != nullptr) ctx_->flush();
}

void Connection::closeIfOver() {
  if (ctx_ != nullptr && isClosing_ && closeIsSent_ && (gotClose_ || inputEnded_)) finishClose();
}

void Connection::finishClose() {
  if (ctx_ == nullptr) return;
  if (timer_.valid()) timer_.cancel();
  timer_ = {};
  std::vector<Promise<void>> waiting = std::exchange(closers_, {});
  Promise<void> done(channel().loop());
  done.future().addListener([all = std::move(waiting)](const Result<void>& result) {
    for (const Promise<void>& each : all) each.tryComplete(result);
  });
  ctx_->close(std::move(done));
}

void Connection::failHeld(const Error& why) {
  Channel& whose = channel();  // a listener may remove us
  for (const Promise<void>& each : std::exchange(sealed_, {})) each.tryFailure(why);
  while (!held_.empty()) {
    const Promise<void> done = held_.pop(whose);
    done.tryFailure(why);
  }
}

void Connection::inactive() {
  const std::shared_ptr<Connection> alive = shared_from_this();
  const Error cause = channel().closeCause();
  if (stage_ == Stage::open) {
    const bool isCut = !gotClose_ && !isLeaving_ && !inputEnded_ && !cause;
    // From here on nothing is taken any more.
    failure_ = cause ? cause : Error(Errc::closed, "write", "TLS to " + who());
    stage_ = Stage::gone;
    if (isCut) ctx_->fireExceptionCaught(Error(make_error_code(TlsErrc::truncated), "TLS", who()));
    if (ctx_ != nullptr) failHeld(failure_);
  } else if (stage_ != Stage::failed && stage_ != Stage::gone && stage_ != Stage::idle) {
    giveUp(cause ? cause
                 : Error(Errc::closed, "TLS handshake", who() + " has closed the connection"));
  }
  for (const Promise<void>& each : std::exchange(closers_, {})) each.trySuccess();
}

void Connection::removed() {
  const Error why(Errc::closed, "TLS", "its handler was removed");
  Channel& left = channel();
  setReadPause(Channel::ReadPause::automatic);
  warm_.leave();
  Context* ctx = std::exchange(ctx_, nullptr);
  const Stage before = std::exchange(stage_, stage_ == Stage::failed ? Stage::failed : Stage::gone);
  if (!failure_) failure_ = why;
  for (const Promise<void>& each : std::exchange(sealed_, {})) each.tryFailure(failure_);
  if (timer_.valid()) timer_.cancel();
  timer_ = {};
  while (!held_.empty()) {
    const Promise<void> done = held_.pop(left);
    done.tryFailure(failure_);
  }
  handshake_.tryFailure(failure_);
  // Somebody has asked for a close, and we are not there any more to see to it.
  if (isClosing_ && left.isOpen()) left.close();
  for (const Promise<void>& each : std::exchange(closers_, {})) each.trySuccess();
  // The session stays: it may be on the stack, or a thread of the pool may work on it.
  ByteBuf unread = hello_ ? hello_->takeBytes() : ByteBuf();
  if (before == Stage::queued) unread = session_->takeInput();
  hello_.reset();
  if (!left.isOpen()) return;
  if (unread) ctx->fireChannelRead(Message(std::move(unread)));
}

}  // namespace millrace::tls
