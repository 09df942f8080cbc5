// SPDX-License-Identifier: Apache-2.0
// What comes from the network: bursts, auto read, failures, and who is asked first.
#include "channel/loop_channels.h"
#include "support/fault_script.h"
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/channel/channel_metrics.h>
#include <millrace/channel/context.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/ring_io.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <thread>

namespace millrace {
namespace {

using test::EventLog;
using test::FaultScript;
using test::Held;
using test::LogPtr;
using test::NetTest;
using test::Pair;
using test::pattern;
using test::Peer;
using test::recording;
using test::same;
using testing::ElementsAre;
using testing::StartsWith;

void noAutoRead(Channel& channel) {
  EXPECT_TRUE(channel.applyOption(options::autoRead, OptionValue(false)).ok());
}

void sendWithDescriptor(int fd, std::string_view bytes) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};  // NOLINT: only read
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int standard = 0;
  std::memcpy(CMSG_DATA(header), &standard, sizeof standard);
  EXPECT_EQ(::sendmsg(fd, &message, 0), static_cast<ssize_t>(bytes.size()));
}

class SocketRead : public NetTest {
 protected:
  /// Blocks out of the loop's pool, but for those that wait for bytes. Everything that came is gone
  /// by then: none.
  std::int64_t liveBlocks() {
    return inLoop([this] {
      const RingIo* ring = loop().io().ring();
      const std::size_t waiting = ring == nullptr ? 0 : ring->waitingBlocks();
      return LoopChannels::of(loop()).pool().figures().live - static_cast<std::int64_t>(waiting);
    });
  }
  /// The peer breaks the connection behind what it has sent. `link` needs something unread for
  /// that, which is how Unix sockets are broken.
  void breakIt(Link& link) {
    if (isTcp()) {
      link.peer.reset();
    } else {
      link.peer.close();
    }
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// C132: one readComplete per burst, whatever its size; nothing stays out of the pool
TEST_P(SocketRead, EndsEveryBurstWithOneReadComplete) {
  auto [channel, peer] = link(recording(log_));
  const std::string bytes = pattern(300'000);

  peer.send(bytes);
  ASSERT_TRUE(log_->awaitBytes(bytes.size()));
  settle();

  EXPECT_TRUE(same(log_->bytes(), bytes));
  const std::vector<std::string> events = log_->events();
  for (std::size_t i = 1; i < events.size(); ++i) {
    if (events[i] != "readComplete") continue;
    EXPECT_THAT(events[i - 1], StartsWith("read ")) << "at " << i;
  }
  EXPECT_EQ(events.back(), "readComplete");
  EXPECT_EQ(channelMetrics(loop()).bytesRead, bytes.size());
  EXPECT_EQ(liveBlocks(), 0);
}

// C132: the end of the stream is no message, and its buffer goes back
TEST_P(SocketRead, SeesTheEndOnceAndAsNoError) {
  auto [channel, peer] = link(recording(log_));

  peer.send("0123456789");
  peer.close();
  ASSERT_TRUE(log_->await("removed"));

  EXPECT_THAT(log_->events(), ElementsAre("added", "registered", "active", "read 10",
                                          "readComplete", "inactive", "unregistered", "removed"));
  EXPECT_FALSE(inLoop([ch = channel] { return static_cast<bool>(ch->closeCause()); }));
  EXPECT_EQ(liveBlocks(), 0);
}

// C133 I9
TEST_P(SocketRead, HandsOnWhatCameBeforeTheConnectionBroke) {
  Link broken = link(recording(log_));
  EXPECT_TRUE(test::succeeds(broken.channel->send(ByteBuf::of("unread"))));
  {
    const Held held(loop());
    broken.peer.send("0123456789");
    breakIt(broken);
  }
  ASSERT_TRUE(log_->await("removed"));

  const std::vector<std::string> events = log_->events();
  EXPECT_THAT(events,
              ElementsAre("added", "registered", "active", "read 10", "readComplete",
                          StartsWith("exception read"), "inactive", "unregistered", "removed"));
  EXPECT_EQ(log_->bytes(), "0123456789");
  EXPECT_EQ(inLoop([&] { return broken.channel->closeCause().errnoValue(); }), ECONNRESET);
  EXPECT_EQ(liveBlocks(), 0);
}

// C133: the same from a scripted kernel, in the middle of a burst
TEST_P(SocketRead, OrdersAFailureBehindTheBurstItEnds) {
  auto [channel, peer] = link(recording(log_), [](Channel& ch) {
    EXPECT_TRUE(ch.applyOption(options::receiveSizes, OptionValue(ReceiveSizes{64, 64, 64})).ok());
  });
  FaultScript script;
  script.fail("recv", 3, ENOTCONN);

  peer.send(pattern(640));
  ASSERT_TRUE(log_->await("removed"));

  EXPECT_THAT(log_->events(),
              ElementsAre("added", "registered", "active", "read 64", "read 64", "readComplete",
                          StartsWith("exception read"), "inactive", "unregistered", "removed"));
  EXPECT_EQ(liveBlocks(), 0);
}

// C134: what read() asks for comes once
TEST_P(SocketRead, WithoutAutoReadEveryReadBringsOneBatch) {
  auto [channel, peer] = link(recording(log_), [](Channel& ch) {
    noAutoRead(ch);
    EXPECT_TRUE(ch.applyOption(options::receiveSizes, OptionValue(ReceiveSizes{64, 64, 64})).ok());
  });
  peer.send(pattern(192));
  settle();
  EXPECT_EQ(log_->count("read"), 0U);

  for (std::size_t i = 1; i <= 3; ++i) {
    channel->read();
    ASSERT_TRUE(log_->await("readComplete", i));
    settle();
    EXPECT_EQ(log_->count("read 64"), i);
    EXPECT_EQ(log_->count("readComplete"), i);
  }
  channel->read();
  settle();
  EXPECT_EQ(log_->count("readComplete"), 3U);
  peer.send("more");
  EXPECT_TRUE(log_->await("readComplete", 4));
}

// C134: switched off by a handler in the middle of a burst
TEST_P(SocketRead, StopsABurstWhenAutoReadIsSwitchedOff) {
  struct SwitchOff : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override {
      ctx.channel().setAutoRead(false);
      ctx.fireChannelRead(std::move(msg));
    }
  };
  auto [channel, peer] = link(
      [&](Channel& ch) {
        ch.pipeline().emplaceLast<SwitchOff>();
        recording(log_)(ch);
      },
      [](Channel& ch) {
        EXPECT_TRUE(
            ch.applyOption(options::receiveSizes, OptionValue(ReceiveSizes{64, 64, 64})).ok());
      });

  peer.send(pattern(640));
  ASSERT_TRUE(log_->await("readComplete"));
  settle();
  EXPECT_EQ(log_->byteCount(), 64U);
  channel->setAutoRead(true);
  ASSERT_TRUE(log_->await("readComplete", 2));
  settle();

  EXPECT_EQ(log_->byteCount(), 128U);
}

// C134: the peer's end waits for a read() like everything else, and is seen then
TEST_P(SocketRead, WithoutAutoReadSeesTheEndWhenItReads) {
  auto [channel, peer] = link(recording(log_), noAutoRead);
  peer.send("abc");
  peer.close();
  settle();
  EXPECT_EQ(log_->count("inactive"), 0U);

  channel->read();
  ASSERT_TRUE(log_->await("readComplete"));
  EXPECT_EQ(log_->bytes(), "abc");
  channel->read();

  EXPECT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("exception"), 0U);
}

// C122 I8: the handler goes with the registration, however many pointers to the channel are left
TEST_P(SocketRead, FreesTheHandlersOfClosedChannels) {
  struct Witness : ChannelHandler {
    explicit Witness(std::shared_ptr<int> k) : kept(std::move(k)) {}
    std::shared_ptr<int> kept;
  };
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = kept;
  auto [channel, peer] =
      link([&](Channel& ch) { ch.pipeline().emplaceLast<Witness>(std::move(kept)); });

  peer.close();
  EXPECT_TRUE(test::succeeds(channel->closeFuture()));
  settle();

  EXPECT_TRUE(alive.expired());
}

// C126 C127: a handler leaves the loop while its event is on the stack
TEST_P(SocketRead, LetsAHandlerLeaveTheLoopInItsEvent) {
  struct Leaves : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override {
      ctx.deregister();
      ctx.fireChannelRead(std::move(msg));
    }
  };
  auto [channel, peer] = link([&](Channel& ch) {
    ch.pipeline().emplaceLast<Leaves>();
    recording(log_)(ch);
  });

  peer.send("abc");
  ASSERT_TRUE(log_->await("unregistered"));
  peer.send("def");
  settle();
  EXPECT_EQ(log_->bytes(), "abc");
  EXPECT_FALSE(channel->isRegistered());
  EXPECT_TRUE(test::succeeds(channel->close()));
  ASSERT_TRUE(log_->await("removed"));

  EXPECT_EQ(log_->count("unregistered"), 1U);
  EXPECT_EQ(log_->count("inactive"), 1U);
}

// C128 F11: of 300 channels that have something to read in one batch the first closes the others and
// makes new ones, which get their descriptors' numbers
TEST_P(SocketRead, DeliversNothingToChannelsThatWereClosedInTheSameBatch) {
  constexpr std::size_t kCount = 300;
  struct Shared {
    std::vector<ChannelPtr> all;
    std::vector<Pair> fresh;
    std::vector<ChannelPtr> successors;
    std::function<void()> atFirstRead;
    int reads = 0;
    int inactive = 0;
    int freshReads = 0;
  };
  struct Closer : ChannelHandler {
    Closer(Shared& s, bool f) : shared(s), fresh(f) {}
    void channelRead(Context&, Message&& msg) override {
      msg.reset();
      if (fresh) {
        ++shared.freshReads;
      } else if (shared.reads++ == 0) {
        shared.atFirstRead();
      }
    }
    void channelInactive(Context&) override {
      if (!fresh) ++shared.inactive;
    }
    Shared& shared;
    bool fresh;
  };
  Shared shared;
  std::vector<Peer> peers;
  for (std::size_t i = 0; i < kCount; ++i) {
    Link one = link([&](Channel& ch) { ch.pipeline().emplaceLast<Closer>(shared, false); });
    shared.all.push_back(one.channel);
    peers.push_back(std::move(one.peer));
  }
  shared.atFirstRead = [&] {
    for (const ChannelPtr& each : shared.all) each->close();
    for (int i = 0; i < 50; ++i) {
      shared.fresh.push_back(test::makePair(isTcp()));
      const ChannelPtr made = adopt(std::move(shared.fresh.back().ours));
      made->pipeline().emplaceLast<Closer>(shared, true);
      EXPECT_TRUE(registerChannel(loop(), made).isSuccess());
      shared.successors.push_back(made);
    }
  };

  {
    const Held held(loop());
    for (const Peer& each : peers) each.send("x");
  }
  ASSERT_TRUE(test::eventually([&] { return inLoop([&] { return shared.reads != 0; }); }));
  settle();
  const auto [reads, inactive, freshReads] =
      inLoop([&] { return std::tuple(shared.reads, shared.inactive, shared.freshReads); });
  for (const Pair& each : shared.fresh) each.peer.send("y");
  const bool all =
      test::eventually([&] { return inLoop([&] { return shared.freshReads; }) == 50; });
  inLoop([&] {
    for (const ChannelPtr& each : shared.successors) each->close();
  });

  EXPECT_EQ(reads, 1);
  EXPECT_EQ(inactive, static_cast<int>(kCount));
  EXPECT_EQ(freshReads, 0);
  EXPECT_TRUE(all);
}

// F61 F62: however much one peer has sent, the others have their turn after 16 reads of it
TEST_P(SocketRead, GivesOthersTheirTurn) {
  std::vector<char> order;  // of the loop
  struct Notes : ChannelHandler {
    Notes(std::vector<char>& o, char n) : order(o), name(n) {}
    void channelRead(Context&, Message&& msg) override {
      msg.reset();
      order.push_back(name);
    }
    std::vector<char>& order;
    char name;
  };
  const auto small = [](Channel& ch) {
    EXPECT_TRUE(ch.applyOption(options::receiveSizes, OptionValue(ReceiveSizes{64, 64, 64})).ok());
  };
  Link hot = link([&](Channel& ch) { ch.pipeline().emplaceLast<Notes>(order, 'h'); }, small);
  Link calm = link([&](Channel& ch) { ch.pipeline().emplaceLast<Notes>(order, 'c'); }, small);

  {
    const Held held(loop());
    hot.peer.send(pattern(64 * 100));
    calm.peer.send("hello");
  }
  ASSERT_TRUE(test::eventually([&] { return inLoop([&] { return order.size(); }) == 101; }));

  const std::size_t at = inLoop([&] {
    return static_cast<std::size_t>(std::find(order.begin(), order.end(), 'c') - order.begin());
  });
  EXPECT_LE(at, 16U);
}

// F7: ready, and then nothing there
TEST_P(SocketRead, TellsNobodyOfAReadThatBringsNothing) {
  if (isByRing()) return;  // nobody calls recv(): see stream_ring_fault_test.cc
  auto [channel, peer] = link(recording(log_));
  FaultScript script;
  script.fail("recv", 1, EAGAIN);

  peer.send("abc");
  ASSERT_TRUE(test::eventually([&] { return script.faults() == 1; }));
  settle();
  EXPECT_EQ(log_->count("exception"), 0U);
  peer.send("def");
  ASSERT_TRUE(log_->awaitBytes(6));

  EXPECT_EQ(log_->bytes(), "abcdef");
  EXPECT_LE(script.count("recv"), 5U);
}

// F7: reads that end early though there is more: at urgent data (TCP), where descriptors come along
// (Unix). What is behind comes without anything new having to happen.
TEST_P(SocketRead, GoesOnBehindReadsThatEndEarly) {
  auto [channel, peer] = link(recording(log_));
  {
    const Held held(loop());
    for (const char* part : {"abc", "def", "ghi"}) {
      if (isTcp()) {
        peer.send(part);
        if (*part == 'a') {
          EXPECT_EQ(::send(peer.fd(), "!", 1, MSG_OOB), 1);
        }
      } else {
        sendWithDescriptor(peer.fd(), part);
      }
    }
  }

  ASSERT_TRUE(log_->awaitBytes(9));
  EXPECT_EQ(log_->bytes(), "abcdefghi");
}

// F6: every call is broken by a signal at first
TEST_P(SocketRead, TriesAgainWhatASignalBroke) {
  auto [channel, peer] = link(test::echoing());
  FaultScript script;
  script.interruptFirstTries();
  const std::string bytes = pattern(100'000);
  std::thread sender([&, &p = peer] { p.send(bytes); });

  EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));
  sender.join();
  EXPECT_GT(script.faults(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketRead, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
