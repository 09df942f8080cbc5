// SPDX-License-Identifier: Apache-2.0
// What connections cost that do nothing, or have sent the first byte of a frame and rest.
#include "support/heap_count.h"
#include "support/net.h"

#include <millrace/bootstrap/server_bootstrap.h>
#include <millrace/channel/context.h>
#include <millrace/loop/event_loop_group.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iostream>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace millrace::test {
namespace {

constexpr std::size_t kPeers = 10'000;
constexpr std::int64_t kMost = 512;  // bytes each
constexpr rlim_t kOthers = 500;      // descriptors

/// As many connections as this process may have both ends of.
std::size_t possiblePeers() {
  rlimit limit{};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  return std::min<std::size_t>(kPeers, (limit.rlim_cur - kOthers) / 2);
}

/// Waits for the rest of a frame that never comes.
class WaitsForAFrame final : public ChannelHandler {
 public:
  explicit WaitsForAFrame(std::atomic<std::size_t>& begun) : begun_(begun) {}

  void channelRead(Context&, Message&& msg) override {
    held_ = msg.take<ByteBuf>();
    held_.compact();  // it keeps its bytes, not the buffer they came in
    ++begun_;
  }

 private:
  std::atomic<std::size_t>& begun_;
  ByteBuf held_;
};

TEST(IdleMemory, OfAPeerThatSentOneByteOfAFrameIsSmall) {
  if (!countsHeap()) return;  // sanitizers have a heap of their own
  const std::size_t count = possiblePeers();
  std::atomic<std::size_t> begun{0};
  EventLoopGroup group(1);
  const Server server =
      ServerBootstrap()
          .group(group)
          .childHandler([&](Channel& ch) { ch.pipeline().emplaceLast<WaitsForAFrame>(begun); })
          .bind(SocketAddress::loopback4(0))
          .get();
  std::vector<Peer> peers;
  peers.reserve(count);
  const auto connect = [&](std::size_t until) {
    while (peers.size() < until) {
      peers.push_back(Peer::to(server.address()));
      peers.back().send("x");
    }
    while (begun < until) std::this_thread::yield();
  };
  connect(100);  // what all of them share is there
  const std::int64_t before = heapBytes();

  connect(count);

  const std::int64_t each = (heapBytes() - before) / static_cast<std::int64_t>(count - 100);
  std::cout << count << " peers, " << each << " bytes each\n";
  EXPECT_LE(each, kMost);
}

}  // namespace
}  // namespace millrace::test
