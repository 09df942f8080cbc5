// SPDX-License-Identifier: Apache-2.0
// Sends back what it gets. The first program of the guide, with flags.
//
//   echo_server --port 8007 --io epoll --loops 1
//   echo_server --port 8007 --tls                        then: openssl s_client -connect 127.0.0.1:8007
#include "tls_support.h"

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: echo_server [flags]\n"
    "  --host ADDRESS  where to listen (default 127.0.0.1)\n"
    "  --port N        default 0: any that is free\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n" EXAMPLE_TLS_SERVER_USAGE;

struct EchoHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
  void exceptionCaught(Context& ctx, const Error&) override { ctx.close(); }
};

}  // namespace

int main(int argc, char** argv) {
  example::TlsFlags tls(example::TlsEnd::server);
  const example::Flags flags =
      example::parseFlags(argc, argv, kUsage, tls.values(), tls.switches());
  tls.check(kUsage);
  return example::run([&] {
    const example::ServerTls secure(tls);
    EventLoopGroup boss(1);
    EventLoopGroup workers = example::makeGroup(flags);
    const Server server =
        ServerBootstrap()
            .group(boss, workers)
            .option(options::backlog, 4096)
            .handler(std::make_shared<LoggingHandler>(LogLevel::debug))
            .childOption(options::tcpNoDelay, true)
            .childHandler([&](Channel& channel) {
              secure.addTo(channel);  // with --tls: a TlsHandler in front of everything
              channel.pipeline().emplaceLast<EchoHandler>();
            })
            .bind(flags.host, flags.port)
            .get();
    example::announce(server.address(), workers, flags);
    example::waitForStop();
  });
}
