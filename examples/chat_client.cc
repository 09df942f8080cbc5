// SPDX-License-Identifier: Apache-2.0
// Sends the lines of standard input to a chat server, and prints what others say.
#include "support.h"

#include <iostream>

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: chat_client [flags]\n"
    "  --host ADDRESS  where to connect (default 127.0.0.1)\n"
    "  --port N        of the server\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n";

struct PrintHandler : ChannelHandler {
  void channelRead(Context&, Message&& msg) override {
    const ByteBuf bytes = msg.take<ByteBuf>();
    std::fwrite(bytes.text().data(), 1, bytes.readableBytes(), stdout);
    std::fflush(stdout);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const example::Flags flags = example::parseFlags(argc, argv, kUsage);
  return example::run([&] {
    EventLoopGroup group(1, io::byName(flags.io));
    const ChannelPtr channel =
        Bootstrap()
            .group(group)
            .handler([](Channel& ch) { ch.pipeline().emplaceLast<PrintHandler>(); })
            .connect(flags.host, flags.port)
            .get();
    std::string line;
    while (channel->isOpen() && std::getline(std::cin, line)) {
      channel->send(ByteBuf::of(line + "\n")).sync();  // this thread waits, the loop does not
    }
    channel->closeGracefully().sync();
  });
}
