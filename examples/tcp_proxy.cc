// SPDX-License-Identifier: Apache-2.0
// Passes each connection on to another server. Neither side is read faster than the other takes it.
//
//   tcp_proxy --port 9000 --to-host 127.0.0.1 --to-port 8007
#include "support.h"

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: tcp_proxy [flags]\n"
    "  --host ADDRESS  where to listen (default 127.0.0.1)\n"
    "  --port N        default 0: any that is free\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n"
    "  --to-host ADDRESS  where to pass connections on to (default 127.0.0.1)\n"
    "  --to-port N        its port\n";

/// One side of a connection; `other` is the channel on the other side.
class RelayHandler final : public ChannelHandler {
 public:
  explicit RelayHandler(ChannelPtr other) : other_(std::move(other)) {}

  void channelRead(Context&, Message&& msg) override { other_->write(std::move(msg)); }
  void channelReadComplete(Context&) override { other_->flush(); }
  // This side cannot write fast enough: the other one is not read until it can.
  void channelWritabilityChanged(Context& ctx) override {
    other_->setAutoRead(ctx.channel().isWritable());
  }
  void channelInactive(Context&) override { other_->closeGracefully(); }
  void exceptionCaught(Context& ctx, const Error&) override { ctx.close(); }

 private:
  const ChannelPtr other_;
};

/// Both channels live on the same loop: nothing between them needs a lock, or another thread.
void passOn(Channel& client, const SocketAddress& target) {
  client.setAutoRead(false);
  Bootstrap()
      .loop(client.loop())
      .handler([from = ChannelPtr(&client)](Channel& server) {
        server.pipeline().emplaceLast<RelayHandler>(from);
      })
      .connect(target)
      .addListener([from = ChannelPtr(&client)](const Result<ChannelPtr>& connected) {
        if (!connected.ok()) {
          from->close();
          return;
        }
        if (!from->isOpen()) {  // it has gone away meanwhile
          connected.value()->close();
          return;
        }
        from->pipeline().emplaceLast<RelayHandler>(connected.value());
        from->setAutoRead(true);
      });
}

}  // namespace

int main(int argc, char** argv) {
  std::string toHost = "127.0.0.1";
  int toPort = 0;
  const example::Flags flags =
      example::parseFlags(argc, argv, kUsage, [&](std::string_view name, const std::string& value) {
        if (name == "--to-host") toHost = value;
        if (name == "--to-port") toPort = example::toNumber(value, 65535, kUsage);
        return name == "--to-host" || name == "--to-port";
      });
  return example::run([&] {
    const SocketAddress target =
        SocketAddress::ofHost(toHost, static_cast<std::uint16_t>(toPort)).orThrow();
    EventLoopGroup group = example::makeGroup(flags);
    const Server server = ServerBootstrap()
                              .group(group)
                              .childHandler([&](Channel& client) { passOn(client, target); })
                              .bind(flags.host, flags.port)
                              .get();
    example::announce(server.address(), group, flags);
    example::waitForStop();
  });
}
