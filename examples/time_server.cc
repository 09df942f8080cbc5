// SPDX-License-Identifier: Apache-2.0
// Tells the time as RFC 868 does: seconds since 1900, four bytes, and closes.
#include "support.h"

#include <ctime>

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: time_server [flags]\n"
    "  --host ADDRESS  where to listen (default 127.0.0.1)\n"
    "  --port N        default 0: any that is free\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n";

constexpr std::int64_t kFrom1900To1970 = 2'208'988'800;

struct TimeHandler : ChannelHandler {
  void channelActive(Context& ctx) override {
    ByteBuf now = ctx.allocate(4);
    now.writeInt(static_cast<std::uint32_t>(std::time(nullptr) + kFrom1900To1970));
    Promise<void> written(ctx.loop());
    // Closes when the bytes have reached the kernel.
    written.future().addListener([channel = ChannelPtr(&ctx.channel())] { channel->close(); });
    ctx.writeAndFlush(std::move(now), std::move(written));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const example::Flags flags = example::parseFlags(argc, argv, kUsage);
  return example::run([&] {
    EventLoopGroup group = example::makeGroup(flags);
    const Server server =
        ServerBootstrap()
            .group(group)
            .childHandler([](Channel& ch) { ch.pipeline().emplaceLast<TimeHandler>(); })
            .bind(flags.host, flags.port)
            .get();
    example::announce(server.address(), group, flags);
    example::waitForStop();
  });
}
