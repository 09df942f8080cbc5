// SPDX-License-Identifier: Apache-2.0
// Servers as bootstraps make them: which option, attribute and handler reaches which channel, several
// addresses, and failures that leave nothing behind.
#include "support/fault_script.h"
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/base/attribute_map.h>
#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/context.h>
#include <millrace/channel/transport.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <set>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::errnoOf;
using test::EventLog;
using test::FaultScript;
using test::LogPtr;
using test::NetTest;
using test::Peer;
using test::recording;
using test::succeeds;
using testing::ElementsAre;
using testing::HasSubstr;

const AttributeKey<int> kNumber("number");

class Servers : public NetTest {
 protected:
  static bool echoes(Peer& peer) {
    peer.send("ping");
    return peer.receive(4) == "ping";
  }
  bool serves(const SocketAddress& address) {
    Peer peer = Peer::to(address);
    return echoes(peer);
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// C205: one group for both roles, or two on different engines
TEST_P(Servers, TakeOneGroupOrTwo) {
  EventLoopGroup boss(1, GetParam().io.type == &io::epollType ? io::poll() : io::epoll());
  std::atomic<EventLoopGroup*> childOf{nullptr};
  const auto child = [&](Channel& channel) {
    childOf = channel.loop().parent();
    channel.pipeline().emplaceLast<test::EchoHandler>();
  };

  const Server one = ServerBootstrap().group(group()).childHandler(child).bind(anyAddress()).get();
  EXPECT_TRUE(serves(one.address()));
  EXPECT_EQ(childOf, &group());
  EXPECT_EQ(one.channel().loop().parent(), &group());

  const Server two =
      ServerBootstrap().group(boss, group()).childHandler(child).bind(anyAddress()).get();
  EXPECT_TRUE(serves(two.address()));
  EXPECT_EQ(childOf, &group());
  EXPECT_EQ(two.channel().loop().parent(), &boss);
}

// C205 C207: options and attributes reach their channels before any handler
TEST_P(Servers, SetOptionsAndAttributesBeforeHandlersCome) {
  std::atomic<int> parent{0};
  std::atomic<int> child{0};
  std::atomic<bool> halfOpen{false};
  std::atomic<int> batch{0};
  const auto number = [](Channel& channel) {
    const auto found = channel.attributes().get(kNumber);
    return found == nullptr ? -1 : *found;
  };
  const Server server = ServerBootstrap()
                            .group(group())
                            .option(options::maxMessagesPerRead, 3)
                            .attribute(kNumber, 1)
                            .handler([&](Channel& channel) {
                              parent = number(channel);
                              batch = channel.option(options::maxMessagesPerRead).get();
                              EXPECT_TRUE(channel.loop().inEventLoop());
                            })
                            .childOption(options::allowHalfClosure, true)
                            .childAttribute(kNumber, 2)
                            .childHandler([&](Channel& channel) {
                              child = number(channel);
                              halfOpen = channel.option(options::allowHalfClosure).get();
                              channel.pipeline().emplaceLast<test::EchoHandler>();
                            })
                            .bind(anyAddress())
                            .get();

  EXPECT_TRUE(serves(server.address()));
  EXPECT_EQ(parent, 1);
  EXPECT_EQ(batch, 3);
  EXPECT_EQ(child, 2);
  EXPECT_TRUE(halfOpen);
}

// C206
TEST_P(Servers, HaveARealAddressOnceTheyAreBound) {
  const Server server = serve(test::echoing());

  EXPECT_TRUE(server.channel().isActive());
  EXPECT_EQ(server.channel().localAddress(), server.address());
  if (isTcp()) {
    EXPECT_NE(server.address().port(), 0);
  }
  EXPECT_TRUE(serves(server.address()));
}

// C206 F77: taken
TEST_P(Servers, FailToBindWhereSomebodyElseListens) {
  const Server first = serve(test::echoing());

  const Future<Server> second =
      bootstrap(test::echoing()).handler(recording(log_)).bind(first.address());

  EXPECT_EQ(errnoOf(second), EADDRINUSE);
  EXPECT_THAT(second.cause().message(), HasSubstr(first.address().toString()));
  ASSERT_TRUE(log_->await("removed"));
  EXPECT_THAT(log_->events(), ElementsAre("added", "registered", "unregistered", "removed"));
  EXPECT_TRUE(serves(first.address()));
}

// F77: addresses that are not ours, or not addresses
TEST_P(Servers, FailToBindWhereTheyCannot) {
  ServerBootstrap any = bootstrap(test::echoing());
  if (isTcp()) {
    EXPECT_EQ(errnoOf(any.bind(SocketAddress::inet4({192, 0, 2, 1}, 0))), EADDRNOTAVAIL);
    EXPECT_EQ(errnoOf(any.bind("not a number", 80)), EINVAL);
    if (::geteuid() != 0) {
      EXPECT_EQ(errnoOf(any.bind(SocketAddress::loopback4(1))), EACCES);
    }
  } else {
    EXPECT_EQ(errnoOf(any.bind(*SocketAddress::unixPath("/no/such/folder/socket"))), ENOENT);
  }
  EXPECT_EQ(errnoOf(any.bind(SocketAddress())), EAFNOSUPPORT);
}

// F77: each system call of binding fails in turn; nothing is left, and the next attempt works
TEST_P(Servers, LeaveNothingBehindWhenBindingFails) {
  settle();
  const int faults = test::forEachFault(
      [&](FaultScript& script) {
        const Future<Server> made = bootstrap(test::echoing()).bind(anyAddress());
        if (succeeds(made)) {
          EXPECT_EQ(script.faults(), 0U) << script.lastFault();
          EXPECT_TRUE(serves(made.get().address()));
          return;
        }
        EXPECT_EQ(script.faults(), 1U);
        EXPECT_NE(made.cause().errnoValue(), 0) << made.cause().message();
      },
      {"socket", "setsockopt", "bind", "listen", "getsockname"});
  EXPECT_GE(faults, isTcp() ? 5 : 4);
}

// C197 C206: the kernel refuses to watch the listener
TEST_P(Servers, TellWhyTheirListenerCannotBeWatched) {
  if (GetParam().io.type != &io::epollType) return;
  settle();
  FaultScript script;
  script.fail("epoll_ctl", 1, EPERM);

  EXPECT_EQ(errnoOf(bootstrap(test::echoing()).bind(anyAddress())), EPERM);
}

// C207: the parent's handlers see each connection as a message, and may keep it
TEST_P(Servers, ShowEachConnectionToTheParentsHandlers) {
  struct Filter : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override {
      EXPECT_TRUE(msg.is<AcceptedSocket>());
      if (++seen % 2 == 0) return;  // dropped: closed
      ctx.fireChannelRead(std::move(msg));
    }
    int seen = 0;
  };
  const Server server = bootstrap(test::echoing())
                            .handler([](Channel& ch) { ch.pipeline().emplaceLast<Filter>(); })
                            .bind(anyAddress())
                            .get();

  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(serves(server.address()));
    Peer refused = Peer::to(server.address());
    EXPECT_EQ(refused.receiveAll(), "");
  }
}

// C208 F49: the workers have ended: the connection is closed, no descriptor is lost
TEST_P(Servers, CloseConnectionsThatNoWorkerTakes) {
  EventLoopGroup workers(GetParam().options().loops(1));
  const Server server = ServerBootstrap()
                            .group(group(), workers)
                            .childHandler(test::echoing())
                            .bind(anyAddress())
                            .get();
  EXPECT_TRUE(serves(server.address()));
  workers.shutdownGracefully().sync();
  settle();

  // The listener pauses: whoever comes waits in the kernel.
  Peer waiting = Peer::to(server.address());
  settle();
  EXPECT_FALSE(server.channel().isAutoRead());
  server.channel().read();  // by force
  EXPECT_EQ(waiting.receiveAll(), "");
  EXPECT_TRUE(logs_.awaitRecord("is closed:"));
}

// C208 F49: bound when the workers had ended before
TEST_P(Servers, OfWorkersThatHaveEndedAcceptNobody) {
  EventLoopGroup workers(GetParam().options().loops(1));
  workers.shutdownGracefully().sync();
  const Server server = ServerBootstrap()
                            .group(group(), workers)
                            .childHandler(test::echoing())
                            .handler(recording(log_))
                            .bind(anyAddress())
                            .get();

  const Peer waiting = Peer::to(server.address());
  settle();

  EXPECT_EQ(log_->count("message"), 0U);
}

// F49
TEST_P(Servers, CannotBeBoundOnAGroupThatHasEnded) {
  group().shutdownGracefully().sync();

  EXPECT_TRUE(test::failsWith(bootstrap(test::echoing()).bind(anyAddress()), Errc::rejected));
}

// C208: the child's handlers cannot be made
TEST_P(Servers, CloseAConnectionWhoseHandlersCannotBeMade) {
  std::atomic<int> times{0};
  const Server server = serve([&](Channel& channel) {
    if (++times == 1) throw std::runtime_error("no handler today");
    channel.pipeline().emplaceLast<test::EchoHandler>();
  });

  Peer first = Peer::to(server.address());
  EXPECT_EQ(first.receiveAll(), "");
  EXPECT_TRUE(serves(server.address()));
}

// behaviour 3.13, code rules
TEST_P(Servers, NeedAGroupAndAChildHandler) {
  const auto text = [&](const ServerBootstrap& made) {
    return test::textOf<std::logic_error>([&] { static_cast<void>(made.bind(anyAddress())); });
  };
  EXPECT_THAT(text(ServerBootstrap().childHandler(test::echoing())), HasSubstr("group()"));
  EXPECT_THAT(text(ServerBootstrap().group(group())), HasSubstr("childHandler()"));
  EXPECT_THAT(test::textOf<std::invalid_argument>([&] {
                static_cast<void>(bootstrap(test::echoing()).bind(std::vector<SocketAddress>{}));
              }),
              HasSubstr("no address"));
}

// behaviour 3.13.1-2: what is set at bind() counts; copies go their own ways
TEST_P(Servers, AreMadeOfWhatWasSetAtThatMoment) {
  ServerBootstrap first = bootstrap(test::echoing());
  first.option(options::maxMessagesPerRead, 3).attribute(kNumber, 1);
  ServerBootstrap second = first;
  const Future<Server> early = first.bind(anyAddress());
  first.option(options::maxMessagesPerRead, 4).attribute(kNumber, 9);
  second.option(options::maxMessagesPerRead, 5);

  const Server a = early.get();
  const Server b = first.bind(anyAddress()).get();
  const Server c = second.bind(anyAddress()).get();

  EXPECT_EQ(a.channel().option(options::maxMessagesPerRead).get(), 3);
  EXPECT_EQ(b.channel().option(options::maxMessagesPerRead).get(), 4);
  EXPECT_EQ(c.channel().option(options::maxMessagesPerRead).get(), 5);
  EXPECT_EQ(*a.channel().attributes().get(kNumber), 1);
  EXPECT_EQ(*b.channel().attributes().get(kNumber), 9);
  EXPECT_EQ(*c.channel().attributes().get(kNumber), 1);
}

// C129: a listener that accepts on demand only
TEST_P(Servers, LetTheirUserAcceptByHand) {
  const Server server = bootstrap(test::echoing())
                            .option(options::autoRead, false)
                            .handler(recording(log_))
                            .bind(anyAddress())
                            .get();
  Peer peer = Peer::to(server.address());
  settle();
  EXPECT_EQ(log_->count("message"), 0U);

  server.channel().read();

  EXPECT_TRUE(echoes(peer));
}

// Several addresses: all of them, or none
TEST_P(Servers, ListenOnSeveralAddressesOrOnNone) {
  const Server both = bootstrap(test::echoing()).bind({anyAddress(), anyAddress()}).get();
  ASSERT_EQ(both.channels().size(), 2U);
  EXPECT_TRUE(serves(both.channels()[0]->localAddress()));
  EXPECT_TRUE(serves(both.channels()[1]->localAddress()));
  EXPECT_NE(both.channels()[0]->localAddress(), both.channels()[1]->localAddress());

  const LogPtr log = std::make_shared<EventLog>();
  const Future<Server> none = bootstrap(test::echoing())
                                  .handler(recording(log))
                                  .bind({anyAddress(), both.address(), anyAddress()});
  EXPECT_EQ(errnoOf(none), EADDRINUSE);
  EXPECT_TRUE(log->await("removed", 3));

  EXPECT_TRUE(succeeds(both.close()));
  EXPECT_FALSE(both.channels()[0]->isOpen());
  EXPECT_FALSE(both.channels()[1]->isOpen());
}

// One listener per loop; connections stay on the loop that accepted them
TEST_P(Servers, MayListenOnEveryLoop) {
  if (!isTcp()) return;
  more(3);
  std::mutex mutex;
  std::set<EventLoop*> used;
  const auto fill = [&](Channel& channel) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(&channel.loop(), &channel.parent()->loop());
    used.insert(&channel.loop());
    channel.pipeline().emplaceLast<test::EchoHandler>();
  };
  const Server server = bootstrap(fill).reusePortPerLoop().bind("127.0.0.1", 0).get();

  EXPECT_EQ(server.channels().size(), 3U);
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(serves(server.address()));

  const std::lock_guard lock(mutex);
  EXPECT_GT(used.size(), 1U);
}

// One listener per loop and a free port: the same for all of them
TEST_P(Servers, ShareAFreePortBetweenTheLoops) {
  if (!isTcp()) return;
  more(3);
  const Server server =
      bootstrap(test::echoing()).reusePortPerLoop().bind(SocketAddress::loopback4(0)).get();

  ASSERT_EQ(server.channels().size(), 3U);
  for (const ChannelPtr& each : server.channels()) {
    EXPECT_EQ(each->localAddress(), server.address());
  }
}

// A path is there while the server is, and goes with it
TEST_P(Servers, RemoveTheirPathWhenTheyEnd) {
  if (isTcp()) return;
  const std::string path = "/tmp/millrace-test-" + std::to_string(::getpid()) + ".sock";
  struct stat about {};
  {
    const Server server = bootstrap(test::echoing()).bind(*SocketAddress::unixPath(path)).get();
    EXPECT_EQ(::stat(path.c_str(), &about), 0);
    EXPECT_TRUE(serves(server.address()));
    EXPECT_EQ(errnoOf(bootstrap(test::echoing()).bind(*SocketAddress::unixPath(path))), EADDRINUSE);
    EXPECT_EQ(::stat(path.c_str(), &about), 0) << "the failed one took it away";
  }
  EXPECT_NE(::stat(path.c_str(), &about), 0);
}

// IPv6, and both families on one port
TEST_P(Servers, ListenOnBothFamilies) {
  if (!isTcp()) return;
  const Future<Server> made = bootstrap(test::echoing()).bind(SocketAddress::loopback6(0));
  if (!succeeds(made)) GTEST_SKIP() << "no IPv6 here";
  EXPECT_TRUE(serves(made.get().address()));
}

INSTANTIATE_TEST_SUITE_P(Engines, Servers, testing::ValuesIn(test::socketRows()), test::netRowName);

}  // namespace
}  // namespace millrace
