// SPDX-License-Identifier: Apache-2.0
// The smallest use of TLS: a client and a server on one loop come together and tell the library's version.
#include <millrace/millrace.h>

#include <cstdio>

using namespace millrace;

int main() {
  const TlsIdentity identity = TlsIdentity::selfSigned({"localhost"});
  const TlsContext server = TlsContextBuilder::forServer(identity).build();
  const TlsContext client =
      TlsContextBuilder::forClient().trust(TlsTrust::fromPem(identity.chain())).build();
  EventLoopGroup group(1);
  const Server listening = ServerBootstrap()
                               .group(group)
                               .childHandler([&](Channel& channel) {
                                 channel.pipeline().emplaceLast<TlsHandler>(server);
                               })
                               .bind(SocketAddress::local("tls"))
                               .get();
  const ChannelPtr channel =
      Bootstrap()
          .group(group)
          .handler([&](Channel& ch) { ch.pipeline().emplaceLast<TlsHandler>(client, "localhost"); })
          .connect(SocketAddress::local("tls"))
          .get();
  if (tlsHandshake(*channel).get().protocol != "TLSv1.3") return 1;
  std::printf("millrace %s\n", version());
  return 0;
}
