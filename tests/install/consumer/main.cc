// SPDX-License-Identifier: Apache-2.0
// The smallest use of an installed Millrace: a server with a handler of its own, and a task on a loop that
// tells the library's version.
#include <millrace/millrace.h>

#include <cstdio>

struct IdleHandler : millrace::ChannelHandler {};

int main() {
  millrace::EventLoopGroup group(1);
  const millrace::Server server =
      millrace::ServerBootstrap()
          .group(group)
          .childHandler([](millrace::Channel& ch) { ch.pipeline().emplaceLast<IdleHandler>(); })
          .bind(millrace::SocketAddress::local("consumer"))
          .get();
  const char* version = group.next().submit([] { return millrace::version(); }).get();
  std::printf("millrace %s\n", version);
  return 0;
}
