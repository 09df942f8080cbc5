// SPDX-License-Identifier: Apache-2.0
// Two protocols on one port: the first byte decides, and the pipeline is rebuilt. Lines that begin
// with a letter are echoed in capitals; everything else is answered with its length.
#include "support.h"

#include <cctype>

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: port_unification [flags]\n"
    "  --host ADDRESS  where to listen (default 127.0.0.1)\n"
    "  --port N        default 0: any that is free\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n";

struct ShoutHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override {
    std::string text = msg.take<ByteBuf>().toString();
    for (char& each : text) {
      each = static_cast<char>(std::toupper(static_cast<unsigned char>(each)));
    }
    ctx.write(ByteBuf::of(text));
  }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
};

struct LengthHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override {
    const std::size_t length = msg.take<ByteBuf>().readableBytes();
    ctx.write(ByteBuf::of(std::to_string(length) + " bytes\n"));
  }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
};

/// Looks at the first byte, puts the right handler behind itself, passes the bytes on and leaves.
struct DecideHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override {
    const std::uint8_t first = msg.as<ByteBuf>()->getByte(0);
    if (std::isalpha(first) != 0) {
      ctx.pipeline().emplaceLast<ShoutHandler>();
    } else {
      ctx.pipeline().emplaceLast<LengthHandler>();
    }
    ctx.fireChannelRead(std::move(msg));
    ctx.pipeline().remove(*this);
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
            .childHandler([](Channel& ch) { ch.pipeline().emplaceLast<DecideHandler>(); })
            .bind(flags.host, flags.port)
            .get();
    example::announce(server.address(), group, flags);
    example::waitForStop();
  });
}
