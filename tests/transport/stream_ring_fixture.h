// SPDX-License-Identifier: Apache-2.0
// What tests of TCP streams on io_uring share: a usual ring and one that is always full, and looks at
// which way a channel goes.
#pragma once

#include "channel/loop_channels.h"
#include "support/net.h"
#include "transport/socket/stream_channel.h"

#include <millrace/buffer/block.h>
#include <millrace/channel/context.h>
#include <millrace/loop/ring_io.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::test {

inline std::vector<NetRow> ringRows() {
  const auto freePort = [] { return SocketAddress::loopback4(0); };
  return {{"UsualRing", io::uring(), freePort},
          {"RingWithoutRoom", io::uring({.entries = 1, .completions = 2}), freePort}};
}

/// One loop on a ring; skipped where there is none.
class StreamRingTest : public NetTest {
 protected:
  void SetUp() override {
    if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  }

  static void noAutoRead(Channel& channel) {
    EXPECT_TRUE(channel.applyOption(options::autoRead, OptionValue(false)).ok());
  }
  /// The kernel takes little of what is written.
  static void narrow(Channel& channel) {
    EXPECT_TRUE(channel.applyOption(options::sendBuffer, OptionValue(4096)).ok());
  }
  /// And the channel reads on meanwhile, so it stays on the ring.
  static void narrowAndReading(Channel& channel) {
    narrow(channel);
    EXPECT_TRUE(channel.applyOption(options::pauseReadsWhenUnwritable, OptionValue(false)).ok());
  }

  RingIo& ring() { return *loop().io().ring(); }
  std::size_t waitingBlocks() {
    return inLoop([this] { return ring().waitingBlocks(); });
  }
  bool isOnRing(const ChannelPtr& channel) {
    return inLoop([&] { return static_cast<const StreamChannel&>(*channel).isOnRing(); });
  }
  std::size_t pendingBytes(const ChannelPtr& channel) {
    return inLoop([&] { return channel->pendingBytes(); });
  }
  /// Blocks of the loop's pool that somebody has, but for those that wait in the ring.
  std::int64_t usedBlocks() {
    return inLoop([this] {
      const std::int64_t live = LoopChannels::of(loop()).pool().figures().live;
      return live - static_cast<std::int64_t>(ring().waitingBlocks());
    });
  }
  /// One after the other, each answered by an echo.
  static bool pingPong(Peer& peer, int count) {
    for (int i = 0; i < count; ++i) {
      const std::string text = "ping " + std::to_string(i);
      peer.send(text);
      if (peer.receive(text.size()) != text) return false;
    }
    return true;
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

}  // namespace millrace::test
