// SPDX-License-Identifier: Apache-2.0
//
// The measure: level-triggered epoll, one shared buffer, one recv and one send per event. BENCH_BUFFER
// is 64 KiB (`bare`) or 512 KiB (`bare512`).
#include "peer.h"

#include <string>
#include <sys/epoll.h>
#include <unordered_map>

namespace {

volatile std::sig_atomic_t stopped = 0;
char buffer[BENCH_BUFFER];
std::unordered_map<int, std::string> unsent;  // what a full socket did not take

void watch(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  bench::need(epoll_ctl(epoll, operation, fd, &event) == 0, "epoll_ctl");
}

void acceptAll(int epoll, int listener) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
  }
}

void drop(int fd) {
  if (!unsent.empty()) unsent.erase(fd);
  close(fd);
}

void sendRest(int epoll, int fd) {
  std::string& rest = unsent[fd];
  const ssize_t sent = send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN ? void() : drop(fd);
  rest.erase(0, static_cast<size_t>(sent));
  if (rest.empty()) watch(epoll, EPOLL_CTL_MOD, fd, EPOLLIN);
}

void echo(int epoll, int fd) {
  const ssize_t size = recv(fd, buffer, sizeof buffer, 0);
  if (size <= 0) return size < 0 && errno == EAGAIN ? void() : drop(fd);
  ssize_t sent = send(fd, buffer, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent == size) return;
  if (sent < 0 && errno != EAGAIN) return drop(fd);
  sent = std::max<ssize_t>(sent, 0);
  unsent[fd].assign(buffer + sent, static_cast<size_t>(size - sent));
  watch(epoll, EPOLL_CTL_MOD, fd, EPOLLOUT);  // and read no more before it is gone
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { stopped = 1; });  // ends epoll_wait, too
  const int listener = bench::listenOn(bench::begin(argc, argv), SOCK_NONBLOCK);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN);
  static epoll_event events[1024];
  while (!stopped) {
    const int count = epoll_wait(epoll, events, 1024, -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener) {
        acceptAll(epoll, fd);
      } else {
        (events[i].events & EPOLLOUT) != 0 ? sendRest(epoll, fd) : echo(epoll, fd);
      }
    }
  }
}
