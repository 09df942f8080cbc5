// SPDX-License-Identifier: Apache-2.0
// Addresses are asked for from any thread, while the channel connects and closes.
#include "support/net.h"

#include <millrace/bootstrap/bootstrap.h>
#include <millrace/sys/socket_address.h>

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace millrace::test {
namespace {

class ChannelAddress : public NetTest {
 protected:
  /// What another thread may see of `channel`, over and over, until it is closed.
  static void watch(const ChannelPtr& channel, const SocketAddress& peer) {
    bool isClosed = false;
    while (!isClosed) {
      isClosed = !channel->isOpen();
      const SocketAddress remote = channel->remoteAddress();
      EXPECT_TRUE(!remote || remote == peer) << remote.toString();
      static_cast<void>(channel->localAddress());
      EXPECT_NE(channel->describe().find(channel->kind()), std::string::npos);
    }
    EXPECT_FALSE(channel->localAddress());
  }
};

TEST_P(ChannelAddress, MayBeReadWhileItConnectsAndCloses) {
  more(2);
  const Server server = serve(echoing());
  for (int i = 0; i < 50; ++i) {
    ChannelPtr channel;
    std::atomic<bool> isMade{false};
    const Future<ChannelPtr> connecting = Bootstrap()
                                              .group(group())
                                              .handler([&](Channel& each) {
                                                channel = ChannelPtr(&each);
                                                isMade = true;
                                              })
                                              .connect(server.address());
    while (!isMade) std::this_thread::yield();
    std::thread watcher([&] { watch(channel, server.address()); });
    connecting.sync();
    EXPECT_EQ(channel->remoteAddress(), server.address());
    channel->close().sync();
    watcher.join();
    EXPECT_EQ(channel->remoteAddress(), server.address());
  }
}

TEST_P(ChannelAddress, OfAListenerMayBeReadWhileItCloses) {
  for (int i = 0; i < 20; ++i) {
    const Server server = serve(echoing());
    const ChannelPtr listener(&server.channel());
    std::thread watcher([&] {
      while (listener->isOpen()) EXPECT_EQ(listener->localAddress(), server.address());
    });
    server.close().sync();
    watcher.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, ChannelAddress, testing::ValuesIn(socketRows()), netRowName);

}  // namespace
}  // namespace millrace::test
