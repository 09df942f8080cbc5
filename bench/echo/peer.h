// SPDX-License-Identifier: Apache-2.0
//
// What the echo servers share: their command line, `bench_echo_<peer> [port]`, and the line that
// says where they listen. Each ends on SIGTERM with exit code 0, so that counts made at exit come out.
#pragma once

#include "../loop/common.h"

#include <csignal>

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

}  // namespace bench
