// SPDX-License-Identifier: Apache-2.0
//
// What both kinds of load share: the bytes on the wire, the delays, the server's CPU time, connecting.
#pragma once

#include "../loop/common.h"

#include <arpa/inet.h>
#include <array>
#include <bit>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace bench {

[[noreturn]] inline void fail(const std::string& what, bool withErrno = false) {
  const std::string why = withErrno ? std::string(": ") + std::strerror(errno) : "";
  std::fprintf(stderr, "load: %s%s\n", what.c_str(), why.c_str());
  std::exit(1);
}

/// The bytes of every connection: random, repeating after a prime number, so that a message lost,
/// doubled or moved shows in any eight bytes behind it.
class Pattern {
 public:
  explicit Pattern(size_t longest) : bytes_(kPeriod + longest + sizeof(uint64_t)) {
    Random random(42);
    for (size_t i = 0; i < kPeriod; ++i) bytes_[i] = static_cast<char>(random.next() >> 33);
    for (size_t i = kPeriod; i < bytes_.size(); ++i) bytes_[i] = bytes_[i - kPeriod];
  }

  /// What the stream holds at `offset`, good for `longest` bytes.
  const char* at(uint64_t offset) const { return bytes_.data() + offset % kPeriod; }

  bool matches(uint64_t offset, const char* bytes, size_t size) const {
    return std::memcmp(at(offset), bytes, size) == 0;
  }

 private:
  static constexpr size_t kPeriod = 65521;
  std::vector<char> bytes_;
};

/// Delays in nanoseconds, good to 3 %: 32 classes to each doubling.
class Delays {
 public:
  void add(int64_t ns) { ++counts_[classOf(static_cast<uint64_t>(std::max<int64_t>(ns, 1)))]; }
  void clear() { counts_.fill(0); }

  double micros(double percent) const {
    uint64_t total = 0;
    for (const uint64_t count : counts_) total += count;
    const auto rank = static_cast<uint64_t>(percent / 100.0 * static_cast<double>(total));
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > rank) return static_cast<double>(lowest(i)) / 1000.0;
    }
    return 0;
  }

 private:
  static size_t classOf(uint64_t ns) {
    const auto shift = static_cast<unsigned>(std::max(0, static_cast<int>(std::bit_width(ns)) - 6));
    return shift * 32 + static_cast<size_t>(ns >> shift);
  }
  static uint64_t lowest(size_t index) {
    if (index < 64) return index;
    const size_t shift = index / 32 - 1;
    return static_cast<uint64_t>(index - shift * 32) << shift;
  }

  std::array<uint64_t, 60 * 32> counts_{};
};

/// CPU time of the server's threads, or of those whose name begins with `prefix`. Exact for one that
/// sleeps; one that runs is brought up to date at the scheduler's tick, 4 ms at most.
class ServerCpu {
 public:
  ServerCpu() = default;
  /// `who` is PID or PID:prefix.
  explicit ServerCpu(const std::string& who) {
    const size_t colon = who.find(':');
    tasks_ = "/proc/" + who.substr(0, colon) + "/task";
    if (colon != who.npos) prefix_ = who.substr(colon + 1);
  }

  bool watched() const { return !tasks_.empty(); }

  /// Nanoseconds so far.
  int64_t read() const {
    if (!watched()) return 0;
    int64_t sum = 0;
    DIR* folder = opendir(tasks_.c_str());
    if (folder == nullptr) fail("no server at " + tasks_, true);
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] == '.') continue;
      const std::string task = tasks_ + "/" + entry->d_name;
      if (readText(task + "/comm").starts_with(prefix_)) {
        sum += std::atoll(readText(task + "/schedstat").c_str());
      }
    }
    closedir(folder);
    return sum;
  }

 private:
  static std::string readText(const std::string& path) {
    char text[128] = "";
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd < 0 ? 0 : ::read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    return std::string(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  }

  std::string tasks_;
  std::string prefix_;
};

/// A connection that blocks, for ten seconds at most. The source address changes from one to the
/// next, so that ports of closed connections, kept for a minute, never run short. On the loopback
/// the connection is there when connect() returns.
inline int connectTo(uint16_t port) {
  static uint32_t turn = 0;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket", true);
  const int on = 1;
  const timeval limit{10, 0};
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + turn++ % 200);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (bind(fd, generic, sizeof address) != 0) fail("bind", true);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (connect(fd, generic, sizeof address) != 0) fail("connect", true);
  return fd;
}

inline void addToEpoll(int epoll, int fd, uint32_t index) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = index;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl", true);
}

}  // namespace bench
