// SPDX-License-Identifier: Apache-2.0
// How a channel is registered, bound, connected, closed and forgotten. Loop thread.
// docs/design/channel-life.md shows the states and the order of events.
#include "channel/channel_fast.h"
#include "channel/channel_hop.h"
#include "channel/channel_rare.h"
#include "channel/end_state.h"
#include "channel/loop_channels.h"

#include <millrace/base/log.h>
#include <millrace/channel/channel_events.h>
#include <millrace/loop/event_loop.h>

#include <cerrno>
#include <string>
#include <utility>

namespace millrace {

// --- registration ---

Future<void> registerChannel(EventLoop& loop, const ChannelPtr& channel) {
  Promise<void> promise(loop);
  Future<void> future = promise.future();
  if (&channel->loop() != &loop) {
    promise.tryFailure(Error(Errc::notSupported, "register",
                             channel->describe() + " belongs to " + channel->loop().name() +
                                 " and cannot move to " + loop.name()));
    return future;
  }
  channel->set(Channel::kTouched);
  if (loop.inEventLoop()) {
    channel->registerInLoop(std::move(promise), nullptr);
    return future;
  }
  Task task = [channel, done = std::move(promise)]() mutable {
    channel->registerInLoop(std::move(done), nullptr);
  };
  if (!loop.isShutdown() && loop.executeOwn(std::move(task))) return future;
  // The loop will never have it: nobody else can touch the channel any more.
  const Error why(Errc::rejected, "register", loop.name() + " (it is shut down)");
  log(LogLevel::warn, "channel", channel->describe(), ": ", why.message());
  channel->local_ = nullptr;  // from an earlier registration, and gone with the loop
  channel->closeNow(why);
  return Future<void>::of(why);
}

// The order of events is part of the contract: see docs/design/channel-life.md.
bool Channel::registerInLoop(Promise<void>&& done, const std::function<void(Channel&)>* fill) {
  const Scope scope(*this);
  if (!isOpen()) {
    done.tryFailure(closedError("register"));
    return false;
  }
  if (isRegistered()) {
    done.tryFailure(Error(Errc::rejected, "register", describe() + " is registered already"));
    return false;
  }
  if (done.valid() && !done.setUncancellable()) {
    closeNow(Error(Errc::cancelled, "register", describe()));
    return false;
  }
  if (loop_->isShutdown()) {
    local_ = nullptr;  // from an earlier registration
    stopRegistering(Error(Errc::rejected, "register", loop_->name() + " (it is shut down)"), done);
    return false;
  }
  local_ = &LoopChannels::of(*loop_);
  if (Result<void> registered = doRegister(); !registered) {
    stopRegistering(registered.error(), done);
    return false;
  }
  ref();  // the registration's
  // Handlers may write as soon as they are added; channelActive() follows.
  set(kRegistered | (isActiveNow() ? kActive : 0));
  local_->add(*this);
  pipeline_.callPendingAdded();
  if (fill != nullptr) fillPipeline(*fill);
  done.trySuccess();
  pipeline_.fireChannelRegistered();
  if (isOpen() && isActiveNow()) becomeActive();
  // While it was away nobody told it that there is room, and nothing was sent or read.
  if (isOpen() && isActive() && hasFlushed()) flushAgain();
  if (mayReadOn() && isActive() && !isAutoRead()) doBeginRead();
  if (isOpen() && loop_->isShuttingDown()) lingerInLoop();
  return true;
}

bool Channel::registerNow(const std::function<void(Channel&)>& fill, Promise<void> done) {
  loop_->assertInEventLoop();
  set(kTouched);
  return registerInLoop(std::move(done), fill ? &fill : nullptr);
}

void Channel::fillPipeline(const std::function<void(Channel&)>& fill) {
  try {
    fill(*this);
  } catch (...) {
    const Error error = Error::fromCurrentException("initializer of the channel");
    pipeline_.fireExceptionCaught(error);
    closeNow(error);
  }
}

void Channel::stopRegistering(const Error& why, Promise<void>& done) {
  log(LogLevel::warn, "channel", describe(), " cannot be registered: ", why.message());
  closeNow(why);
  done.tryFailure(why);
}

// Told once in the life of a channel, however often it is registered.
void Channel::becomeActive() {
  set(kActive);
  if ((flags_ & kEverActive) == 0) {
    mark(kEverActive);
    pipeline_.fireChannelActive();
  }
  readAgainIfAutomatic();
}

// Whatever is on the stack ends first: the channel leaves in settle().
void Channel::deregisterInLoop(Promise<void>&& done) {
  if (done.valid() && !done.setUncancellable()) return;
  if (!isRegistered()) {
    done.trySuccess();
    return;
  }
  writePending();
  mark(kDeregistering);
  mustSettle_ = true;
  rare().deregisterers.push_back(std::move(done));
}

// --- bind and connect ---

void Channel::bindInLoop(const SocketAddress& local, Promise<void>&& done) {
  if (done.valid() && !done.setUncancellable()) return;
  if (!isOpen()) {
    done.tryFailure(closedError("bind"));
    return;
  }
  if (!isRegistered()) {
    done.tryFailure(Error(Errc::notSupported, "bind", describe() + " is not registered yet"));
    return;
  }
  if (Result<void> bound = doBind(local); !bound) {
    done.tryFailure(bound.error());
    return;
  }
  // Whoever waits for the future finds it active.
  const bool first = !isActive() && isActiveNow();
  if (first) set(kActive);
  done.trySuccess();
  if (first && isOpen()) becomeActive();
}

void Channel::connectInLoop(const SocketAddress& remote, const SocketAddress& local,
                            Promise<void>&& done) {
  if (done.valid() && !done.setUncancellable()) return;
  if (!isOpen()) {
    done.tryFailure(closedError("connect"));
    return;
  }
  if (!isRegistered()) {
    done.tryFailure(Error(Errc::notSupported, "connect", describe() + " is not registered yet"));
    return;
  }
  if (isConnecting() || (isActive() && remoteAddress())) {
    done.tryFailure(Error::fromErrno(isConnecting() ? EALREADY : EISCONN, "connect",
                                     remote.toString() + " on " + describe()));
    return;
  }
  Result<bool> connected = doConnect(remote, local);
  if (!connected) {
    done.tryFailure(connected.error());
    closeNow(connected.error());
    return;
  }
  addressesAreKnown();
  if (*connected) {
    const bool first = !isActive();
    set(kActive);
    done.trySuccess();
    if (first && isOpen()) becomeActive();
    return;
  }
  Rare& more = rare();
  mark(kConnecting);
  more.connected = std::move(done);
  more.connectingTo = remote;
  if (settings_->connectTimeout.count() <= 0) return;
  more.timer = loop_->schedule(settings_->connectTimeout, [self = ChannelPtr(this)] {
    if (!self->isConnecting()) return;
    self->connectDone(
        Error(Errc::timedOut, "connect",
              self->rare().connectingTo.toString() + " (no answer within " +
                  std::to_string(self->settings_->connectTimeout.count() / 1'000'000) +
                  " ms, see options::connectTimeout)"));
  });
}

void Channel::connectDone(const Error& failure) {
  if (!isConnecting()) return;
  const Scope scope(*this);
  unmark(kConnecting);
  Rare& more = rare();
  if (more.timer.valid()) more.timer.cancel();
  more.timer = {};
  const Promise<void> done = std::move(more.connected);
  if (failure) {
    done.tryFailure(failure);
    closeNow(failure);
    return;
  }
  set(kActive);
  done.trySuccess();
  if (!isOpen()) return;
  becomeActive();
  if (isOpen() && hasFlushed()) writePending();
}

void Channel::disconnectInLoop(Promise<void>&& done) {
  if (done.valid() && !done.setUncancellable()) return;
  if (!isOpen()) {
    done.tryFailure(closedError("disconnect"));
    return;
  }
  done.tryComplete(doDisconnect());
}

Result<void> Channel::doBind(const SocketAddress&) {
  return Error(Errc::notSupported, "bind", describe());
}
Result<bool> Channel::doConnect(const SocketAddress&, const SocketAddress&) {
  return Error(Errc::notSupported, "connect", describe());
}
// Streams have no other way to leave their peer.
Result<void> Channel::doDisconnect() {
  closeInLoop({});
  return {};
}
Result<void> Channel::doShutdownOutput() {
  return Error(Errc::notSupported, "shutdownOutput", describe());
}

// --- the end ---

// What was flushed gets one last attempt.
void Channel::closeInLoop(Promise<void>&& done) {
  if (done.valid() && !done.setUncancellable()) return;
  const Scope scope(*this);
  if (!isOpen()) {
    done.trySuccess();
    return;
  }
  if ((flags_ & kInFlush) != 0) {
    mark(kCloseAfterFlush);
    rare().closers.push_back(std::move(done));
    return;
  }
  spill();
  if (hasUnsent() && isActive()) writeLastTime();
  closeNow({});
  done.trySuccess();
}

void Channel::failWith(const Error& error) {
  const Scope scope(*this);
  if (!isOpen()) return;
  pipeline_.fireExceptionCaught(error);
  closeNow(error);
}

// Handlers hear of it when no callback is on the stack any more: in settle().
void Channel::closeNow(const Error& cause) {
  if (!isOpen()) return;
  const Scope scope(*this);
  spill();
  if (isActive() && (flags_ & kEverActive) != 0) mark(kTellInactive);
  if (cause) rare().closeCause = cause;
  unset(kOpen | kActive);
  internal::awaitLookers(state_, kPinned);
  doClose();
  internal::tellEnd(closeState_, state_, kClosed);
  if (rare_ != nullptr) {
    if (rare_->timer.valid()) rare_->timer.cancel();
    unmark(kConnecting);
    if (const Promise<void> connected = std::move(rare_->connected); connected.valid()) {
      connected.tryFailure(closedError("connect"));
    }
    for (const Promise<void>& each : std::exchange(rare_->closers, {})) each.trySuccess();
    for (const Promise<void>& each : std::exchange(rare_->outputEnders, {})) {
      each.tryFailure(closedError("shutdownOutput"));
    }
  }
  // What waits fails with what broke the connection, if something did.
  if (outbound_ != nullptr) takeAwayOutbound(cause ? cause : closedError("write"));
  mustSettle_ = true;
}

// No callback of this channel is on the stack.
void Channel::settle() noexcept {
  bool gone = false;
  depth_ = 1;
  while (mustSettle_) {
    mustSettle_ = false;
    pipeline_.freeBuried();
    if (!isOpen()) {
      if ((flags_ & kTellInactive) != 0) {
        unmark(kTellInactive);
        pipeline_.fireChannelInactive();
      }
      gone = leaveLoop() || gone;
      if ((flags_ & kFinished) == 0) {
        mark(kFinished);
        pipeline_.removeAll();
        pipeline_.freeBuried();
      }
    } else if ((flags_ & kDeregistering) != 0) {
      unmark(kDeregistering);
      doDeregister();
      gone = leaveLoop() || gone;
    }
    if (rare_ != nullptr) {
      for (const Promise<void>& each : std::exchange(rare_->deregisterers, {})) each.trySuccess();
    }
  }
  depth_ = 0;
  if (!gone) return;
  if ((flags_ & (kDirty | kLeaveWhenClean)) == kDirty) {
    mark(kLeaveWhenClean);  // the list of dirty ones still knows it
  } else {
    unref();
  }
}

// True if the registration's reference is to be given up.
bool Channel::leaveLoop() noexcept {
  if (!isRegistered()) return false;
  unset(kRegistered);
  local_->remove(*this);
  pipeline_.fireChannelUnregistered();
  return true;
}

// --- lingering: nothing that was written is lost to a reset ---

void Channel::lingerInLoop() {
  const Scope scope(*this);
  if (!isOpen() || isLingering()) return;
  if (!isActive()) {
    closeInLoop({});
    return;
  }
  mark(kLingering | kInputEnded);
  unmark(kPaused);
  // The last moment for handlers to say something.
  pipeline_.fireUserEventTriggered(Message(ClosingGracefully{}));
  if (!isOpen()) return;
  if (!canLinger()) {
    closeInLoop({});
    return;
  }
  if ((flags_ & kOutputEnded) != 0) {
    beginLinger();
    return;
  }
  shutdownOutputInLoop({});
  // A peer that sends before it reads must not keep us from writing.
  if (isOpen() && !isOutputEnded()) doLinger();
}

// A slow peer may take its time, one that reads nothing may not. Drains and the ends of loops have
// deadlines of their own.
void Channel::watchLinger(std::size_t pending) {
  if (!isOpen() || !isLingering() || isOutputEnded()) return;
  if (settings_->lingerOnDrain.count() <= 0) return;
  rare().timer = local_->after(settings_->lingerOnDrain, [self = ChannelPtr(this), pending] {
    if (!self->isOpen() || self->isOutputEnded()) return;
    const std::size_t left = LoopChannels::unwritten(*self);
    if (left < pending) return self->watchLinger(left);
    const Scope scope(*self);
    LoopChannels::cut(
        *self, Error(Errc::timedOut, "closeGracefully",
                     self->describe() + " (its peer reads nothing, see options::lingerOnDrain)"));
  });
}

// The loop has cancelled its timers: that of the lingering, and those of writes to be tried again.
void Channel::lingerWithLoop() {
  const Scope scope(*this);
  if (isLingering() && isOutputEnded()) {
    beginLinger();
    return;
  }
  lingerInLoop();
  if (isOpen() && (flags_ & kFullKernel) != 0) flushAgain();
}

// The output is ended: what is left is to wait for the peer's end.
void Channel::beginLinger() {
  if (settings_->lingerOnDrain.count() <= 0) {
    closeNow({});
    return;
  }
  rare().timer =
      local_->after(settings_->lingerOnDrain, [self = ChannelPtr(this)] { self->lingerDone(); });
  doLinger();
}

void Channel::lingerDone() { closeNow({}); }

// --- input ---

void Channel::readInLoop() {
  if (!isOpen() || !isActive()) return;
  mark(kReadWanted);
  if ((flags_ & (kPaused | kInputEnded)) == 0) doBeginRead();
}

void Channel::readAgainIfAutomatic() {
  if (isAutoRead() && isOpen()) enterRead();
}

// Each read() brings one burst. With auto read the next read() comes by itself when it has ended, and
// need not be made where no handler wants to see it.
void Channel::askForMore(bool hasRead) {
  if (!hasRead) {
    mark(kReadWanted);  // it was asked for, and has not come
    return;
  }
  readAgainIfAutomatic();
  if (isOpen() && (flags_ & kReadWanted) == 0) doStopRead();
}

void Channel::inputEnded() {
  const Scope scope(*this);
  if (!isOpen() || (flags_ & kInputEnded) != 0) return;
  mark(kInputEnded);
  if (!settings_->allowHalfClosure || (flags_ & kOutputEnded) != 0) {
    closeInLoop({});
    return;
  }
  doStopRead();
  pipeline_.fireUserEventTriggered(Message(InputShutdown{}));
}

}  // namespace millrace
