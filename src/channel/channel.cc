// SPDX-License-Identifier: Apache-2.0
// The calls of any thread: they hop to the loop and enter the pipeline at its last handler.
#include "channel/channel_fast.h"
#include "channel/channel_hop.h"
#include "channel/channel_rare.h"
#include "channel/context_invoke.h"
#include "channel/end_state.h"
#include "channel/loop_channels.h"

#include <millrace/base/attribute_map.h>
#include <millrace/base/log.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/channel_events.h>
#include <millrace/channel/message.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/socket_address.h>

#include <utility>

namespace millrace {

namespace {

Atomic<std::uint64_t> nextId{1};

const ChannelSettings kDefaultSettings;

}  // namespace

Channel::Channel(EventLoop& loop)
    : loop_(&loop),
      id_(nextId.fetch_add(1, std::memory_order_relaxed)),
      pipeline_(*this),
      settings_(&kDefaultSettings) {
  loop.ref();
}

Channel::~Channel() {
  if (internal::ResultState<void>* state = closeState_.load(std::memory_order_acquire)) {
    state->complete(Result<void>());
    state->unref();
  }
  delete attributes_.load(std::memory_order_acquire);
  if (settings_ != &kDefaultSettings) delete settings_;
  delete outbound_;
  loop_->unref();
}

void Channel::replaceSettings(const ChannelSettings& settings) {
  const ChannelSettings* old = std::exchange(settings_, new ChannelSettings(settings));
  if (old != &kDefaultSettings) delete old;
}

bool Channel::inLoop() const noexcept { return loop_->inEventLoop(); }
BufferPool& Channel::pool() const noexcept { return local_->pool(); }

SocketAddress Channel::localAddress() const { return {}; }
SocketAddress Channel::remoteAddress() const { return {}; }

std::string Channel::describe() const {
  std::string text = "[" + std::to_string(id_) + " " + kind();
  if (const SocketAddress local = localAddress()) text += " " + local.toString();
  if (const SocketAddress remote = remoteAddress()) {
    text += (parent_ ? " <- " : " -> ") + remote.toString();
  }
  if (!isOpen()) text += ", closed";
  return text + "]";
}

void Channel::unhandledRead(Message&) noexcept {}
void Channel::unhandledEvent(Message&) noexcept {}
void Channel::unhandledError(const Error& error) noexcept {
  log(LogLevel::warn, "channel", describe(),
      ": an error reached the end of the pipeline, override exceptionCaught() to handle it: ",
      error.message());
}

AttributeMap& Channel::attributes() {
  AttributeMap* there = attributes_.load(std::memory_order_acquire);
  if (there != nullptr) return *there;
  auto made = std::make_unique<AttributeMap>();
  if (attributes_.compare_exchange_strong(there, made.get(), std::memory_order_acq_rel)) {
    there = made.release();
  }
  return *there;
}

// Not before kClosed: without kOpen the descriptor may still be there.
Future<void> Channel::closeFuture() {
  using State = internal::ResultState<void>;
  return Future<void>::ofState(
      Ref<State>(&internal::endState(closeState_, state_, kClosed, *loop_)));
}

Error Channel::closeCause() const { return rare_ == nullptr ? Error() : rare_->closeCause; }

Channel::Rare& Channel::rare() {
  if (rare_ == nullptr) rare_ = std::make_unique<Rare>();
  return *rare_;
}

Error Channel::closedError(const char* operation) const {
  const Error cause = closeCause();
  std::string detail = describe();
  if (cause) detail += " (closed by: " + cause.message() + ")";
  return {Errc::closed, operation, detail};
}

// --- operations ---

// A channel that is closed, and whose loop has ended, needs nobody to close it.
bool Channel::isSettled(Event event) const noexcept {
  return event == Event::close && !isOpen() && loop_->isShutdown();
}

Future<void> Channel::bind(const SocketAddress& local) {
  return hopWithFuture([this, local](Promise<void>&& done) {
    if (Context* last = pipeline_.lastFor(Event::bind)) {
      return last->invokeOutbound(
          done, [&](ChannelHandler& handler) { handler.bind(*last, local, std::move(done)); });
    }
    bindInLoop(local, std::move(done));
  });
}

Future<void> Channel::connect(const SocketAddress& remote) {
  return connect(remote, SocketAddress());
}

Future<void> Channel::connect(const SocketAddress& remote, const SocketAddress& local) {
  return hopWithFuture([this, remote, local](Promise<void>&& done) {
    if (Context* last = pipeline_.lastFor(Event::connect)) {
      return last->invokeOutbound(done, [&](ChannelHandler& handler) {
        handler.connect(*last, remote, local, std::move(done));
      });
    }
    connectInLoop(remote, local, std::move(done));
  });
}

#define MILLRACE_OPERATION(event)                                                           \
  Future<void> Channel::event() {                                                           \
    if (isSettled(Event::event)) return closeFuture();                                      \
    return hopWithFuture([this](Promise<void>&& done) {                                     \
      if (Context* last = pipeline_.lastFor(Event::event)) {                                \
        return last->invokeOutbound(                                                        \
            done, [&](ChannelHandler& handler) { handler.event(*last, std::move(done)); }); \
      }                                                                                     \
      event##InLoop(std::move(done));                                                       \
    });                                                                                     \
  }
MILLRACE_OPERATION(disconnect)
MILLRACE_OPERATION(close)
MILLRACE_OPERATION(deregister)
#undef MILLRACE_OPERATION

void Channel::read() {
  hop([this] { enterRead(); });
}

void Channel::enterRead() {
  if (Context* last = pipeline_.lastFor(Event::read)) {
    return last->invoke([&](ChannelHandler& handler) { handler.read(*last); });
  }
  readInLoop();
}

void Channel::write(Message&& msg, Promise<void> done) {
  if (inLoop()) {
    const Scope scope(*this);
    return enterWrite(std::move(msg), std::move(done));
  }
  hop([this, msg = std::move(msg), done = TravellingPromise(std::move(done))]() mutable {
    enterWrite(std::move(msg), done.arrive());
  });
}

void Channel::enterWrite(Message&& msg, Promise<void>&& done) {
  if (Context* last = pipeline_.lastFor(Event::write)) {
    return last->invokeOutbound(done, [&](ChannelHandler& handler) {
      handler.write(*last, std::move(msg), std::move(done));
    });
  }
  writeInLoop(std::move(msg), std::move(done));
}

void Channel::flush() {
  hop([this] { enterFlush(); });
}

void Channel::enterFlush() {
  if (Context* last = pipeline_.lastFor(Event::flush)) {
    return last->invoke([&](ChannelHandler& handler) { handler.flush(*last); });
  }
  flushInLoop();
}

void Channel::writeAndFlush(Message&& msg, Promise<void> done) {
  hop([this, msg = std::move(msg), done = TravellingPromise(std::move(done))]() mutable {
    enterWrite(std::move(msg), done.arrive());
    enterFlush();
  });
}

Future<void> Channel::send(Message&& msg) {
  return hopWithFuture([this, msg = std::move(msg)](Promise<void>&& done) mutable {
    enterWrite(std::move(msg), std::move(done));
    enterFlush();
  });
}

void Channel::flushNow() {
  loop_->assertInEventLoop();
  const Scope scope(*this);
  spill();
  if (outbound_ == nullptr) return;
  outbound_->addFlush();
  writePending();
}

Future<void> Channel::shutdownOutput() {
  return hopWithFuture([this](Promise<void>&& done) {
    if (isActive() && (flags_ & (kOutputEnded | kEndOutputAfterFlush)) == 0) {
      pipeline_.fireUserEventTriggered(Message(EndingOutput{}));
    }
    shutdownOutputInLoop(std::move(done));
  });
}

Future<void> Channel::closeGracefully() {
  hop([this] {
    lingerInLoop();
    watchLinger(LoopChannels::unwritten(*this));
  });
  return closeFuture();
}

void Channel::setAutoRead(bool on) { static_cast<void>(setOption(options::autoRead, on)); }

// --- options ---

Future<void> Channel::setOptionValue(const OptionKey& key, OptionValue value) {
  return hopWithFuture([this, &key, value = std::move(value)](Promise<void>&& done) {
    done.tryComplete(applyOption(key, value));
  });
}

Future<OptionValue> Channel::optionValue(const OptionKey& key) {
  if (pipeline_.mayChangeHere()) return Future<OptionValue>::of(lookUpOption(key));
  Promise<OptionValue> promise(*loop_);
  Future<OptionValue> future = promise.future();
  hop([this, &key, done = std::move(promise)] { done.tryComplete(lookUpOption(key)); });
  return future;
}

}  // namespace millrace
