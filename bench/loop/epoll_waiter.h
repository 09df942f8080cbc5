// SPDX-License-Identifier: Apache-2.0
//
// An eventfd in an epoll set, edge mode and never read: two system calls per wake-up, fewer is not
// possible.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace bench {

class EpollWaiter {
 public:
  EpollWaiter() {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &event);
  }
  ~EpollWaiter() {
    close(event_);
    close(epoll_);
  }
  EpollWaiter(const EpollWaiter&) = delete;
  EpollWaiter& operator=(const EpollWaiter&) = delete;

  /// Any thread.
  void wakeup() { eventfd_write(event_, 1); }
  /// Until a wake-up, or not at all with `timeout_ms` 0.
  void wait(int timeout_ms) {
    epoll_event events[64];
    epoll_wait(epoll_, events, 64, timeout_ms);
  }

 private:
  int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  int event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
};

}  // namespace bench
