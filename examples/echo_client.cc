// SPDX-License-Identifier: Apache-2.0
// Sends messages to an echo server, one after the other, and checks what comes back.
//
//   echo_client --port 8007 --messages 1000 --size 64
//   echo_client --port 8007 --tls --ca ca.pem --server-name localhost
#include "tls_support.h"

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
    "  --size N        bytes of each (default 64)\n"
    "  --connections N  one after the other, each with all messages (default 1)\n"  //
    EXAMPLE_TLS_CLIENT_USAGE;

/// Sends the next message when the last one has come back whole.
class PingHandler final : public ChannelHandler {
 public:
  PingHandler(int messages, std::size_t size, Promise<void>&& done)
      : left_(messages), size_(size), done_(std::move(done)) {}

  void channelActive(Context& ctx) override { sendNext(ctx); }
  void channelRead(Context& ctx, Message&& msg) override {
    const ByteBuf bytes = msg.take<ByteBuf>();
    for (const std::byte each : bytes.data()) {
      if (each != std::byte{'x'}) throw std::runtime_error("the echo is not what was sent");
    }
    if ((back_ += bytes.readableBytes()) < size_) return;
    back_ = 0;
    if (--left_ > 0) return sendNext(ctx);
    done_.trySuccess();
    ctx.close();
  }
  void channelInactive(Context&) override {
    done_.tryFailure(Error(Errc::closed, "echo", "before the last answer"));
  }
  void exceptionCaught(Context& ctx, const Error& error) override {
    done_.tryFailure(error);
    ctx.close();
  }

 private:
  void sendNext(Context& ctx) { ctx.writeAndFlush(ByteBuf::of(std::string(size_, 'x'))); }

  int left_;
  const std::size_t size_;
  const Promise<void> done_;
  std::size_t back_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int messages = 1000, size = 64, connections = 1;
  example::TlsFlags tls(example::TlsEnd::client);
  const auto own = [&](std::string_view name, const std::string& value) {
    int* into = name == "--messages" ? &messages : name == "--size" ? &size : nullptr;
    if (name == "--connections") into = &connections;
    if (into == nullptr) return tls.values()(name, value);
    *into = example::toNumber(value, into == &size ? 16'000'000 : 1'000'000'000, kUsage);
    return true;
  };
  const example::Flags flags = example::parseFlags(argc, argv, kUsage, own, tls.switches());
  tls.check(kUsage);
  return example::run([&] {
    example::ClientTls secure(tls, flags);
    EventLoopGroup group(flags.io == "blocking" ? 0 : 1, io::byName(flags.io));
    for (int i = 0; i < connections; ++i) {
      Future<void> done;
      const ChannelPtr channel =
          Bootstrap()
              .group(group)
              .option(options::tcpNoDelay, true)
              .handler([&](Channel& ch) {
                Promise<void> promise(ch.loop());
                done = promise.future();
                secure.addTo(ch);  // with --tls: a TlsHandler in front of everything
                ch.pipeline().emplaceLast<PingHandler>(messages, static_cast<std::size_t>(size),
                                                       std::move(promise));
              })
              .connect(flags.host, flags.port)
              .get();
      const std::string agreed = secure.agreed();
      if (!agreed.empty() && !flags.quiet) std::printf("%s\n", agreed.c_str());
      done.get();
      channel->closeFuture().sync();
      if (!flags.quiet) std::printf("%d messages of %d bytes came back\n", messages, size);
    }
  });
}
