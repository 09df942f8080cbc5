// SPDX-License-Identifier: Apache-2.0
// Sends every datagram back to where it came from.
#include "support.h"

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: udp_echo [flags]\n"
    "  --host ADDRESS  where to listen (default 127.0.0.1)\n"
    "  --port N        default 0: any that is free\n"
    "  --io NAME       automatic, epoll, uring or poll (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n";

/// A datagram carries the address of its sender, which is where it goes when it is written.
struct EchoHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
};

}  // namespace

int main(int argc, char** argv) {
  const example::Flags flags = example::parseFlags(argc, argv, kUsage);
  return example::run([&] {
    EventLoopGroup group = example::makeGroup(flags);
    const ChannelPtr channel =
        Bootstrap()
            .group(group)
            .datagram()
            .handler([](Channel& ch) { ch.pipeline().emplaceLast<EchoHandler>(); })
            .bind(SocketAddress::ofHost(flags.host, flags.port).orThrow())
            .get();
    example::announce(channel->localAddress(), group, flags);
    example::waitForStop();
  });
}
