// SPDX-License-Identifier: Apache-2.0
//
// Clients that begin a handshake and say no more: every other one sends a whole ClientHello, the rest half
// of one. They come one per turn of the load that they are to disturb.
#pragma once

#include "tls_wire.h"

namespace bench {

class Storm {
 public:
  Storm(uint16_t port, size_t size)
      : port_(port), size_(size), hello_(firstMessage()), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    clients_.reserve(size);
  }

  /// One more. False when all are there.
  bool grow() {
    if (clients_.size() == size_) return false;
    const int fd = connectTo(port_);
    const size_t length = clients_.size() % 2 == 0 ? hello_.size() : hello_.size() / 2;
    if (::send(fd, hello_.data(), length, MSG_NOSIGNAL) != static_cast<ssize_t>(length)) {
      fail("send", true);
    }
    addToEpoll(epoll_, fd, static_cast<uint32_t>(clients_.size()));
    clients_.push_back({fd, nowNs()});
    return true;
  }

  /// Waits until the server has ended them all, `ns` at most, and prints how many and after how long.
  void awaitEnd(int64_t ns) {
    const int64_t deadline = nowNs() + ns;
    int64_t first = ns;
    int64_t last = 0;
    size_t ended = 0;
    epoll_event events[256];
    while (ended < clients_.size() && nowNs() < deadline) {
      const int count = epoll_wait(epoll_, events, 256, 100);
      for (int i = 0; i < count; ++i) {
        const Client& client = clients_[events[i].data.u32];
        if (!hasEnded(client.fd)) continue;
        const int64_t after = nowNs() - client.begun;
        first = std::min(first, after);
        last = std::max(last, after);
        ++ended;
        close(client.fd);
      }
    }
    emit("half_open", static_cast<double>(clients_.size()));
    emit("cut", static_cast<double>(ended));
    emit("cut_first_s", static_cast<double>(first) / 1e9);
    emit("cut_last_s", static_cast<double>(last) / 1e9);
  }

 private:
  struct Client {
    int fd;
    int64_t begun;
  };

  static std::string firstMessage() {
    const SslPtr ssl(SSL_new(clientContext()));
    BIO* in = BIO_new(BIO_s_mem());
    BIO* out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), in, out);
    SSL_set_connect_state(ssl.get());
    SSL_do_handshake(ssl.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out, &bytes);
    if (size <= 0) failTls("no ClientHello");
    return std::string(bytes, static_cast<size_t>(size));
  }

  /// Reads over what the server says meanwhile, such as its part of the handshake.
  static bool hasEnded(int fd) {
    char bytes[4096];
    for (;;) {
      const ssize_t size = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
      if (size == 0 || (size < 0 && errno != EAGAIN)) return true;
      if (size < 0) return false;
    }
  }

  const uint16_t port_;
  const size_t size_;
  const std::string hello_;
  int epoll_;
  std::vector<Client> clients_;
};

}  // namespace bench
