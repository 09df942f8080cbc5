// SPDX-License-Identifier: Apache-2.0
// What ./dev run shows: the echo server on port 8007, a small client beside it, and the loops' figures
// once a second. Talk to it with `nc 127.0.0.1 8007` meanwhile. Ctrl-C drains and stops.
#include "support.h"

#include <unistd.h>
#include <vector>

using namespace millrace;
using namespace std::chrono_literals;

namespace {

constexpr const char* kUsage =
    "usage: echo_demo [flags]\n"
    "  --port N        where to listen (default 8007, another one if that is taken)\n"
    "  --io NAME       automatic, epoll, uring or poll (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --seconds N     stop after N seconds (default: run until Ctrl-C)\n"
    "  --quiet         no figures\n";

struct EchoHandler : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
  void channelReadComplete(Context& ctx) override { ctx.flush(); }
  void exceptionCaught(Context& ctx, const Error&) override { ctx.close(); }
};

/// Sends back what the echo server sent back, a thousand times a second.
struct BounceHandler : ChannelHandler {
  void channelActive(Context& ctx) override { ctx.writeAndFlush(ByteBuf::of("round and round\n")); }
  void channelRead(Context& ctx, Message&& msg) override {
    ctx.loop().schedule(
        1ms, [channel = ChannelPtr(&ctx.channel()), bytes = msg.take<ByteBuf>()]() mutable {
          channel->writeAndFlush(std::move(bytes));
        });
  }
};

/// One line a second; on a terminal also one for each loop, in place.
class Figures {
 public:
  explicit Figures(const EventLoopGroup& group) : group_(group), last_(group.size()) {}

  void print() {
    const ChannelMetrics now = channelMetrics(group_);
    if (::isatty(STDOUT_FILENO) == 1) printLoops();
    std::printf("%3d s: %llu channels open, %llu bytes/s in, %llu bytes/s out\n", ++seconds_,
                value(now.registered - now.closed), value(now.bytesRead - read_),
                value(now.bytesWritten - written_));
    std::fflush(stdout);
    read_ = now.bytesRead;
    written_ = now.bytesWritten;
  }

 private:
  static unsigned long long value(std::uint64_t number) { return number; }
  void printLoops() {
    std::printf("\033[H\033[J%-12s %9s %9s %7s %10s\n", "loop", "turns/s", "events/s", "busy",
                "turn p99");
    std::size_t row = 0;
    for (const EventLoop& loop : group_) {
      const LoopMetrics now = loop.metrics();
      const LoopMetrics before = std::exchange(last_[row++], now);
      std::printf("%-12s %9llu %9llu %6.1f%% %7.1f us\n", loop.name().c_str(),
                  value(now.turns - before.turns), value(now.ioEvents - before.ioEvents),
                  static_cast<double>(now.busyNanos - before.busyNanos) / 1e7,
                  static_cast<double>(now.turnTime.percentile(0.99)) / 1e3);
    }
  }

  const EventLoopGroup& group_;
  std::vector<LoopMetrics> last_;
  std::uint64_t read_ = 0;
  std::uint64_t written_ = 0;
  int seconds_ = 0;
};

void demo(const example::Flags& flags, int seconds) {
  EventLoopGroup workers(LoopOptions().loops(flags.loops).name("echo").io(io::byName(flags.io)));
  EventLoopGroup clients(LoopOptions().loops(1).name("client"));
  ServerBootstrap bootstrap;
  bootstrap.group(workers).childOption(options::tcpNoDelay, true).childHandler([](Channel& ch) {
    ch.pipeline().emplaceLast<EchoHandler>();
  });
  Future<Server> bound = bootstrap.bind(flags.host, flags.port == 0 ? 8007 : flags.port);
  if (bound.await(), !bound.isSuccess()) bound = bootstrap.bind(flags.host, 0);
  const Server server = bound.get();
  example::announce(server.address(), workers, flags);
  const IoSupport found = ioSupport();
  std::printf("io_uring: %s\n", found.uring ? "there, try --io uring" : found.why.c_str());

  Bootstrap()
      .group(clients)
      .handler([](Channel& ch) { ch.pipeline().emplaceLast<BounceHandler>(); })
      .connect(server.address())
      .sync();
  Figures figures(workers);
  if (!flags.quiet) clients.scheduleAtFixedRate(1s, 1s, [&] { figures.print(); });
  if (seconds > 0)
    clients.schedule(std::chrono::seconds(seconds), [] { ::kill(::getpid(), SIGTERM); });
  example::waitForStop();
  clients.shutdownGracefully().sync();
  const DrainReport report = server.drain().get();
  std::printf("drained: %zu connections, %zu cut\n", report.connections, report.cut);
}

}  // namespace

int main(int argc, char** argv) {
  int seconds = 0;
  const example::Flags flags =
      example::parseFlags(argc, argv, kUsage, [&](std::string_view name, const std::string& value) {
        if (name == "--seconds") seconds = example::toNumber(value, 1'000'000, kUsage);
        return name == "--seconds";
      });
  return example::run([&] { demo(flags, seconds); });
}
