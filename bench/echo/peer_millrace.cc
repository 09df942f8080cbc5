// SPDX-License-Identifier: Apache-2.0
//
// Millrace, through its public interface, with everything as a user gets it:
// `bench_echo_millrace [port] [--io epoll|uring|poll]`.
#include "millrace_program.h"

int main(int argc, char** argv) {
  return bench::millraceMain(
      argc, argv,
      [](int, char**, uint16_t port, const std::string& engine, const sigset_t& signals) {
        bench::serve(port, engine, signals, [](millrace::Channel& channel) {
          channel.pipeline().emplaceLast<bench::EchoHandler>();
        });
        return 0;
      });
}
