// SPDX-License-Identifier: Apache-2.0
// Every line goes to everybody else. Try it with several `nc 127.0.0.1 PORT`, or chat_client.
#include "support.h"

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: chat_server [flags]\n"
    "  --host ADDRESS  where to listen (default 127.0.0.1)\n"
    "  --port N        default 0: any that is free\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n";

class ChatHandler final : public ChannelHandler {
 public:
  explicit ChatHandler(ChannelGroup& everybody) : everybody_(everybody) {}

  void channelActive(Context& ctx) override {
    tell(ctx, ctx.channel().remoteAddress().toString() + " is here\n");
    everybody_.add(ChannelPtr(&ctx.channel()));
  }
  void channelInactive(Context& ctx) override {
    tell(ctx, ctx.channel().remoteAddress().toString() + " has left\n");
  }
  void channelRead(Context& ctx, Message&& msg) override {
    line_.writeBytes(msg.take<ByteBuf>().data());
    for (;;) {
      const std::size_t end = line_.indexOf('\n');
      if (end == ByteBuf::npos) break;
      tell(ctx, "[" + ctx.channel().remoteAddress().toString() + "] " + line_.readString(end + 1));
    }
    line_.discardReadBytes();
    if (line_.readableBytes() > 4096) throw std::runtime_error("a line of more than 4096 bytes");
  }
  void exceptionCaught(Context& ctx, const Error&) override { ctx.close(); }

 private:
  void tell(Context& ctx, const std::string& text) {
    // Who does not read misses what is said, instead of filling our memory.
    everybody_.writeAndFlush(ByteBuf::of(text), [&ctx](Channel& each) {
      return &each != &ctx.channel() && each.isWritable();
    });
  }

  ChannelGroup& everybody_;
  ByteBuf line_;
};

}  // namespace

int main(int argc, char** argv) {
  const example::Flags flags = example::parseFlags(argc, argv, kUsage);
  return example::run([&] {
    EventLoopGroup group = example::makeGroup(flags);
    ChannelGroup everybody;
    const Server server =
        ServerBootstrap()
            .group(group)
            .childHandler([&](Channel& ch) { ch.pipeline().emplaceLast<ChatHandler>(everybody); })
            .bind(flags.host, flags.port)
            .get();
    example::announce(server.address(), group, flags);
    example::waitForStop();
  });
}
