// SPDX-License-Identifier: Apache-2.0
//
// Handshakes, `slots` at a time: connect, agree, wait for the server's ticket (so that it is done, too), say
// close_notify, close.
#pragma once

#include "tls_wire.h"

#include <limits>

namespace bench {

class HandshakeLoad {
 public:
  struct Plan {
    int64_t ns = std::numeric_limits<int64_t>::max();
    uint64_t count = std::numeric_limits<uint64_t>::max();
  };
  struct Figures {
    uint64_t handshakes = 0;
    int64_t ns = 0;
    int64_t cpuNs = 0;
  };

  /// `resumes`: each goes on with the ticket of one handshake that is made here.
  HandshakeLoad(uint16_t port, size_t slots, bool resumes)
      : port_(port), epoll_(epoll_create1(EPOLL_CLOEXEC)), slots_(slots) {
    SSL_CTX_set_session_cache_mode(clientContext(),
                                   SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(clientContext(), &onTicket);
    if (!resumes) return;
    run({0, 1}, ServerCpu());
    if (!ticket_) fail("the server gives no ticket");
    resumes_ = true;
  }

  /// The server has had its time to see the last close when the CPU is read.
  Figures run(const Plan& plan, const ServerCpu& server) {
    delays_.clear();
    const int64_t cpuBefore = server.read();
    const int64_t begin = nowNs();
    const int64_t end = plan.ns == std::numeric_limits<int64_t>::max() ? plan.ns : begin + plan.ns;
    uint64_t done = 0;
    uint64_t begun = 0;
    size_t busy = 0;
    // Another one in this place, unless the plan is fulfilled; on a busy machine one may be done at once.
    const auto next = [&](size_t index) {
      while (begun < plan.count && (begun < slots_.size() || nowNs() < end)) {
        ++begun;
        if (!start(index)) return true;
        ++done;
      }
      return false;
    };
    for (size_t i = 0; i < slots_.size(); ++i) busy += next(i) ? 1 : 0;
    epoll_event events[256];
    while (busy > 0) {
      const int count = epoll_wait(epoll_, events, 256, 10'000);
      if (count == 0) fail("the server does not answer");
      for (int i = 0; i < count; ++i) {
        const uint32_t index = events[i].data.u32;
        if (!goOn(slots_[index])) continue;
        ++done;
        if (!next(index)) --busy;
      }
    }
    const int64_t wall = nowNs() - begin;
    usleep(20'000);
    return {done, wall, server.read() - cpuBefore};
  }

  const Delays& delays() const { return delays_; }

 private:
  struct Slot {
    HandshakeLoad* load = nullptr;
    int fd = -1;
    SslPtr ssl;
    int64_t begun = 0;
    bool hasTicket = false;
  };

  /// True if it is over already.
  bool start(size_t index) {
    Slot& slot = slots_[index];
    slot.load = this;
    slot.begun = nowNs();
    slot.hasTicket = false;
    slot.fd = connectTo(port_);
    fcntl(slot.fd, F_SETFL, O_NONBLOCK);
    slot.ssl.reset(SSL_new(clientContext()));
    SSL_set_app_data(slot.ssl.get(), &slot);
    SSL_set_fd(slot.ssl.get(), slot.fd);
    SSL_set_connect_state(slot.ssl.get());
    if (resumes_) {  // a copy: OpenSSL's clients use a session of TLS 1.3 once
      const SslSessionPtr copy(SSL_SESSION_dup(ticket_.get()));
      SSL_set_session(slot.ssl.get(), copy.get());
    }
    if (goOn(slot)) return true;  // sends the first message
    addToEpoll(epoll_, slot.fd, static_cast<uint32_t>(index));
    return false;
  }

  /// True when all is done and the connection closed.
  bool goOn(Slot& slot) {
    char byte = 0;
    size_t got = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(slot.ssl.get(), &byte, 1, &got);  // does the handshake first
    if (result == 1) fail("the server sent something on its own");
    const int why = SSL_get_error(slot.ssl.get(), result);
    const bool isEnded =
        why == SSL_ERROR_ZERO_RETURN && slot.hasTicket;  // a server that only does this
    if (why != SSL_ERROR_WANT_READ && !isEnded) failTls("handshake");
    if (!slot.hasTicket) return false;
    if ((SSL_session_reused(slot.ssl.get()) == 1) != resumes_) {
      fail(resumes_ ? "a handshake was not resumed" : "a handshake was resumed");
    }
    TlsWire::agreed(Negotiated::of(slot.ssl.get()));
    SSL_shutdown(slot.ssl.get());
    close(slot.fd);
    slot.ssl.reset();
    delays_.add(nowNs() - slot.begun);
    return true;
  }

  static int onTicket(SSL* ssl, SSL_SESSION* session) {
    auto& slot = *static_cast<Slot*>(SSL_get_app_data(ssl));
    slot.hasTicket = true;
    if (slot.load->ticket_) return 0;
    slot.load->ticket_.reset(session);
    return 1;
  }

  const uint16_t port_;
  int epoll_;
  std::vector<Slot> slots_;
  SslSessionPtr ticket_;
  bool resumes_ = false;
  Delays delays_;
};

}  // namespace bench
