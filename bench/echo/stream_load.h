// SPDX-License-Identifier: Apache-2.0
//
// Connections that stay: each keeps `pipeline` messages of `size` bytes on their way and sends the
// next one for each that is back. What carries them is a `Wire`: TCP here, TLS in ../tls/tls_wire.h.
#pragma once

#include "load_common.h"

#include <limits>

namespace bench {

/// TCP as it is.
class PlainWire {
 public:
  void open(uint16_t port) { fd_ = connectTo(port); }
  int fd() const { return fd_; }
  /// As send() and recv(), errno included.
  ssize_t send(const char* bytes, size_t size) { return ::send(fd_, bytes, size, MSG_NOSIGNAL); }
  ssize_t receive(char* into, size_t size) { return ::recv(fd_, into, size, 0); }
  /// Bytes that have left the socket, of which epoll does not tell.
  bool hasMore() const { return false; }

 private:
  int fd_ = -1;
};

struct StreamShape {
  uint16_t port = 0;
  size_t connections = 1;
  size_t size = 64;
  size_t pipeline = 1;
};

template <class Wire>
class BasicStreamLoad {
 public:
  /// How long to run; without `ns`, until every connection has sent `perConnection` messages.
  struct Plan {
    int64_t warmNs = 0;
    int64_t ns = 0;
    uint64_t perConnection = std::numeric_limits<uint64_t>::max();
  };
  struct Figures {
    uint64_t messages = 0;
    int64_t ns = 0;
    int64_t cpuNs = 0;
  };

  /// Connects, 64 at a time; every connection has had one message echoed when it returns.
  explicit BasicStreamLoad(const StreamShape& shape)
      : shape_(shape),
        window_(shape.size * shape.pipeline),
        pattern_(std::max(window_, kReadSize)),
        buffer_(std::max(window_, kReadSize)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        connections_(shape.connections),
        stamps_(shape.connections * shape.pipeline) {
    for (size_t begin = 0; begin < connections_.size(); begin += kConnectBatch) {
      connectSome(begin, std::min(begin + kConnectBatch, connections_.size()));
    }
  }

  /// Runs by the plan, and on until all messages are back. What is counted lies between two moments of
  /// the full flow: a start from empty sockets would be another thing to measure. While warming up all
  /// bytes are compared, then the last eight of each piece and some pieces whole.
  Figures run(const Plan& plan, const ServerCpu& server) {
    return run(plan, server, [] { return false; });
  }

  /// The same, with `besides()` once per turn; the window does not end as long as it returns true.
  template <class Besides>
  Figures run(const Plan& plan, const ServerCpu& server, Besides besides) {
    const bool timed = plan.ns > 0;
    open_ = true;
    checkAll_ = true;
    Moment begin{nowNs(), 0, 0};
    Moment end;
    Phase phase = timed ? Phase::kWarm : Phase::kCounted;
    const int64_t started = begin.ns;
    for (Connection& connection : connections_) {
      connection.left = plan.perConnection;
      grant(connection, std::min<uint64_t>(shape_.pipeline, plan.perConnection), nowNs());
    }
    epoll_event events[kEvents];
    while (inFlight_ > 0) {
      const int count = epoll_wait(epoll_, events, kEvents, kPatienceMs);
      if (count == 0) fail("the server does not answer");
      for (int i = 0; i < count; ++i) {
        Connection& connection = connections_[events[i].data.u32];
        if ((events[i].events & EPOLLOUT) != 0) push(connection);
        if ((events[i].events & ~EPOLLOUT) != 0) receive(connection);
      }
      if (!timed) continue;
      const bool goesOn = phase == Phase::kCounted && besides();
      const int64_t now = nowNs();
      if (phase == Phase::kWarm && isWarm(now - started, plan)) {
        phase = Phase::kCounted;
        delays_.clear();
        checkAll_ = false;
        begin = moment(server);
      } else if (phase == Phase::kCounted && now - begin.ns >= plan.ns && !goesOn) {
        phase = Phase::kDraining;
        end = moment(server);
        open_ = false;
      }
    }
    if (!timed) end = moment(server);
    return {end.messages - begin.messages, end.ns - begin.ns, end.cpuNs - begin.cpuNs};
  }

  const Delays& delays() const { return delays_; }

 private:
  static constexpr size_t kReadSize = 64 * 1024;
  static constexpr size_t kConnectBatch = 64;
  static constexpr int kEvents = 1024;
  static constexpr int kPatienceMs = 10'000;
  static constexpr int64_t kWarmAtMostNs = 2'000'000'000;

  enum class Phase { kWarm, kCounted, kDraining };
  struct Moment {
    int64_t ns = 0;
    uint64_t messages = 0;
    int64_t cpuNs = 0;
  };

  struct Connection {
    Wire wire;
    bool blocked = false;
    uint32_t index = 0;
    uint64_t granted = 0;   // messages that may be sent
    uint64_t left = 0;      // messages not granted yet
    uint64_t sent = 0;      // bytes
    uint64_t received = 0;  // bytes

    uint64_t base() const { return uint64_t{index} * 4099; }  // streams differ
  };

  Moment moment(const ServerCpu& server) const {
    const int64_t cpu = server.read();
    return {nowNs(), messages_, cpu};
  }

  /// The time is over and every connection has had two windows back, or the patience is at its end.
  bool isWarm(int64_t ns, const Plan& plan) const {
    const uint64_t enough = 2 * shape_.connections * shape_.pipeline;
    return ns >= plan.warmNs && (messages_ >= enough || ns >= kWarmAtMostNs);
  }

  void connectSome(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      Connection& connection = connections_[i];
      connection.index = static_cast<uint32_t>(i);
      connection.wire.open(shape_.port);
      const auto size = static_cast<ssize_t>(shape_.size);
      if (connection.wire.send(pattern_.at(connection.base()), shape_.size) != size) {
        fail("send", true);
      }
    }
    for (size_t i = begin; i < end; ++i) {
      Connection& connection = connections_[i];
      for (size_t got = 0; got < shape_.size;) {
        const ssize_t some = connection.wire.receive(buffer_.data() + got, shape_.size - got);
        if (some <= 0) fail("the first message did not come back", true);
        got += static_cast<size_t>(some);
      }
      if (!pattern_.matches(connection.base(), buffer_.data(), shape_.size)) {
        fail("another first message came back than was sent");
      }
      connection.granted = 1;
      connection.sent = connection.received = shape_.size;
      fcntl(connection.wire.fd(), F_SETFL, O_NONBLOCK);
      addToEpoll(epoll_, connection.wire.fd(), connection.index);
    }
  }

  void grant(Connection& connection, uint64_t count, int64_t now) {
    for (uint64_t i = 0; i < count; ++i) stamp(connection, connection.granted++) = now;
    connection.left -= count;
    inFlight_ += count;
    if (count > 0) push(connection);
  }

  void push(Connection& connection) {
    const size_t size = connection.granted * shape_.size - connection.sent;
    ssize_t sent = connection.wire.send(pattern_.at(connection.base() + connection.sent), size);
    if (sent < 0) {
      if (errno != EAGAIN) fail("send", true);
      sent = 0;
    }
    connection.sent += static_cast<uint64_t>(sent);
    const bool blocked = static_cast<size_t>(sent) < size;
    if (blocked == connection.blocked) return;
    connection.blocked = blocked;
    epoll_event event{};
    event.events = blocked ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u32 = connection.index;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.wire.fd(), &event);
  }

  void receive(Connection& connection) {
    while (receiveOnce(connection) && connection.wire.hasMore()) {
    }
  }

  /// False if there is nothing yet.
  bool receiveOnce(Connection& connection) {
    const ssize_t size = connection.wire.receive(buffer_.data(), buffer_.size());
    if (size < 0 && errno == EAGAIN) return false;
    if (size <= 0) fail("the server closed a connection", size < 0);
    const auto bytes = static_cast<size_t>(size);
    if (connection.received + bytes > connection.sent) fail("more came back than was sent");
    verify(connection, bytes);

    const int64_t now = nowNs();
    const uint64_t before = connection.received / shape_.size;
    connection.received += bytes;
    const uint64_t done = connection.received / shape_.size - before;
    for (uint64_t i = 0; i < done; ++i) delays_.add(now - stamp(connection, before + i));
    messages_ += done;
    inFlight_ -= done;
    if (open_ && done > 0) grant(connection, std::min(done, connection.left), now);
    return true;
  }

  void verify(const Connection& connection, size_t size) {
    const bool whole = checkAll_ || ++pieces_ % 64 == 0;
    const size_t checked = whole ? size : std::min(size, sizeof(uint64_t));
    const size_t from = size - checked;
    if (!pattern_.matches(connection.base() + connection.received + from, buffer_.data() + from,
                          checked)) {
      fail("other bytes came back than were sent");
    }
  }

  int64_t& stamp(const Connection& connection, uint64_t message) {
    return stamps_[connection.index * shape_.pipeline + message % shape_.pipeline];
  }

  const StreamShape shape_;
  const size_t window_;
  Pattern pattern_;
  std::vector<char> buffer_;
  int epoll_;
  std::vector<Connection> connections_;
  std::vector<int64_t> stamps_;
  Delays delays_;
  bool checkAll_ = true;
  bool open_ = false;
  uint64_t inFlight_ = 0;
  uint64_t messages_ = 0;
  uint64_t pieces_ = 0;
};

using StreamLoad = BasicStreamLoad<PlainWire>;

}  // namespace bench
