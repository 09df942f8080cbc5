// SPDX-License-Identifier: Apache-2.0
// Throws away what it gets, and says how much it was when it is stopped.
#include "support.h"

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: discard_server [flags]\n"
    "  --host ADDRESS  where to listen (default 127.0.0.1)\n"
    "  --port N        default 0: any that is free\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n";

/// Whoever takes a message out lets go of its memory.
struct DiscardHandler : ChannelHandler {
  void channelRead(Context&, Message&& msg) override { msg.reset(); }
};

}  // namespace

int main(int argc, char** argv) {
  const example::Flags flags = example::parseFlags(argc, argv, kUsage);
  return example::run([&] {
    EventLoopGroup group = example::makeGroup(flags);
    const Server server =
        ServerBootstrap()
            .group(group)
            .childHandler([](Channel& ch) { ch.pipeline().emplaceLast<DiscardHandler>(); })
            .bind(flags.host, flags.port)
            .get();
    example::announce(server.address(), group, flags);
    example::waitForStop();
    if (flags.quiet) return;
    std::printf("discarded %llu bytes\n",
                static_cast<unsigned long long>(channelMetrics(group).bytesRead));
  });
}
