// SPDX-License-Identifier: Apache-2.0
// Messages that carry bytes beside other things, as the outbound buffer sees them.
#include <millrace/channel/datagram.h>
#include <millrace/channel/fd_message.h>
#include <millrace/channel/outbound_buffer.h>
#include <millrace/concurrent/executor.h>

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace millrace {
namespace {

const SocketAddress kPeer = SocketAddress::loopback4(9);

TEST(DatagramMessage, LivesInTheMessage) {
  Message msg(Datagram{ByteBuf::of("bytes"), kPeer});
  const Message moved(std::move(msg));

  ASSERT_TRUE(moved.is<Datagram>());
  EXPECT_EQ(moved.as<Datagram>()->bytes.text(), "bytes");
  EXPECT_EQ(moved.as<Datagram>()->peer, kPeer);
}

TEST(DatagramMessage, KeepsALongNameThroughMoves) {
  const SocketAddress path = SocketAddress::unixPath("/run/" + std::string(90, 'x')).orThrow();
  Message msg(Datagram{ByteBuf::of("bytes"), path});
  Message moved(std::move(msg));

  EXPECT_EQ(moved.take<Datagram>().peer, path);
}

// The water marks count what is pinned, whatever it is wrapped in.
TEST(DatagramMessage, CountsWhatItPins) {
  OutboundBuffer out;
  out.add(Datagram{ByteBuf(1000), kPeer}, {});
  const std::size_t one = out.pendingBytes();
  out.add(FdMessage{ByteBuf(2000), {}}, {});

  EXPECT_GE(one, 1000 + OutboundBuffer::kOverhead);
  EXPECT_GE(out.pendingBytes(), one + 2000 + OutboundBuffer::kOverhead);
  out.failAll(Error(Errc::closed, "test"));
  EXPECT_EQ(out.pendingBytes(), 0U);
  EXPECT_EQ(out.takeFailures(), 2U);
}

TEST(DatagramMessage, IsCompactedWhileItWaits) {
  OutboundBuffer out;
  ByteBuf large(64 * 1024);
  large.writeBytes("few");
  out.add(Datagram{std::move(large), kPeer}, {});
  EXPECT_EQ(out.readableBytes(), 3U);

  EXPECT_EQ(out.compact(), 1U);

  EXPECT_LT(out.pendingBytes(), 1024U);
  out.addFlush();
  EXPECT_EQ(out.flushed().as<Datagram>()->bytes.text(), "few");
  EXPECT_EQ(out.flushed().as<Datagram>()->peer, kPeer);
}

TEST(DatagramMessage, TellsThatItWasCancelled) {
  OutboundBuffer out;
  Promise<void> promise(immediateExecutor());
  const Future<void> future = promise.future();
  out.add(Datagram{ByteBuf::of("a"), kPeer}, std::move(promise));
  out.add(Datagram{ByteBuf::of("b"), kPeer}, {});
  future.cancel();
  out.addFlush();

  EXPECT_TRUE(out.isCancelled(0));
  EXPECT_FALSE(out.isCancelled(1));
  out.removeFront();
  // The place is used again.
  for (int i = 0; i < 20; ++i) {
    out.add(ByteBuf::of("c"), {});
    out.addFlush();
    EXPECT_FALSE(out.isCancelled(out.flushedCount() - 1));
    out.removeFront();
  }
}

}  // namespace
}  // namespace millrace
