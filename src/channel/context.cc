// SPDX-License-Identifier: Apache-2.0
#include "channel/channel_fast.h"
#include "channel/context_invoke.h"
#include "channel/loop_channels.h"
#include "loop/readable_name.h"

#include <millrace/base/log.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/future.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/socket_address.h>

#include <stdexcept>
#include <utility>

namespace millrace {

namespace {

constexpr EventMask bitOf(Event event) noexcept { return static_cast<EventMask>(event); }

}  // namespace

Context::~Context() = default;

ChannelPipeline& Context::pipeline() const noexcept { return channel_->pipeline(); }
EventLoop& Context::loop() const noexcept { return channel_->loop(); }
bool Context::isInLoop() const noexcept { return channel_->loop().inEventLoop(); }

void Context::wrongThread() const {
  throw std::logic_error("a Context of " + channel_->describe() + " belongs to " +
                         channel_->loop().name() +
                         "; from other threads use the Channel, which hops by itself");
}

// Those made up count the handlers of the same class before it.
std::string Context::name() const {
  if (name_ != nullptr) return *name_;
  std::size_t before = 0;
  for (const Context* each = previous_; each != nullptr; each = each->previous_) {
    if (each->name_ == nullptr && *each->type_->type == *type_->type) ++before;
  }
  std::string type = readableName(*type_->type);
  if (const std::size_t colon = type.rfind("::"); colon != type.npos) type.erase(0, colon + 2);
  return type + "#" + std::to_string(before);
}

ByteBuf Context::allocate(std::size_t capacity) const {
  checkInLoop();
  return LoopChannels::of(channel_->loop()).pool().allocate(capacity);
}

// --- finding and calling handlers ---

inline Context* Context::nextFor(Event event) const noexcept {
  Context* each = next_;
  while (each != nullptr && (each->mask_ & bitOf(event)) == 0) each = each->next_;
  return each;
}

inline Context* Context::previousFor(Event event) const noexcept {
  Context* each = previous_;
  while (each != nullptr && (each->mask_ & bitOf(event)) == 0) each = each->previous_;
  return each;
}

void Context::invokeRead(Message&& msg) noexcept {
  invoke([&](ChannelHandler& handler) { handler.channelRead(*this, std::move(msg)); });
}

[[gnu::noinline]] void Context::failed() noexcept {
  caught(Error::fromCurrentException(readableName(*type_->type)));
}

// Whoever waits for the operation is told; if nobody does, the handlers are.
[[gnu::noinline]] void Context::failedOutbound(Promise<void>& done) noexcept {
  Error error = Error::fromCurrentException(readableName(*type_->type));
  if (done.valid()) {
    done.tryFailure(std::move(error));
  } else {
    caught(error);
  }
}

// The handler that threw is the first to be told.
void Context::caught(const Error& error) noexcept {
  const bool wants = (mask_ & bitOf(Event::exceptionCaught)) != 0;
  tell(wants ? this : nextFor(Event::exceptionCaught), error);
}

void Context::tell(Context* target, const Error& error) const noexcept {
  if (target == nullptr) return channel_->unhandledError(error);
  try {
    target->handler_->exceptionCaught(*target, error);
  } catch (...) {
    log(LogLevel::warn, "channel", channel_->describe(), ": exceptionCaught() of ",
        readableName(*target->type_->type),
        " threw: ", Error::fromCurrentException("exceptionCaught").message(),
        ", while it was told of: ", error.message());
  }
}

// --- inbound ---

#define MILLRACE_FIRE(Name, event)                                             \
  void Context::fire##Name() {                                                 \
    checkInLoop();                                                             \
    const Channel::Scope scope(*channel_);                                     \
    if (Context* next = nextFor(Event::event)) {                               \
      next->invoke([next](ChannelHandler& handler) { handler.event(*next); }); \
    }                                                                          \
  }                                                                            \
  void ChannelPipeline::fire##Name() {                                         \
    const Channel::Scope scope(channel_);                                      \
    if (Context* next = firstFor(Event::event)) {                              \
      next->invoke([next](ChannelHandler& handler) { handler.event(*next); }); \
    }                                                                          \
  }
MILLRACE_FIRE(ChannelRegistered, channelRegistered)
MILLRACE_FIRE(ChannelUnregistered, channelUnregistered)
MILLRACE_FIRE(ChannelActive, channelActive)
MILLRACE_FIRE(ChannelInactive, channelInactive)
MILLRACE_FIRE(ChannelReadComplete, channelReadComplete)
MILLRACE_FIRE(ChannelWritabilityChanged, channelWritabilityChanged)
#undef MILLRACE_FIRE

void Context::fireChannelRead(Message&& msg) {
  checkInLoop();
  Channel& channel = *channel_;
  const Channel::Scope scope(channel);
  if (Context* next = nextFor(Event::channelRead)) {
    next->invokeRead(std::move(msg));
  } else {
    channel.unhandledRead(msg);
  }
  if (msg) channel.dropped(msg);
}

void ChannelPipeline::fireChannelRead(Message&& msg) {
  checkMayLook("fireChannelRead");
  const Channel::Scope scope(channel_);
  if (Context* next = firstFor(Event::channelRead)) {
    next->invokeRead(std::move(msg));
  } else {
    channel_.unhandledRead(msg);
  }
  if (msg) channel_.dropped(msg);
}

void Context::fireUserEventTriggered(Message&& event) {
  checkInLoop();
  const Channel::Scope scope(*channel_);
  if (Context* next = nextFor(Event::userEventTriggered)) {
    next->invoke(
        [&](ChannelHandler& handler) { handler.userEventTriggered(*next, std::move(event)); });
  } else {
    channel_->unhandledEvent(event);
  }
}

void ChannelPipeline::fireUserEventTriggered(Message&& event) {
  checkMayLook("fireUserEventTriggered");
  const Channel::Scope scope(channel_);
  if (Context* next = firstFor(Event::userEventTriggered)) {
    next->invoke(
        [&](ChannelHandler& handler) { handler.userEventTriggered(*next, std::move(event)); });
  } else {
    channel_.unhandledEvent(event);
  }
}

void Context::fireExceptionCaught(const Error& error) {
  checkInLoop();
  const Channel::Scope scope(*channel_);
  tell(nextFor(Event::exceptionCaught), error);
}

void ChannelPipeline::fireExceptionCaught(const Error& error) {
  checkMayLook("fireExceptionCaught");
  const Channel::Scope scope(channel_);
  if (first_ != nullptr) {
    first_->caught(error);
  } else {
    channel_.unhandledError(error);
  }
}

// --- outbound ---

void Context::bind(const SocketAddress& local, Promise<void> done) {
  checkInLoop();
  const Channel::Scope scope(*channel_);
  Context* target = previousFor(Event::bind);
  if (target == nullptr) return channel_->bindInLoop(local, std::move(done));
  target->invokeOutbound(
      done, [&](ChannelHandler& handler) { handler.bind(*target, local, std::move(done)); });
}

void Context::bind(const SocketAddress& local) { bind(local, Promise<void>()); }
void Context::connect(const SocketAddress& remote) { connect(remote, Promise<void>()); }
void Context::connect(const SocketAddress& remote, Promise<void> done) {
  connect(remote, SocketAddress(), std::move(done));
}
void Context::disconnect() { disconnect(Promise<void>()); }
void Context::close() { close(Promise<void>()); }
void Context::deregister() { deregister(Promise<void>()); }

void Context::connect(const SocketAddress& remote, const SocketAddress& local, Promise<void> done) {
  checkInLoop();
  const Channel::Scope scope(*channel_);
  Context* target = previousFor(Event::connect);
  if (target == nullptr) return channel_->connectInLoop(remote, local, std::move(done));
  target->invokeOutbound(done, [&](ChannelHandler& handler) {
    handler.connect(*target, remote, local, std::move(done));
  });
}

#define MILLRACE_ASK(event)                                                               \
  void Context::event(Promise<void> done) {                                               \
    checkInLoop();                                                                        \
    const Channel::Scope scope(*channel_);                                                \
    Context* target = previousFor(Event::event);                                          \
    if (target == nullptr) return channel_->event##InLoop(std::move(done));               \
    target->invokeOutbound(                                                               \
        done, [&](ChannelHandler& handler) { handler.event(*target, std::move(done)); }); \
  }
MILLRACE_ASK(disconnect)
MILLRACE_ASK(close)
MILLRACE_ASK(deregister)
#undef MILLRACE_ASK

// The channel's own end destroys nothing, so that it needs no Scope. Handlers on the way are apart, so
// that the usual way has nothing to save.

void Context::read() {
  checkInLoop();
  if (Context* target = previousFor(Event::read)) return readBy(*target);
  channel_->readInLoop();
}

[[gnu::noinline]] void Context::readBy(Context& target) {
  const Channel::Scope scope(*channel_);
  target.invoke([&](ChannelHandler& handler) { handler.read(target); });
}

void Context::write(Message&& msg) {
  checkInLoop();
  Context* target = previousFor(Event::write);
  if (__builtin_expect(target != nullptr, 0)) return writeBy(*target, msg);
  channel_->writeInLoop(std::move(msg));
}

void Context::write(Message&& msg, Promise<void> done) {
  checkInLoop();
  if (Context* target = previousFor(Event::write)) return writeBy(*target, msg, done);
  channel_->writeInLoop(std::move(msg), std::move(done));
}

[[gnu::noinline]] void Context::writeBy(Context& target, Message& msg) {
  Promise<void> none;
  writeBy(target, msg, none);
}

[[gnu::noinline]] void Context::writeBy(Context& target, Message& msg, Promise<void>& done) {
  const Channel::Scope scope(*channel_);
  target.invokeOutbound(done, [&](ChannelHandler& handler) {
    handler.write(target, std::move(msg), std::move(done));
  });
}

void Context::flush() {
  checkInLoop();
  Context* target = previousFor(Event::flush);
  if (__builtin_expect(target != nullptr, 0)) return flushBy(*target);
  channel_->flushInLoop();
}

[[gnu::noinline]] void Context::flushBy(Context& target) {
  const Channel::Scope scope(*channel_);
  target.invoke([&](ChannelHandler& handler) { handler.flush(target); });
}

void Context::writeAndFlush(Message&& msg) {
  checkInLoop();
  const Channel::Scope scope(*channel_);
  write(std::move(msg));
  flush();
}

void Context::writeAndFlush(Message&& msg, Promise<void> done) {
  checkInLoop();
  const Channel::Scope scope(*channel_);
  write(std::move(msg), std::move(done));
  flush();
}

}  // namespace millrace
