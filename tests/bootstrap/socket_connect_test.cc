// SPDX-License-Identifier: Apache-2.0
// Channels that connect: success, refusal, silence, and everything that may happen meanwhile.
#include "support/fault_script.h"
#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/base/manual_clock.h>
#include <millrace/channel/context.h>
#include <millrace/transport/transports.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::errnoOf;
using test::EventLog;
using test::FaultScript;
using test::Held;
using test::LogPtr;
using test::NetTest;
using test::Peer;
using test::recording;
using test::succeeds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A listening plain socket that accepts nobody by itself.
class Listener {
 public:
  explicit Listener(const SocketAddress& where, int backlog = 16)
      : fd_(::socket(where.domain(), SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    EXPECT_EQ(::bind(fd_.get(), where.raw(), where.rawSize()), 0);
    EXPECT_EQ(::listen(fd_.get(), backlog), 0);
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&name), &size);
    address_ = *SocketAddress::fromRaw(&name, size);
  }
  const SocketAddress& address() const { return address_; }
  Peer accept() const { return Peer(Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC))); }
  void close() { fd_.reset(); }

 private:
  Fd fd_;
  SocketAddress address_;
};

class SocketConnect : public NetTest {
 protected:
  Bootstrap client() { return Bootstrap().group(group()).handler(recording(log_)); }
  /// An address where nobody listens.
  ChannelPtr fresh(const SocketAddress& target) {
    const ChannelPtr made =
        *transportFor(loop().ioType())->newClient(loop(), *kindFor(target, Datagrams::no));
    recording(log_)(*made);
    EXPECT_TRUE(succeeds(registerChannel(loop(), made)));
    return made;
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

// C137
TEST_P(SocketConnect, BecomesActiveOnceAndCompletesOnce) {
  const Listener listener(anyAddress());

  const ChannelPtr channel = client().connect(listener.address()).get();
  Peer peer = listener.accept();

  EXPECT_TRUE(channel->isActive());
  EXPECT_EQ(channel->remoteAddress(), listener.address());
  EXPECT_TRUE(succeeds(channel->send(ByteBuf::of("hello"))));
  EXPECT_EQ(peer.receive(5), "hello");
  EXPECT_EQ(log_->count("active"), 1U);
  EXPECT_EQ(errnoOf(channel->connect(listener.address())), EISCONN);
  EXPECT_TRUE(channel->isActive());
  EXPECT_TRUE(succeeds(channel->close()));
}

// C124: connected, room to write and something to read in one event: active, then write, then read
TEST_P(SocketConnect, IsActiveThenWritesThenReads) {
  const Listener listener(anyAddress());
  const ChannelPtr channel = fresh(listener.address());
  Peer peer;
  {
    const Held held(loop());
    channel->connect(listener.address()).addListener([&] { log_->add("connected"); });
    Promise<void> done(loop());
    done.future().addListener([&] { log_->add("written"); });
    channel->writeAndFlush(ByteBuf::of("first"), std::move(done));
  }
  inLoop([&] {
    peer = listener.accept();
    peer.send("welcome");
  });
  ASSERT_TRUE(log_->await("readComplete"));

  const std::vector<std::string> events = log_->events();
  EXPECT_THAT(events, ElementsAre("added", "registered", "connected", "active", "written", "read 7",
                                  "readComplete"));
  EXPECT_EQ(peer.receive(5), "first");
  EXPECT_TRUE(succeeds(channel->close()));
}

// C137 F10: refused
TEST_P(SocketConnect, ThatIsRefusedFailsAndClosesAndIsNeverActive) {
  const test::Nobody gone(anyAddress());
  const SocketAddress target = gone.address();

  const Future<ChannelPtr> made = client().connect(target);

  EXPECT_EQ(errnoOf(made), ECONNREFUSED);
  EXPECT_THAT(made.cause().message(), AllOf(HasSubstr("connect"), HasSubstr(target.toString())));
  ASSERT_TRUE(log_->await("removed"));
  EXPECT_THAT(log_->events(), ElementsAre("added", "registered", "unregistered", "removed"));
}

// C137 F10: what SO_ERROR says is the failure
TEST_P(SocketConnect, ThatFailsLaterTellsTheKernelsReason) {
  if (!isTcp()) return;  // Unix sockets connect at once or not at all
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH}) {
    FaultScript script;
    script.fail("connect", 1, error);
    EXPECT_EQ(errnoOf(client().connect(SocketAddress::loopback4(9))), error);
  }
}

// F6: a signal breaks connect(2), which goes on by itself
TEST_P(SocketConnect, IsNotAskedForTwiceAfterASignal) {
  const Listener listener(anyAddress());
  FaultScript script;
  script.interruptFirstTries();

  const ChannelPtr channel = client().connect(listener.address()).get();

  EXPECT_TRUE(channel->isActive());
  EXPECT_EQ(script.count("connect"), 1U);
  EXPECT_TRUE(succeeds(channel->close()));
}

// F59: nobody answers; time is the test's own
TEST_P(SocketConnect, ThatIsNeverAnsweredEndsByTheTimeout) {
  if (!isTcp()) return;
  ManualClock clock;
  EventLoopGroup timed(GetParam().options().loops(1).clock(clock));
  // A full queue of connections: further ones get no answer.
  const Listener listener(SocketAddress::loopback4(0), 0);
  const Peer first = Peer::to(listener.address());
  std::vector<Fd> more;
  for (int i = 0; i < 4; ++i) {
    more.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    static_cast<void>(
        ::connect(more.back().get(), listener.address().raw(), listener.address().rawSize()));
  }
  const Future<ChannelPtr> made = Bootstrap()
                                      .group(timed)
                                      .handler(recording(log_))
                                      .option(options::connectTimeout, 3s)
                                      .connect(listener.address());
  ASSERT_TRUE(log_->await("registered"));
  timed.begin()->submit([] {}).sync();

  clock.advance(2999ms);
  timed.begin()->submit([] {}).sync();
  EXPECT_FALSE(made.isDone());
  clock.advance(1ms);

  EXPECT_TRUE(test::failsWith(made, Errc::timedOut));
  EXPECT_THAT(made.cause().message(), HasSubstr("3000 ms"));
  ASSERT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("active"), 0U);
}

// F58: closed while the connect is under way
TEST_P(SocketConnect, FailsWhenTheChannelIsClosedMeanwhile) {
  const Listener listener(anyAddress());
  const ChannelPtr channel = fresh(listener.address());
  Future<void> connected;
  Future<void> closed;
  inLoop([&] {
    connected = channel->connect(listener.address());
    closed = channel->close();
  });

  EXPECT_TRUE(succeeds(closed));
  EXPECT_TRUE(succeeds(connected) || connected.cause().is(Errc::closed));
  ASSERT_TRUE(log_->await("removed"));
  EXPECT_EQ(log_->count("inactive"), log_->count("active"));
  EXPECT_EQ(log_->count("unregistered"), 1U);
}

// F58: the loop ends while the connect is under way
TEST_P(SocketConnect, FailsWhenTheLoopEndsMeanwhile) {
  const Listener listener(anyAddress());
  const ChannelPtr channel = fresh(listener.address());
  Future<void> connected;
  inLoop([&] {
    connected = channel->connect(listener.address());
    group().shutdownGracefully();
  });
  listener.accept();

  EXPECT_TRUE(succeeds(group().terminationFuture()));
  EXPECT_TRUE(connected.isDone());
  EXPECT_FALSE(channel->isOpen());
  EXPECT_EQ(log_->count("unregistered"), 1U);
}

// F58: asked for twice
TEST_P(SocketConnect, RefusesASecondOne) {
  const Listener listener(anyAddress());
  const ChannelPtr channel = fresh(listener.address());
  Future<void> first;
  Future<void> second;
  inLoop([&] {
    first = channel->connect(listener.address());
    second = channel->connect(listener.address());
  });

  EXPECT_TRUE(succeeds(first));
  EXPECT_EQ(errnoOf(second), isTcp() ? EALREADY : EISCONN);
  EXPECT_TRUE(succeeds(channel->close()));
}

// C137 F57: closed by who waited for it, before the handlers are told: they hear nothing
TEST_P(SocketConnect, MayBeClosedByItsListener) {
  const Listener listener(anyAddress());
  const ChannelPtr channel = fresh(listener.address());
  inLoop([&] {
    channel->connect(listener.address()).addListener([&] {
      EXPECT_TRUE(channel->isActive());
      channel->close();
    });
  });

  ASSERT_TRUE(log_->await("removed"));
  // Unix sockets are connected before the listener is added.
  EXPECT_EQ(log_->count("active"), isTcp() ? 0U : 1U);
  EXPECT_EQ(log_->count("inactive"), log_->count("active"));
}

// Operations in the wrong order are failures, not accidents.
TEST_P(SocketConnect, NeedsARegisteredChannel) {
  const test::Nobody gone(anyAddress());
  const SocketAddress target = gone.address();
  const ChannelPtr made =
      *transportFor(loop().ioType())->newClient(loop(), *kindFor(target, Datagrams::no));

  EXPECT_TRUE(test::failsWith(made->connect(target), Errc::notSupported));
  EXPECT_TRUE(test::failsWith(made->bind(target), Errc::notSupported));
  EXPECT_EQ(errnoOf(made->send(ByteBuf::of("x"))), ENOTCONN);
  EXPECT_TRUE(succeeds(made->close()));
}

// A write before the connection exists fails.
TEST_P(SocketConnect, IsNeededBeforeWriting) {
  const test::Nobody nobody(anyAddress());
  const ChannelPtr channel = fresh(nobody.address());

  EXPECT_EQ(errnoOf(channel->send(ByteBuf::of("x"))), ENOTCONN);

  EXPECT_TRUE(channel->isOpen());
  EXPECT_TRUE(succeeds(channel->close()));
}

// F60: a socket that is connected with itself works like any other
TEST_P(SocketConnect, ToItselfIsHarmless) {
  if (!isTcp()) return;
  SocketAddress own;
  {
    Listener free(SocketAddress::loopback4(0));
    own = free.address();
  }
  const Result<ChannelPtr> made = [&]() -> Result<ChannelPtr> {
    const Future<ChannelPtr> future =
        Bootstrap()
            .group(group())
            .handler([](Channel& ch) { ch.pipeline().emplaceLast<ChannelHandler>(); })
            .option(options::reuseAddress, true)
            .localAddress(own)
            .connect(own);
    if (!succeeds(future)) return future.cause();
    return future.get();
  }();
  ASSERT_TRUE(made.ok()) << made.error().message();

  EXPECT_EQ((*made)->localAddress(), (*made)->remoteAddress());
  (*made)->pipeline().emplaceLast<test::RecordingHandler>(log_);
  EXPECT_TRUE(succeeds((*made)->send(ByteBuf::of("echo"))));
  EXPECT_TRUE(log_->awaitBytes(4));
  EXPECT_TRUE(succeeds((*made)->close()));
}

// F82 C197: the kernel refuses to watch the socket
TEST_P(SocketConnect, ThatCannotBeWatchedFails) {
  if (GetParam().io.type != &io::epollType) return;
  const Listener listener(anyAddress());
  settle();
  FaultScript script;
  script.fail("epoll_ctl", 1, ENOSPC);

  EXPECT_EQ(errnoOf(client().connect(listener.address())), ENOSPC);

  EXPECT_TRUE(log_->await("removed"));
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketConnect, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
