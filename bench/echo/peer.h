// SPDX-License-Identifier: Apache-2.0
//
// What the echo servers share: their command line, `bench_echo_<peer> [port]`, and the line that
// says where they listen. Each ends on SIGTERM with exit code 0, so that counts made at exit come out.
#pragma once

#include "../loop/common.h"

#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace bench {

inline constexpr int kBacklog = 4096;
inline constexpr size_t kReadSize = 64 * 1024;

/// The port asked for, 0 (any) without one. Also raises the limit of open files, and writing to a
/// connection that was reset is an error like any other from here on.
inline uint16_t begin(int argc, char** argv) {
  raiseFileLimit();
  std::signal(SIGPIPE, SIG_IGN);
  return static_cast<uint16_t>(argc > 1 ? std::atoi(argv[1]) : 0);
}

inline void announce(unsigned port) {
  std::printf("listening on 127.0.0.1:%u\n", port);
  std::fflush(stdout);
}

/// For what cannot fail here; there is no server to go on with.
inline void need(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

/// For servers without a library: a socket that listens, and the line about it. `flags`: SOCK_NONBLOCK or 0.
inline int listenOn(uint16_t port, int flags) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  need(bind(fd, generic, size) == 0 && listen(fd, kBacklog) == 0, "listen");
  getsockname(fd, generic, &size);
  announce(ntohs(address.sin_port));
  return fd;
}

}  // namespace bench
