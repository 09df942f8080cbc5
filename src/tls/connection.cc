// SPDX-License-Identifier: Apache-2.0
// The handshake. What comes afterwards is in connection_data.cc.
#include "tls/connection.h"

#include "tls/handshake_gate.h"

#include <millrace/base/log.h>
#include <millrace/channel/context.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/socket_address.h>
#include <millrace/tls/tls_events.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace millrace::tls {

namespace {

constexpr std::uint8_t kUnexpectedMessage = 10;
constexpr std::uint8_t kDecodeError = 50;
constexpr std::uint8_t kUnrecognizedName = 112;
constexpr const char* kOperation = "TLS handshake";

/// What people send to a TLS port by mistake.
bool looksLikeHttp(const ByteBuf& bytes) {
  for (const std::string_view word : {"GET ", "POST ", "HEAD ", "PUT ", "PRI ", "CONNECT "}) {
    if (bytes.text().substr(0, word.size()) == word) return true;
  }
  return false;
}

}  // namespace

const AttributeKey<Error> kHandshakeFailure{"tls.handshake failure"};

Connection::Connection(const TlsContext& context, std::string host, std::uint16_t port)
    : context_(context), host_(std::move(host)), port_(port) {}

Channel& Connection::channel() const noexcept { return ctx_->channel(); }

std::string Connection::who() const {
  if (isClient()) return host_;
  return ctx_ == nullptr ? std::string() : channel().remoteAddress().toString();
}

void Connection::setReadPause(Channel::ReadPause when) {
  channel().changeReadPause(std::exchange(pause_, when), when);
}

// --- begin ---

void Connection::added(Context& ctx) {
  ctx_ = &ctx;
  if (channel().isActive()) begin();
}

void Connection::active() { begin(); }

void Connection::begin() {
  if (stage_ != Stage::idle) return;
  snapshot_ = context_.core().snapshot();
  // What is written meanwhile waits for input: it must not keep us from reading.
  setReadPause(Channel::ReadPause::never);
  setTimer(settings().handshakeTimeout, &Connection::handshakeTimedOut);
  if (isClient()) {
    beginClient();
  } else {
    stage_ = Stage::hello;
    hello_ = std::make_unique<ClientHelloReader>(settings().maxClientHello);
  }
  if (ctx_ != nullptr && !channel().isAutoRead()) ctx_->read();
}

void Connection::beginClient() {
  session_.emplace(snapshot_->contexts.front().get(), false);
  session_->allocateBy(ctx_);
  stage_ = Stage::handshaking;
  const bool verifies = settings().trust->kind() != TlsTrust::Kind::insecure;
  session_->setPeer(host_, port_, verifies);
  if (settings().resumption) {
    session_->resume(context_.core().sessions().take(session_->peer(), snapshot_->scope));
  }
  finishStep(session_->handshake());
}

// --- the first message of a client ---

void Connection::lookAtHello(ByteBuf&& bytes) {
  switch (hello_->feed(std::move(bytes))) {
    case ClientHelloReader::State::more:
      return;
    case ClientHelloReader::State::whole:
      return makeServer();
    case ClientHelloReader::State::broken:
      alert(kUnexpectedMessage);
      return fail(Error(make_error_code(TlsErrc::handshake), kOperation,
                        who() + ": its first message is no ClientHello"));
    case ClientHelloReader::State::tooLong:
      alert(kDecodeError);
      return fail(Error(make_error_code(TlsErrc::handshake), kOperation,
                        who() + ": its ClientHello is longer than " +
                            std::to_string(settings().maxClientHello) +
                            " bytes, see TlsContextBuilder::maxClientHello()"));
    case ClientHelloReader::State::notTls:
      const bool isHttp = looksLikeHttp(hello_->takeBytes());
      return fail(Error(make_error_code(TlsErrc::notTls), kOperation,
                        who() + (isHttp ? " speaks plain HTTP" : " does not speak TLS")));
  }
}

// OpenSSL gets the whole message at once.
void Connection::makeServer() {
  std::optional<std::string> name = hello_->serverName();
  SSL_CTX* chosen = snapshot_->contextFor(name ? &*name : nullptr);
  if (chosen == nullptr) {
    alert(kUnrecognizedName);
    fail(
        Error(make_error_code(TlsErrc::handshake), kOperation,
              who() + " asks for \"" + printable(*name) + "\", for which there is no certificate"));
    return;
  }
  session_.emplace(chosen, true);
  session_->allocateBy(ctx_);
  if (name) session_->setServerName(std::move(*name));
  session_->feed(hello_->takeBytes());
  hello_.reset();
  stage_ = Stage::handshaking;
  enterGate();
}

// --- step by step ---

// Every message of the peer's is work, and gets it from the pool, or in its turn.
void Connection::enterGate() {
  if (settings().pool != nullptr && offload()) return;
  EventLoop& loop = channel().loop();
  if (HandshakeGate::of(loop)->enter(loop, settings().handshakesPerTurn, shared_from_this())) {
    return stepHere();
  }
  ContextCore::count(context_.core().counters.delayed);
  stage_ = Stage::queued;
  setReadPause(Channel::ReadPause::always);
}

bool Connection::admitted() {
  if (stage_ != Stage::queued || ctx_ == nullptr) return false;
  channel().inEvent([this] {
    stage_ = Stage::handshaking;
    setReadPause(Channel::ReadPause::never);
    stepHere();
  });
  return true;
}

void Connection::stepHere() { finishStep(session_->handshake()); }

// The session belongs to a thread of the pool until worked().
bool Connection::offload() {
  stage_ = Stage::working;
  session_->allocateBy(nullptr);
  setReadPause(Channel::ReadPause::always);
  const ChannelPtr alive(&channel());
  const bool taken = settings().pool->tryExecute([self = shared_from_this(), alive] {
    const Session::Step step = self->session_->handshake();
    alive->loop().executeOwn([self, alive, step] { self->worked(step); });
  });
  if (taken) return true;
  stage_ = Stage::handshaking;
  session_->allocateBy(ctx_);
  setReadPause(Channel::ReadPause::never);
  return false;
}

void Connection::worked(Session::Step step) {
  if (stage_ != Stage::working || ctx_ == nullptr) return;
  channel().inEvent([&] {
    stage_ = Stage::handshaking;
    session_->allocateBy(ctx_);
    setReadPause(Channel::ReadPause::never);
    if (early_) session_->feed(std::move(early_));
    finishStep(step);
  });
}

void Connection::finishStep(Session::Step step) {
  if (!sendOutput() || stage_ != Stage::handshaking) return;
  switch (step) {
    case Session::Step::done:
      return handshakeDone();
    case Session::Step::wantsInput:
      if (session_->buffered() != 0) enterGate();  // came while the session was away
      return;
    default:
      return fail(session_->failure(kOperation, who()));
  }
}

void Connection::handshakeDone() {
  stage_ = Stage::open;
  wasOpen_ = true;
  if (timer_.valid()) timer_.cancel();
  timer_ = {};
  ContextCore::Counters& counters = context_.core().counters;
  ContextCore::count(counters.handshakes);
  if (session_->isResumed()) ContextCore::count(counters.resumed);
  setReadPause(Channel::ReadPause::automatic);
  handshake_.trySuccess();
  if (isGone()) return;  // a listener may do anything
  ctx_->fireUserEventTriggered(Message(TlsHandshakeCompletion{}));
  if (isGone()) return;
  if (held_.flushed() != 0) {
    seal(kRound);
    if (isGone()) return;
    ctx_->flush();
    if (isGone()) return;
  }
  if (endsLater_) endOutput();
  if (isGone()) return;
  readPlaintext();  // what came with the last message of the handshake
  if (ctx_ != nullptr && !inBurst_ && std::exchange(hasFired_, false)) {
    ctx_->fireChannelReadComplete();
  }
}

// --- when it does not work out ---

void Connection::setTimer(Duration limit, void (Connection::*then)()) {
  if (channel().loop().isShuttingDown()) return;  // it has time limits of its own
  if (timer_.valid()) timer_.cancel();
  timer_ = channel().loop().schedule(limit, [weak = weak_from_this(), then] {
    const std::shared_ptr<Connection> self = weak.lock();
    if (self == nullptr || self->ctx_ == nullptr) return;
    self->channel().inEvent([&] { ((*self).*then)(); });
  });
}

void Connection::handshakeTimedOut() {
  if (ctx_ == nullptr || stage_ == Stage::open || stage_ == Stage::failed) return;
  ContextCore::count(context_.core().counters.timedOut);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(settings().handshakeTimeout).count();
  fail(Error(Errc::timedOut, kOperation,
             who() + " (not done within " + std::to_string(millis) +
                 " ms, see TlsContextBuilder::handshakeTimeout())"));
}

/// A fatal alert in the clear, where there is no session yet.
void Connection::alert(std::uint8_t description) {
  hasAlerted_ = true;
  const std::uint8_t record[] = {21, 3, 1, 0, 2, 2, description};
  ctx_->writeAndFlush(Message(ByteBuf::of(std::as_bytes(std::span(record)))));
}

// The handshake will not be: whoever waits for it hears why.
void Connection::abandon(const Error& why) {
  failure_ = why;
  if (timer_.valid()) timer_.cancel();
  timer_ = {};
  const bool wasHandshake = !wasOpen_ && stage_ != Stage::idle;
  stage_ = Stage::failed;
  hello_.reset();
  early_ = ByteBuf();
  if (wasHandshake) {
    ContextCore::count(context_.core().counters.failed);
    if (ctx_ != nullptr) channel().attributes().set(kHandshakeFailure, why);
    handshake_.tryFailure(why);
    if (ctx_ != nullptr) ctx_->fireUserEventTriggered(Message(TlsHandshakeCompletion{why}));
  }
}

void Connection::giveUp(const Error& why) {
  abandon(why);
  if (ctx_ != nullptr) failHeld(why);
}

void Connection::fail(const Error& why) {
  if (ctx_ == nullptr || stage_ == Stage::failed || stage_ == Stage::gone) return;
  const std::shared_ptr<Connection> alive = shared_from_this();
  const ChannelPtr keep(&channel());
  // With an alert under way the close lingers: unread input would turn it into a reset, and the peer would
  // never learn what was wrong. A peer that says nothing is just left.
  const bool isAway = stage_ == Stage::working;
  const bool lingers = ((session_ && !isAway) || hasAlerted_) && !why.is(Errc::timedOut);
  if (session_ && !isAway && !sendOutput()) return;
  setReadPause(Channel::ReadPause::automatic);
  abandon(why);
  if (ctx_ != nullptr) ctx_->fireExceptionCaught(why);
  if (ctx_ != nullptr) failHeld(why);
  for (Promise<void>& each : std::exchange(closers_, {})) each.trySuccess();
  if (!keep->isOpen()) return;
  if (lingers) {
    keep->closeGracefully();
  } else if (ctx_ != nullptr) {
    ctx_->close();
  } else {
    keep->close();  // whoever removed us must not go on in the clear
  }
}

Future<void> Connection::handshakeFuture() {
  if (isHandshakeDone()) return Future<void>::of(Result<void>());
  if (failure_) return Future<void>::of(failure_);
  if (ctx_ == nullptr) {
    throw std::logic_error("TlsHandler::handshakeFuture() before the handler is in a pipeline");
  }
  if (!handshake_.valid()) {
    handshake_ = Promise<void>(channel().loop());
    handshake_.setUncancellable();  // others wait for it, too
  }
  return handshake_.future();
}

TlsInfo Connection::info() const {
  return isHandshakeDone() && session_ ? session_->info() : TlsInfo();
}

}  // namespace millrace::tls
