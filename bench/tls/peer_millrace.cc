// SPDX-License-Identifier: Apache-2.0
//
// Millrace, through its public interface, with everything as a user gets it but for a handshake timeout that
// a benchmark can wait for: `bench_tls_millrace port chain key timeout [--io epoll|uring|poll]`.
#include "../echo/millrace_program.h"

#include <millrace/tls/tls_context.h>
#include <millrace/tls/tls_handler.h>

int main(int argc, char** argv) {
  using namespace millrace;
  return bench::millraceMain(
      argc, argv,
      [](int count, char** words, uint16_t port, const std::string& engine,
         const sigset_t& signals) {
        if (count != 5) return 2;
        const TlsContext tls =
            TlsContextBuilder::forServer(TlsIdentity::fromFiles(words[2], words[3]))
                .handshakeTimeout(std::chrono::seconds(std::atoi(words[4])))
                .build();
        bench::serve(port, engine, signals, [tls](Channel& channel) {
          channel.pipeline().emplaceLast<TlsHandler>(tls);
          channel.pipeline().emplaceLast<bench::EchoHandler>();
        });
        return 0;
      });
}
