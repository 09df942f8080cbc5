// SPDX-License-Identifier: Apache-2.0
#include "transport/socket/server_channel.h"

#include "channel/channel_fast.h"
#include "channel/loop_channels.h"

#include <millrace/base/log.h>
#include <millrace/channel/message.h>
#include <millrace/channel/transport.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/io.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/ring_io.h>
#include <millrace/sys/events.h>
#include <millrace/sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

namespace millrace {

namespace {

constexpr int kFirstPauseMillis = 10;
constexpr int kLongestPauseMillis = 500;
constexpr std::int64_t kSaidAgainNanos = 1'000'000'000;
/// As long as a queue may be that a system allows, or nearly.
constexpr int kMostAtTheEnd = 1 << 16;

/// Nobody's fault but the connection's that was about to come.
bool concernsOneConnection(int error) noexcept {
  switch (error) {
    case ECONNABORTED:
    case EPROTO:
    case EPERM:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

bool isShortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

ServerChannel::ServerChannel(EventLoop& loop, Fd fd, bool isUnix)
    : Channel(loop), socket_(std::move(fd)), isUnix_(isUnix) {}

Result<void> ServerChannel::applyOption(const OptionKey& key, const OptionValue& value) {
  if (&key == &options::backlog) {
    backlog_ = std::get<int>(value);
    return listening_ ? listenSocket(socket_.fd(), backlog_) : Result<void>();
  }
  if (!key.isOfSocket()) return Channel::applyOption(key, value);
  return setSocketOption(socket_.fd(), key, value);
}

Result<OptionValue> ServerChannel::lookUpOption(const OptionKey& key) const {
  if (&key == &options::backlog) return OptionValue(backlog_);
  if (!key.isOfSocket()) return Channel::lookUpOption(key);
  return getSocketOption(socket_.fd(), key);
}

// --- life ---

Result<void> ServerChannel::doRegister() {
  if (loop().io().readiness() == nullptr) {
    return Error(Errc::notSupported, "register",
                 describe() + " on " + loop().name() + " (engine " + loop().ioType().name + ")");
  }
  if (&loop().ioType() == &io::blockingType) {
    if (Result<void> set = socket_.makeBlocking(); !set) return set;
  }
  ring_ = loop().io().ring();
  return listening_ ? enter() : Result<void>();
}

// Where the ring will accept, doBeginRead() begins it.
Result<void> ServerChannel::enter() { return mayUseRing() ? Result<void>() : enterReadiness(); }

Result<void> ServerChannel::enterReadiness() {
  if (socket_.isRegistered()) return {};
  return socket_.add(*loop().io().readiness(), kReadable, *this);
}

void ServerChannel::doDeregister() noexcept {
  leaveRing();
  socket_.leave();
}

Result<void> ServerChannel::doBind(const SocketAddress& local) {
  if (Result<void> bound = bindOrExplain(socket_.fd(), local, SocketType::stream); !bound) {
    return bound;
  }
  path_.took(local);
  if (Result<void> listens = listenSocket(socket_.fd(), backlog_); !listens) return listens;
  const Result<SocketAddress> name = sockName(socket_.fd());
  if (!name) return name.error();
  // Not before: a socket that does not listen is reported as hung up, again and again.
  if (Result<void> entered = enter(); !entered) return entered;
  local_ = *name;
  addressesAreKnown();
  listening_ = true;
  return {};
}

void ServerChannel::doClose() noexcept {
  // The ring may have gone with its loop.
  if (RingIo* ring = ringId_ == 0 ? nullptr : loop().io().ring()) ring->leave(ringId_);
  ringId_ = 0;
  early_.clear();
  socket_.close();
  path_.release();
}

int ServerChannel::doWrite(OutboundBuffer& out) {
  out.failAll(Error(Errc::notSupported, "write", describe() + " (it only accepts)"));
  return 0;
}

void ServerChannel::lost(const Error& why) noexcept {
  const Scope scope(*this);
  socket_.forget();
  if (isForeign(why.errnoValue())) socket_.disown();
  failWith(why);
}

// --- accepting ---

void ServerChannel::doBeginRead() {
  if (pauseMillis_ != 0 || ringId_ != 0 || !isRegistered()) return;
  if (burst_ != Burst::none && ring_ != nullptr) return;  // it asks again when it is over
  if (mayUseRing() && goToRing()) return;
  Result<void> wanted = enterReadiness();
  if (wanted) wanted = socket_.want(kReadable);
  if (!wanted) {
    failWith(wanted.error());
    return;
  }
  if (readable_ || !early_.empty()) socket_.again();
}

void ServerChannel::doStopRead() {
  leaveRing();
  socket_.unwant(kReadable);
}

void ServerChannel::ready(std::uint32_t events) noexcept {
  const Scope scope(*this);
  if (events == 0) {
    socket_.againCame();
  } else {
    readable_ = true;
  }
  if (listening_ && pauseMillis_ == 0 && mayReadOn()) acceptBurst();
}

void ServerChannel::acceptBurst() {
  if (!beginBurst()) return;
  const int most = socket_.isBlocking() ? 1 : settings().maxMessagesPerRead;
  int taken = 0;
  int passed = 0;
  int failure = 0;
  burst_ = Burst::passing;
  do {
    const int error = acceptOne(passed);
    if (error != 0) {
      readable_ = false;
      if (error != EAGAIN) failure = error;
      break;
    }
    ++taken;
  } while (taken < most && mayContinueBurst());
  if (socket_.isBlocking()) readable_ = false;  // the engine tells when there is more
  burst_ = Burst::completing;
  endBurst(passed != 0);
  burst_ = Burst::none;
  if (failure != 0) acceptFailed(failure);
  if (!mayReadOn() || !isRegistered()) return;
  if (readable_ || !early_.empty()) {
    socket_.again();
  } else if (ring_ != nullptr) {
    isFlooded_ = false;
    doBeginRead();
  }
}

void ServerChannel::acceptFailed(int error) {
  if (!isOpen()) return;
  if (isShortage(error)) return pause(error);
  if (concernsOneConnection(error)) return;
  if (isForeign(error)) socket_.disown();
  failWith(Error::fromErrno(error, "accept", local_.toString()));
}

// 0, or the errno that ends the burst. One connection's failure counts as a connection: a flood of
// them must not keep the loop. But nobody was passed on then, and a read() is still to be served.
int ServerChannel::acceptOne(int& passed) {
  if (!early_.empty()) {
    Fd first = std::move(early_.front());
    early_.pop_front();
    if (passAccepted(std::move(first))) ++passed;
    return 0;
  }
  AcceptedSocket accepted;
  const int fd = acceptNow(socket_.fd(), &accepted.peer);
  if (fd < 0) return concernsOneConnection(-fd) ? 0 : -fd;
  if (hasPaused_) resume();
  accepted.fd = Fd(fd);
  ++passed;
  pipeline().fireChannelRead(Message(std::move(accepted)));
  return 0;
}

// Those who are in the queue already would see a reset: they are taken, and end gracefully.
void ServerChannel::doLinger() {
  leaveRing();
  int passed = 0;
  for (int left = kMostAtTheEnd; left > 0 && isOpen() && acceptOne(passed) == 0; --left) {
  }
  // A burst that it was called in does that.
  if (passed != 0 && burst_ != Burst::passing) pipeline().fireChannelReadComplete();
  lingerDone();
}

// The connections wait in the kernel meanwhile. Said once, however long it lasts, and not more often
// than once a second where single descriptors come and go.
void ServerChannel::pause(int error) {
  const Error why = Error::fromErrno(error, "accept", local_.toString());
  const std::int64_t now = loop().clock().nanos();
  const bool first = !hasPaused_;
  hasPaused_ = true;
  nextPause_ = first ? kFirstPauseMillis : std::min(nextPause_ * 2, kLongestPauseMillis);
  pauseMillis_ = nextPause_;
  socket_.unwant(kReadable);
  if (first) {
    local().count(LoopChannels::acceptPauses);
    saysPauses_ = lastSaid_ == 0 || now - lastSaid_ >= kSaidAgainNanos;
    if (saysPauses_) {
      lastSaid_ = now;
      log(LogLevel::warn, "channel", describe(),
          ": accepting pauses until there are descriptors: ", why.message(),
          " (raise the limit of open files: ulimit -n)");
    }
    telling_ = true;
    pipeline().fireExceptionCaught(why);
    telling_ = false;
  }
  local().after(std::chrono::milliseconds(pauseMillis_), [self = ChannelPtr(this)] {
    auto& channel = static_cast<ServerChannel&>(*self);
    const Scope scope(channel);
    channel.pauseMillis_ = 0;
    channel.readable_ = true;
    if (channel.mayReadOn()) channel.doBeginRead();
  });
}

void ServerChannel::resume() {
  hasPaused_ = false;
  if (saysPauses_) log(LogLevel::info, "channel", describe(), ": accepting goes on");
}

// A pause is in the log already.
void ServerChannel::unhandledError(const Error& error) noexcept {
  if (!telling_) Channel::unhandledError(error);
}

}  // namespace millrace
