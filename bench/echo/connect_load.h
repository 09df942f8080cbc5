// SPDX-License-Identifier: Apache-2.0
//
// Connections that go: connect, one message and its echo, close; `slots` at a time.
#pragma once

#include "load_common.h"

namespace bench {

class ConnectLoad {
 public:
  struct Figures {
    uint64_t connections = 0;
    int64_t ns = 0;
    int64_t cpuNs = 0;
  };

  ConnectLoad(uint16_t port, size_t slots, size_t size)
      : port_(port),
        size_(size),
        pattern_(size),
        buffer_(size),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        slots_(slots) {}

  /// Runs for `ns` and until all is done; the server has had its time to see the last close.
  Figures run(int64_t ns, const ServerCpu& server) {
    delays_.clear();
    const int64_t cpuBefore = server.read();
    const int64_t begin = nowNs();
    const int64_t end = begin + ns;
    uint64_t done = 0;
    size_t busy = slots_.size();
    for (size_t i = 0; i < slots_.size(); ++i) start(i);
    epoll_event events[256];
    while (busy > 0) {
      const int count = epoll_wait(epoll_, events, 256, 10'000);
      if (count == 0) fail("the server does not answer");
      for (int i = 0; i < count; ++i) {
        const uint32_t index = events[i].data.u32;
        if (!receive(slots_[index])) continue;
        const int64_t now = nowNs();
        delays_.add(now - slots_[index].begun);
        ++done;
        if (now < end)
          start(index);
        else
          --busy;
      }
    }
    const int64_t wall = nowNs() - begin;
    usleep(10'000);
    return {done, wall, server.read() - cpuBefore};
  }

  const Delays& delays() const { return delays_; }

 private:
  struct Slot {
    int fd = -1;
    int64_t begun = 0;
    uint64_t base = 0;
    size_t received = 0;
  };

  void start(size_t index) {
    Slot& slot = slots_[index];
    slot.begun = nowNs();
    slot.base = ++started_ * 4099;
    slot.received = 0;
    slot.fd = connectTo(port_);
    if (send(slot.fd, pattern_.at(slot.base), size_, MSG_NOSIGNAL) != static_cast<ssize_t>(size_)) {
      fail("send", true);
    }
    addToEpoll(epoll_, slot.fd, static_cast<uint32_t>(index));
  }

  /// True when the message is back and the connection closed.
  bool receive(Slot& slot) {
    const ssize_t size = recv(slot.fd, buffer_.data(), size_ - slot.received, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) return false;
    if (size <= 0) fail("the server closed a connection", size < 0);
    if (!pattern_.matches(slot.base + slot.received, buffer_.data(), static_cast<size_t>(size))) {
      fail("other bytes came back than were sent");
    }
    slot.received += static_cast<size_t>(size);
    if (slot.received < size_) return false;
    close(slot.fd);
    return true;
  }

  const uint16_t port_;
  const size_t size_;
  Pattern pattern_;
  std::vector<char> buffer_;
  int epoll_;
  std::vector<Slot> slots_;
  Delays delays_;
  uint64_t started_ = 0;
};

}  // namespace bench
