// SPDX-License-Identifier: Apache-2.0
//
// Millrace, through its public interface, with everything as a user gets it but for a handshake timeout that
// a benchmark can wait for: `bench_tls_millrace port chain key timeout [--io epoll|uring|poll]`.
#include "../echo/peer.h"

#include <millrace/bootstrap/server_bootstrap.h>
#include <millrace/millrace.h>
#include <millrace/tls/tls_context.h>
#include <millrace/tls/tls_handler.h>

#include <exception>
#include <string>

namespace {

using namespace millrace;

struct EchoHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
  void exceptionCaught(Context& ctx, const Error&) override { ctx.close(); }
};

void serve(uint16_t port, const TlsContext& tls, const std::string& engine,
           const sigset_t& signals) {
  EventLoopGroup group(1, io::byName(engine));
  Server server = ServerBootstrap()
                      .group(group)
                      .option(options::backlog, bench::kBacklog)
                      .childOption(options::tcpNoDelay, true)
                      .childHandler([tls](Channel& channel) {
                        channel.pipeline().emplaceLast<TlsHandler>(tls);
                        channel.pipeline().emplaceLast<EchoHandler>();
                      })
                      .bind("127.0.0.1", port)
                      .get();
  bench::announce(server.address().port());
  int signal = 0;
  sigwait(&signals, &signal);
}

}  // namespace

int main(int argc, char** argv) {
  std::string engine = "epoll";
  if (argc > 2 && std::string_view(argv[argc - 2]) == "--io") {
    engine = argv[argc - 1];
    argc -= 2;
  }
  const uint16_t port = bench::begin(argc, argv);
  if (argc != 5) return 2;
  sigset_t signals;  // blocked before there are threads, so that all of them leave it to sigwait
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    const TlsContext tls = TlsContextBuilder::forServer(TlsIdentity::fromFiles(argv[2], argv[3]))
                               .handshakeTimeout(std::chrono::seconds(std::atoi(argv[4])))
                               .build();
    serve(port, tls, engine, signals);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
