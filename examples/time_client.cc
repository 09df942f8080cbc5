// SPDX-License-Identifier: Apache-2.0
// Asks a time server. The four bytes may come one by one: they are gathered until all are there.
#include "support.h"

#include <ctime>

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: time_client [flags]\n"
    "  --host ADDRESS  where to connect (default 127.0.0.1)\n"
    "  --port N        of the server\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n";

constexpr std::int64_t kFrom1900To1970 = 2'208'988'800;

class TimeClientHandler final : public ChannelHandler {
 public:
  explicit TimeClientHandler(Promise<std::time_t> answer) : answer_(std::move(answer)) {}

  void channelRead(Context& ctx, Message&& msg) override {
    gathered_.writeBytes(msg.take<ByteBuf>().data());
    if (gathered_.readableBytes() < 4) return;
    answer_.trySuccess(static_cast<std::time_t>(gathered_.readUnsignedInt()) - kFrom1900To1970);
    ctx.close();
  }
  void exceptionCaught(Context& ctx, const Error& error) override {
    answer_.tryFailure(error);
    ctx.close();
  }

 private:
  ByteBuf gathered_;
  Promise<std::time_t> answer_;  // dropped with the handler: then the future fails
};

}  // namespace

int main(int argc, char** argv) {
  const example::Flags flags = example::parseFlags(argc, argv, kUsage);
  return example::run([&] {
    EventLoopGroup group(1, io::byName(flags.io));
    Promise<std::time_t> promise(globalExecutor());
    const Future<std::time_t> answer = promise.future();
    const ChannelPtr channel =
        Bootstrap()
            .group(group)
            .handler([&](Channel& ch) {
              ch.pipeline().emplaceLast<TimeClientHandler>(std::move(promise));
            })
            .connect(flags.host, flags.port)
            .get();
    const std::time_t time = answer.get();
    std::fputs(std::ctime(&time), stdout);
  });
}
