// SPDX-License-Identifier: Apache-2.0
// A server and its client, from bind to the end, in which every system call fails once, one after
// the other. Whatever fails: what arrives is right, what fails says so, and nothing is left.
#include "support/census.h"
#include "support/fault_script.h"
#include "support/net.h"

#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/context.h>
#include <millrace/concurrent/global_executor.h>

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Census;
using test::EventLog;
using test::FaultScript;
using test::LogPtr;
using test::NetTest;
using test::pattern;
using test::Peer;
using test::recording;
using test::same;
using test::succeeds;

class SocketFaults : public NetTest {
 protected:
  static const std::vector<std::string_view>& calls() {
    static const std::vector<std::string_view> all = {
        "epoll_ctl", "socket",       "setsockopt",  "getsockopt",    "bind", "listen",
        "accept4",   "connect",      "getsockname", "shutdown",      "recv", "send",
        "sendmsg",   "epoll_pwait2", "ppoll",       "io_uring_enter"};
    return all;
  }
  /// Events of one channel are in order, each once; `log` is of one channel.
  static void expectLegal(const EventLog& log) {
    for (const char* once :
         {"added", "registered", "active", "inactive", "unregistered", "removed"}) {
      EXPECT_LE(log.count(once), 1U) << once;
    }
    EXPECT_EQ(log.count("registered"), log.count("unregistered"));
    EXPECT_EQ(log.count("active"), log.count("inactive"));
    EXPECT_EQ(log.count("added"), log.count("removed"));
  }
};

// I8 I9: an echo from end to end, both ends ours
TEST_P(SocketFaults, OfOneCallEndInAFailureThatSaysSoOrInNone) {
  settle();
  const Census before = Census::take();
  const std::string bytes = pattern(50'000);

  const int faults = test::forEachFault(
      [&](FaultScript& script) {
        const LogPtr log = std::make_shared<EventLog>();
        bool worked = false;
        Future<DrainReport> drained;
        [&] {
          const Future<Server> made = bootstrap(test::echoing())
                                          .childOption(options::lingerOnDrain, 100ms)
                                          .bind(anyAddress());
          if (!succeeds(made)) return;
          const Server server = made.get();
          const Future<ChannelPtr> connected = Bootstrap()
                                                   .group(group())
                                                   .handler(recording(log))
                                                   .option(options::keepAlive, true)
                                                   .option(options::lingerOnDrain, 100ms)
                                                   .connect(server.address());
          if (succeeds(connected)) {
            const ChannelPtr channel = connected.get();
            const Future<void> sent = channel->send(ByteBuf::of(bytes));
            EXPECT_TRUE(test::eventually(
                [&] { return log->byteCount() == bytes.size() || !channel->isOpen(); }));
            EXPECT_TRUE(same(log->bytes(), std::string_view(bytes).substr(0, log->byteCount())));
            worked = log->byteCount() == bytes.size() && sent.isSuccess();
            EXPECT_TRUE(succeeds(channel->closeGracefully()));
          }
          drained = server.drain(5s);
          EXPECT_TRUE(succeeds(drained));
        }();
        settle();
        EXPECT_TRUE(worked || script.faults() != 0);
        expectLegal(*log);
        awaitGlobalExecutor();
        EXPECT_EQ(leaksSince(before), std::vector<std::string>{});
      },
      calls());

  EXPECT_GT(faults, 12);
}

// F6 F18: all at once: signals break every call and one byte goes at a time
TEST_P(SocketFaults, OfManyKindsTogetherLoseNothing) {
  const Server server = serve(test::echoing());
  FaultScript script;
  script.interruptFirstTries();
  // With edges a short read of TCP says that there is no more: the script must not lie about that.
  if (!isTcp() || GetParam().io.type != &io::epollType) script.shortTransfers(3);
  Peer peer = Peer::to(server.address());
  const std::string bytes = pattern(20'000);
  std::thread sender([&] { peer.send(bytes); });

  EXPECT_TRUE(same(peer.receive(bytes.size()), bytes));
  sender.join();
  EXPECT_GT(script.faults(), 3U);
}

// F64: the queue of the listener is shorter than the crowd
TEST_P(SocketFaults, OfAShortQueueDelayNobodyForLong) {
  const Server server =
      bootstrap(test::echoing()).option(options::backlog, 1).bind(anyAddress()).get();
  std::atomic<int> served{0};
  std::vector<std::thread> crowd;
  for (int i = 0; i < 8; ++i) {
    crowd.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        Peer peer = Peer::to(server.address());
        peer.send("x");
        if (peer.receive(1) == "x") ++served;
      }
    });
  }
  for (std::thread& each : crowd) each.join();

  EXPECT_EQ(served, 40);
}

// F11 F57 F62: connections that end in every way at once, while others work
TEST_P(SocketFaults, OfManyPeersStayTheirOwn) {
  more(2);
  const Server server = serve(test::echoing());
  std::atomic<int> wrong{0};
  std::vector<std::thread> crowd;
  for (unsigned t = 0; t < 4; ++t) {
    crowd.emplace_back([&, t] {
      for (unsigned k = 0; k < 50; ++k) {
        Peer peer = Peer::to(server.address());
        const std::string bytes = pattern(1 + (k * 977) % 5000, t * 100 + k);
        peer.send(bytes);
        if (k % 4 == 0) {
          peer.reset();
        } else if (k % 4 == 1) {
          peer.close();
        } else {
          if (k % 4 == 2) peer.shutdownWrite();
          if (peer.receive(bytes.size()) != bytes) ++wrong;
        }
      }
    });
  }
  for (std::thread& each : crowd) each.join();

  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(test::eventually([&] { return group().metrics().registrations == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketFaults, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
