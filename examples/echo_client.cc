// SPDX-License-Identifier: Apache-2.0
// Sends messages to an echo server, one after the other, and checks what comes back.
//
//   echo_client --port 8007 --messages 1000 --size 64
#include "support.h"

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: echo_client [flags]\n"
    "  --host ADDRESS  where to connect (default 127.0.0.1)\n"
    "  --port N        of the server\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n"
    "  --messages N    how many (default 1000)\n"
    "  --size N        bytes of each (default 64)\n";

/// Sends the next message when the last one has come back whole.
class PingHandler final : public ChannelHandler {
 public:
  PingHandler(int messages, std::size_t size) : left_(messages), size_(size) {}

  void channelActive(Context& ctx) override { sendNext(ctx); }
  void channelRead(Context& ctx, Message&& msg) override {
    const ByteBuf bytes = msg.take<ByteBuf>();
    for (const std::byte each : bytes.data()) {
      if (each != std::byte{'x'}) throw std::runtime_error("the echo is not what was sent");
    }
    back_ += bytes.readableBytes();
    if (back_ < size_) return;
    back_ = 0;
    if (--left_ == 0) {
      ctx.close();
    } else {
      sendNext(ctx);
    }
  }
  void channelInactive(Context& ctx) override {
    if (left_ != 0) ctx.fireExceptionCaught(Error(Errc::closed, "echo", "before the last answer"));
  }

 private:
  void sendNext(Context& ctx) {
    ByteBuf message = ctx.allocate(size_);
    message.writeBytes(std::string(size_, 'x'));
    ctx.writeAndFlush(std::move(message));
  }

  int left_;
  const std::size_t size_;
  std::size_t back_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int messages = 1000;
  int size = 64;
  const example::Flags flags =
      example::parseFlags(argc, argv, kUsage, [&](std::string_view name, const std::string& value) {
        if (name == "--messages") messages = example::toNumber(value, 1'000'000'000, kUsage);
        if (name == "--size") size = example::toNumber(value, 16'000'000, kUsage);
        return name == "--messages" || name == "--size";
      });
  return example::run([&] {
    EventLoopGroup group(1, io::byName(flags.io));
    const ChannelPtr channel =
        Bootstrap()
            .group(group)
            .option(options::tcpNoDelay, true)
            .handler([&](Channel& ch) {
              ch.pipeline().emplaceLast<PingHandler>(messages, static_cast<std::size_t>(size));
            })
            .connect(flags.host, flags.port)
            .get();
    channel->closeFuture().sync();
    if (!flags.quiet) std::printf("%d messages of %d bytes came back\n", messages, size);
  });
}
