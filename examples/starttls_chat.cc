// SPDX-License-Identifier: Apache-2.0
// A chat in plain text that a client can encrypt: the line STARTTLS, then the handshake.
//
// Whoever sits between client and server can write whatever he likes before the handshake. So nothing of
// that time counts afterwards: the name has to be given again, and bytes that came together with STARTTLS,
// which would be read as if they had been encrypted, end the connection.
//
//   NAME alice    STARTTLS    anything else is said to everybody
#include "tls_support.h"

using namespace millrace;

namespace {

constexpr const char* kUsage =
    "usage: starttls_chat [flags]\n"
    "  --host ADDRESS  where to listen (default 127.0.0.1)\n"
    "  --port N        default 0: any that is free\n"
    "  --io NAME       automatic, epoll, uring, poll or blocking (default automatic)\n"
    "  --loops N       how many loops (default 0: twice the processors)\n"
    "  --quiet         say nothing but errors\n"
    "  --cert FILE     our certificate and its chain (default: self-signed)\n"
    "  --key FILE      its key\n";

class ChatHandler final : public ChannelHandler {
 public:
  ChatHandler(ChannelGroup& everybody, const TlsContext& tls) : everybody_(everybody), tls_(tls) {}

  void channelActive(Context& ctx) override { everybody_.add(ChannelPtr(&ctx.channel())); }
  void channelRead(Context& ctx, Message&& msg) override {
    input_.writeBytes(msg.take<ByteBuf>().data());
    for (;;) {
      const std::size_t end = input_.indexOf('\n');
      if (end == ByteBuf::npos) break;
      std::string line = input_.readString(end + 1);
      line.erase(line.find_last_not_of("\r\n") + 1);
      take(ctx, line);
    }
    input_.discardReadBytes();
    if (input_.readableBytes() > 4096) throw std::runtime_error("a line of more than 4096 bytes");
  }
  void userEventTriggered(Context& ctx, Message&& event) override {
    if (const auto* end = event.as<TlsHandshakeCompletion>()) isEncrypted_ = end->isSuccess();
    ctx.fireUserEventTriggered(std::move(event));
  }
  void exceptionCaught(Context& ctx, const Error&) override { ctx.close(); }

 private:
  void take(Context& ctx, const std::string& line) {
    if (line == "STARTTLS") return upgrade(ctx);
    if (line.rfind("NAME ", 0) == 0) {
      name_ = line.substr(5);
      return;
    }
    const std::string said = (isEncrypted_ ? "<" : "(plain) <") + name_ + "> " + line + "\n";
    everybody_.writeAndFlush(ByteBuf::of(said), [&ctx](Channel& each) {
      return &each != &ctx.channel() && each.isWritable();
    });
  }

  void upgrade(Context& ctx) {
    if (isEncrypted_) {
      ctx.writeAndFlush(ByteBuf::of("it is encrypted already\n"));
      return;
    }
    if (input_) throw std::runtime_error("plain text behind STARTTLS");
    name_ = "somebody";
    ctx.writeAndFlush(ByteBuf::of("ready for the handshake\n"));  // the last plain bytes
    ctx.pipeline().emplaceFirst<TlsHandler>(tls_);
  }

  ChannelGroup& everybody_;
  const TlsContext& tls_;
  ByteBuf input_;
  std::string name_ = "somebody";
  bool isEncrypted_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  example::TlsFlags tls(example::TlsEnd::server);
  tls.on = true;
  const example::Flags flags = example::parseFlags(argc, argv, kUsage, tls.values());
  tls.check(kUsage);
  return example::run([&] {
    const TlsContext secure = example::serverContext(tls);
    EventLoopGroup group = example::makeGroup(flags);
    ChannelGroup everybody;
    const auto fill = [&](Channel& ch) {
      ch.pipeline().emplaceLast<ChatHandler>(everybody, secure);
    };
    const Server server =
        ServerBootstrap().group(group).childHandler(fill).bind(flags.host, flags.port).get();
    example::announce(server.address(), group, flags);
    example::waitForStop();
  });
}
