// SPDX-License-Identifier: Apache-2.0
//
// Clients that begin a handshake and say no more: every other one sends a whole ClientHello, the rest half
// of one. They come at a steady rate, in turns of the load that they are to disturb.
#pragma once

#include "tls_wire.h"

namespace bench {

class Storm {
 public:
  Storm(uint16_t port, size_t size)
      : port_(port), size_(size), hello_(firstMessage()), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    clients_.reserve(size);
  }

  /// Lets come who is due, and sees who has been cut. False when all have come.
  bool turn() {
    const int64_t now = nowNs();
    if (begin_ == 0) begin_ = now;
    const auto due = static_cast<size_t>((now - begin_) / kNsBetween + 1);
    for (size_t i = 0; i < kMostPerTurn && clients_.size() < std::min(due, size_); ++i) come();
    look(0);
    return clients_.size() < size_;
  }

  /// Waits until the server has ended them all, `ns` at most, and prints how many and after how long.
  void awaitEnd(int64_t ns) {
    const int64_t deadline = nowNs() + ns;
    while (ended_ < clients_.size() && nowNs() < deadline) look(100);
    emit("half_open", static_cast<double>(clients_.size()));
    emit("cut", static_cast<double>(ended_));
    emit("cut_first_s", static_cast<double>(first_) / 1e9);
    emit("cut_last_s", static_cast<double>(last_) / 1e9);
  }

 private:
  struct Client {
    int fd;
    int64_t begun;
  };
  static constexpr int64_t kNsBetween = 500'000;
  static constexpr size_t kMostPerTurn = 4;  // those who are measured want their turn, too

  void come() {
    const int fd = connectTo(port_);
    const size_t length = clients_.size() % 2 == 0 ? hello_.size() : hello_.size() / 2;
    if (::send(fd, hello_.data(), length, MSG_NOSIGNAL) != static_cast<ssize_t>(length)) {
      fail("send", true);
    }
    addToEpoll(epoll_, fd, static_cast<uint32_t>(clients_.size()));
    clients_.push_back({fd, nowNs()});
  }

  void look(int milliseconds) {
    epoll_event events[256];
    const int count = epoll_wait(epoll_, events, 256, milliseconds);
    for (int i = 0; i < count; ++i) {
      const Client& client = clients_[events[i].data.u32];
      if (!hasEnded(client.fd)) continue;
      const int64_t after = nowNs() - client.begun;
      first_ = ended_ == 0 ? after : std::min(first_, after);
      last_ = std::max(last_, after);
      ++ended_;
      close(client.fd);
    }
  }

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
  int64_t begin_ = 0;
  size_t ended_ = 0;
  int64_t first_ = 0;
  int64_t last_ = 0;
};

}  // namespace bench
