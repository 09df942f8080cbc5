// SPDX-License-Identifier: Apache-2.0
#include "support/net.h"

#include <millrace/channel/channel_events.h>
#include <millrace/channel/context.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/socket.h>
#include <millrace/transport/transports.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace millrace::test {

namespace {

SocketAddress freePort() { return SocketAddress::loopback4(0); }

/// A loopback address that few have used lately. Each has ports of its own: thousands of connections that are over, and
/// whose ports rest for a minute, keep nobody from binding to 127.0.0.1.
SocketAddress roomyLoopback() {
  static std::atomic<unsigned> number{static_cast<unsigned>(::getpid()) * 64};
  const unsigned next = ++number / 64;  // so many connections to each
  const auto byte = [](unsigned value) { return static_cast<std::uint8_t>(1 + value % 250); };
  return SocketAddress::inet4({127, byte(next), byte(next / 250), 1}, 0);
}

SocketAddress freeName() {
  static std::atomic<int> number{0};
  return *SocketAddress::unixAbstract("millrace-test-" + std::to_string(::getpid()) + "-" +
                                      std::to_string(++number));
}

[[noreturn]] void failed(const char* call) {
  throw std::runtime_error(std::string(call) + ": " + std::strerror(errno));
}

Fd plainSocket(int domain) {
  const int fd = ::socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) failed("socket");
  return Fd(fd);
}

void setInt(int fd, int level, int name, int value) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) failed("setsockopt");
}

}  // namespace

std::vector<NetRow> socketRows() {
  std::vector<NetRow> all{{"EpollTcp", io::epoll(), &freePort, true},
                          {"EpollUnix", io::epoll(), &freeName, false},
                          {"PollTcp", io::poll(), &freePort, true},
                          {"PollUnix", io::poll(), &freeName, false}};
  if (ioSupport().uring) {
    all.push_back({"UringTcp", io::uring(), &freePort, true});
    all.push_back({"UringUnix", io::uring(), &freeName, false});
  }
  return all;
}

std::string netRowName(const testing::TestParamInfo<NetRow>& info) { return info.param.name; }

// --- peers ---

Peer::Peer(Fd fd) : fd_(std::move(fd)) {
  const timeval limit{kLimit.count(), 0};
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

Peer Peer::to(const SocketAddress& server, int receiveBuffer, const SocketAddress& from) {
  Fd fd = plainSocket(server.domain());
  if (from) {
    setInt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (::bind(fd.get(), from.raw(), from.rawSize()) != 0) failed("bind");
  }
  if (receiveBuffer != 0) setInt(fd.get(), SOL_SOCKET, SO_RCVBUF, receiveBuffer);
  if (::connect(fd.get(), server.raw(), server.rawSize()) != 0) failed("connect");
  if (server.isInet()) setInt(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  return Peer(std::move(fd));
}

void Peer::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) {
      ADD_FAILURE() << "the peer cannot send: " << std::strerror(errno);
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::size_t Peer::sendSome(std::string_view bytes) const {
  const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent < 0 ? 0 : static_cast<std::size_t>(sent);
}

std::string Peer::receive(std::size_t count) {
  std::string all(std::min<std::size_t>(count, 64 * 1024), '\0');
  std::size_t have = 0;
  error_ = 0;
  while (have < count) {
    if (all.size() == have) all.resize(std::min(count, have * 2));
    const ssize_t got = ::recv(fd(), all.data() + have, all.size() - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      error_ = errno;
      EXPECT_NE(error_, EAGAIN) << "nothing came in time";
    }
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  all.resize(have);
  return all;
}

std::string Peer::receiveAll() { return receive(static_cast<std::size_t>(-1) / 4); }

void Peer::shutdownWrite() const { ::shutdown(fd(), SHUT_WR); }

void Peer::reset() {
  const linger now{1, 0};
  ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

void Peer::close() {
  if (isOpen()) ::close(fd_.release());
}

Nobody::Nobody(const SocketAddress& any)
    : fd_(::socket(any.raw()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  EXPECT_EQ(::bind(fd_.get(), any.raw(), any.rawSize()), 0);
  address_ = sockName(fd_.get()).orThrow();
}

Pair makePair(bool isTcp, int peerReceiveBuffer) {
  if (!isTcp) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) failed("socketpair");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return {Fd(ends[0]), Peer(Fd(ends[1]))};
  }
  const Fd listener = plainSocket(AF_INET);
  const SocketAddress address = roomyLoopback();
  if (::bind(listener.get(), address.raw(), address.rawSize()) != 0) failed("bind");
  if (::listen(listener.get(), 1) != 0) failed("listen");
  sockaddr_in name{};
  socklen_t size = sizeof name;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &size);
  Peer peer = Peer::to(address.withPort(ntohs(name.sin_port)), peerReceiveBuffer, address);
  const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) failed("accept4");
  return {Fd(fd), std::move(peer)};
}

// --- what handlers saw ---

void EventLog::add(std::string event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

void EventLog::addBytes(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  changed_.notify_all();
}

std::vector<std::string> EventLog::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::size_t EventLog::count(std::string_view prefix) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(events_.begin(), events_.end(),
                    [&](const std::string& each) { return each.starts_with(prefix); }));
}

std::string EventLog::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t EventLog::byteCount() const {
  const std::lock_guard lock(mutex_);
  return bytes_.size();
}

bool EventLog::await(std::string_view prefix, std::size_t n) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kLimit, [&] {
    return static_cast<std::size_t>(std::count_if(
               events_.begin(), events_.end(),
               [&](const std::string& each) { return each.starts_with(prefix); })) >= n;
  });
}

bool EventLog::awaitBytes(std::size_t n) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kLimit, [&] { return bytes_.size() >= n; });
}

void RecordingHandler::handlerAdded(Context&) { log_->add("added"); }
void RecordingHandler::handlerRemoved(Context&) { log_->add("removed"); }
void RecordingHandler::channelRegistered(Context& ctx) {
  log_->add("registered");
  ctx.fireChannelRegistered();
}
void RecordingHandler::channelUnregistered(Context& ctx) {
  log_->add("unregistered");
  ctx.fireChannelUnregistered();
}
void RecordingHandler::channelActive(Context& ctx) {
  log_->add("active");
  ctx.fireChannelActive();
}
void RecordingHandler::channelInactive(Context& ctx) {
  log_->add("inactive");
  ctx.fireChannelInactive();
}
void RecordingHandler::channelRead(Context& ctx, Message&& msg) {
  if (const ByteBuf* bytes = msg.as<ByteBuf>()) {
    log_->addBytes(bytes->text());
    log_->add("read " + std::to_string(bytes->readableBytes()));
  } else {
    log_->add("message");
  }
  ctx.fireChannelRead(std::move(msg));
}
void RecordingHandler::channelReadComplete(Context& ctx) {
  log_->add("readComplete");
  ctx.fireChannelReadComplete();
}
void RecordingHandler::userEventTriggered(Context& ctx, Message&& event) {
  log_->add(event.is<InputShutdown>() ? "event InputShutdown" : "event");
  ctx.fireUserEventTriggered(std::move(event));
}
void RecordingHandler::channelWritabilityChanged(Context& ctx) {
  log_->add(ctx.channel().isWritable() ? "writable" : "unwritable");
  ctx.fireChannelWritabilityChanged();
}
void RecordingHandler::exceptionCaught(Context&, const Error& error) {
  log_->add("exception " + error.message());
}

Fill recording(const LogPtr& log) {
  return [log](Channel& channel) { channel.pipeline().emplaceLast<RecordingHandler>(log); };
}

Fill echoing() {
  return [](Channel& channel) { channel.pipeline().emplaceLast<EchoHandler>(); };
}

// --- the suite ---

EventLoopGroup& NetTest::group() {
  if (!group_) {
    LoopOptions options = GetParam().options().loops(loops_);
    if (isManual_) options.clock(clock_);
    group_.emplace(options);
    for (const EventLoop& each : *group_) EXPECT_EQ(&each.ioType(), GetParam().io.type);
  }
  return *group_;
}

ChannelPtr NetTest::adopt(Fd ours) {
  const SocketAddress name = isTcp() ? SocketAddress::loopback4(1) : SocketAddress();
  Result<ChannelPtr> made =
      transportFor(loop().ioType(), ChannelKind::tcp4)->adopt(loop(), {std::move(ours), name, {}});
  if (!made) throw std::runtime_error(made.error().message());
  return *made;
}

NetTest::Link NetTest::link(const Fill& fill, const Fill& prepare, int peerReceiveBuffer) {
  Pair pair = makePair(isTcp(), peerReceiveBuffer);
  const ChannelPtr channel = adopt(std::move(pair.ours));
  if (prepare) prepare(*channel);
  if (fill) fill(*channel);
  EXPECT_TRUE(succeeds(registerChannel(loop(), channel)));
  return {channel, std::move(pair.peer)};
}

ServerBootstrap NetTest::bootstrap(const Fill& fill) {
  return ServerBootstrap().group(group()).childHandler(fill);
}

Server NetTest::serve(const Fill& fill) { return bootstrap(fill).bind(anyAddress()).get(); }

testing::AssertionResult same(std::string_view got, std::string_view wanted) {
  if (got == wanted) return testing::AssertionSuccess();
  const auto [a, b] = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
  return testing::AssertionFailure() << got.size() << " bytes instead of " << wanted.size()
                                     << ", equal up to " << (a - got.begin());
}

std::string pattern(std::size_t size, unsigned seed) {
  std::string made(size, '\0');
  std::uint32_t mixed = seed * 2654435761U + 1;
  for (char& each : made) {
    mixed = mixed * 1664525U + 1013904223U;
    each = static_cast<char>(mixed >> 24);
  }
  return made;
}

}  // namespace millrace::test
