// SPDX-License-Identifier: Apache-2.0
// The echo server over a Unix socket: only the address differs.
//
//   unix_echo --path /tmp/echo.sock     or --path @echo for a name without a file
#include "support.h"

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: unix_echo --path PATH [flags]\n"
    "  --path PATH     the socket's file, or @NAME for a name in the kernel only\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n";

struct EchoHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
};

}  // namespace

int main(int argc, char** argv) {
  std::string path = "@millrace-echo";
  const example::Flags flags =
      example::parseFlags(argc, argv, kUsage, [&](std::string_view name, const std::string& value) {
        if (name == "--path") path = value;
        return name == "--path";
      });
  return example::run([&] {
    EventLoopGroup group = example::makeGroup(flags);
    const Server server =
        ServerBootstrap()
            .group(group)
            .childHandler([](Channel& ch) { ch.pipeline().emplaceLast<EchoHandler>(); })
            .bind(SocketAddress::parse("unix:" + path).orThrow())
            .get();
    example::announce(server.address(), group, flags);
    example::waitForStop();
  });
}
