// SPDX-License-Identifier: Apache-2.0
// How stream channels come to their loop and leave it, over every engine with sockets.
#include "support/fault_script.h"
#include "support/net.h"

#include <millrace/channel/context.h>
#include <millrace/transport/transports.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <fcntl.h>
#include <thread>

namespace millrace {
namespace {

using test::errnoOf;
using test::EventLog;
using test::failsWith;
using test::FaultScript;
using test::LogPtr;
using test::makePair;
using test::NetTest;
using test::Pair;
using test::recording;
using test::succeeds;
using testing::ElementsAre;
using testing::HasSubstr;

class SocketRegistration : public NetTest {
 protected:
  const LogPtr log_ = std::make_shared<EventLog>();
};

// C190
TEST_P(SocketRegistration, GivesAFutureOfTheLoop) {
  Pair pair = makePair(isTcp());
  const ChannelPtr channel = adopt(std::move(pair.ours));

  const Future<void> registered = registerChannel(loop(), channel);

  EXPECT_EQ(&registered.executor(), &loop());
  EXPECT_TRUE(succeeds(registered));
  EXPECT_TRUE(channel->isRegistered());
}

// C191
TEST_P(SocketRegistration, FailsTheSecondTimeAndLeavesTheChannelWorking) {
  auto [channel, peer] = link(test::echoing());

  const Future<void> again = registerChannel(loop(), channel);

  EXPECT_FALSE(succeeds(again));
  EXPECT_THAT(again.cause().message(), HasSubstr("registered already"));
  peer.send("still here");
  EXPECT_EQ(peer.receive(10), "still here");
}

// C192
TEST_P(SocketRegistration, OnAnEngineWithoutSocketsFailsAndNamesIt) {
  EventLoopGroup parking(1, io::parking());
  EventLoop& wrong = *parking.begin();
  Pair pair = makePair(isTcp());
  const ChannelPtr channel = *transportFor(loop().ioType(), ChannelKind::tcp4)
                                  ->adopt(wrong, {std::move(pair.ours), SocketAddress(), {}});

  const Future<void> registered = registerChannel(wrong, channel);

  EXPECT_TRUE(failsWith(registered, Errc::notSupported));
  EXPECT_THAT(registered.cause().message(), HasSubstr("parking"));
  EXPECT_EQ(pair.peer.receiveAll(), "");
  EXPECT_FALSE(channel->isOpen());
}

// F83: the engine does not take the descriptor
TEST_P(SocketRegistration, RefusedByTheKernelClosesTheChannelWithThatCause) {
  if (GetParam().name.find("Epoll") == std::string::npos) return;  // poll asks nobody
  for (const int error : {EEXIST, ENOENT, ENOSPC}) {
    Pair pair = makePair(isTcp());
    const ChannelPtr channel = adopt(std::move(pair.ours));
    FaultScript script;
    script.fail("epoll_ctl", 1, error);

    EXPECT_EQ(errnoOf(registerChannel(loop(), channel)), error);

    EXPECT_FALSE(channel->isOpen());
    EXPECT_EQ(pair.peer.receiveAll(), "");
  }
}

// C192: a channel stays with its loop
TEST_P(SocketRegistration, WithAnotherLoopFailsAndLeavesTheChannelAlone) {
  more(2);
  Pair pair = makePair(isTcp());
  const ChannelPtr channel = adopt(std::move(pair.ours));
  test::echoing()(*channel);

  const Future<void> wrong = registerChannel(*++group().begin(), channel);
  EXPECT_TRUE(failsWith(wrong, Errc::notSupported));
  EXPECT_TRUE(succeeds(registerChannel(loop(), channel)));

  pair.peer.send("ours");
  EXPECT_EQ(pair.peer.receive(4), "ours");
}

// C193
TEST_P(SocketRegistration, FromAHandlerOfTheSameLoopIsDoneAtOnce) {
  Pair pair = makePair(isTcp());
  const ChannelPtr other = adopt(std::move(pair.ours));
  std::atomic<bool> wasDone{false};
  struct Registers : ChannelHandler {
    Registers(ChannelPtr o, std::atomic<bool>& d) : other(std::move(o)), done(d) {}
    void channelActive(Context& ctx) override {
      done = registerChannel(ctx.loop(), other).isSuccess();
    }
    ChannelPtr other;
    std::atomic<bool>& done;
  };

  auto linked = link([&](Channel& ch) { ch.pipeline().emplaceLast<Registers>(other, wasDone); });
  settle();

  EXPECT_TRUE(wasDone);
  EXPECT_TRUE(other->isRegistered());
}

// C194 F49
TEST_P(SocketRegistration, OnALoopThatHasEndedClosesTheSocket) {
  Pair pair = makePair(isTcp());
  const ChannelPtr channel = adopt(std::move(pair.ours));
  EventLoop& target = loop();
  group().shutdownGracefully().sync();

  const Future<void> registered = registerChannel(target, channel);

  EXPECT_TRUE(failsWith(registered, Errc::rejected));
  EXPECT_TRUE(succeeds(channel->closeFuture()));
  EXPECT_EQ(pair.peer.receiveAll(), "");
  EXPECT_TRUE(logs_.contains("it is shut down"));
}

// C195 I9: the promise's listener stands between handlerAdded and channelRegistered
TEST_P(SocketRegistration, TellsTheHandlersInOrder) {
  Pair pair = makePair(isTcp());
  const ChannelPtr channel = adopt(std::move(pair.ours));
  recording(log_)(*channel);

  inLoop([&] {
    Promise<void> done(loop());
    done.future().addListener([&] { log_->add("future"); });
    channel->registerNow({}, std::move(done));
  });
  pair.peer.send("0123456789");
  ASSERT_TRUE(log_->await("readComplete"));
  pair.peer.close();
  ASSERT_TRUE(log_->await("removed"));

  EXPECT_THAT(log_->events(), ElementsAre("added", "future", "registered", "active", "read 10",
                                          "readComplete", "inactive", "unregistered", "removed"));
}

// C195: a registration that was cancelled before its turn does not happen
TEST_P(SocketRegistration, ThatWasCancelledClosesTheChannel) {
  Pair pair = makePair(isTcp());
  const ChannelPtr channel = adopt(std::move(pair.ours));
  recording(log_)(*channel);

  inLoop([&] {
    Promise<void> done(loop());
    done.future().cancel();
    channel->registerNow({}, std::move(done));
  });

  EXPECT_FALSE(channel->isOpen());
  EXPECT_EQ(pair.peer.receiveAll(), "");
  EXPECT_EQ(log_->count("registered"), 0U);
}

// C196 C199
TEST_P(SocketRegistration, MayEndAndBeginAnewAtOnce) {
  auto [channel, peer] = link(recording(log_));
  peer.send("one");
  ASSERT_TRUE(log_->awaitBytes(3));

  Future<void> left;
  Future<void> back;
  inLoop([&, ch = channel] {
    left = ch->deregister();
    back = registerChannel(loop(), ch);
  });
  EXPECT_TRUE(succeeds(left));
  EXPECT_TRUE(succeeds(back));
  peer.send("two");
  ASSERT_TRUE(log_->awaitBytes(6));

  EXPECT_EQ(log_->bytes(), "onetwo");
  EXPECT_EQ(log_->count("active"), 1U);
  EXPECT_EQ(log_->count("registered"), 2U);
  EXPECT_EQ(log_->count("unregistered"), 1U);
  EXPECT_EQ(log_->count("added"), 1U);
}

// C196: what arrives while the channel belongs to no loop waits in the kernel
TEST_P(SocketRegistration, SeesNothingWhileItBelongsToNoLoop) {
  auto [channel, peer] = link(recording(log_));
  EXPECT_TRUE(succeeds(channel->deregister()));
  EXPECT_FALSE(channel->isRegistered());
  EXPECT_TRUE(channel->isOpen());

  peer.send("later");
  settle();
  EXPECT_EQ(log_->byteCount(), 0U);
  EXPECT_TRUE(succeeds(registerChannel(loop(), channel)));

  EXPECT_TRUE(log_->awaitBytes(5));
}

// C196: writes that wait for the kernel go on after the channel has come back
TEST_P(SocketRegistration, TakesPendingWritesAlong) {
  auto [channel, peer] = link(recording(log_), {}, 4096);
  const std::string bytes = test::pattern(4 << 20);
  const Future<void> sent = channel->send(ByteBuf::of(bytes));
  settle();
  ASSERT_FALSE(sent.isDone());

  EXPECT_TRUE(succeeds(channel->deregister()));
  EXPECT_TRUE(succeeds(registerChannel(loop(), channel)));

  EXPECT_TRUE(test::same(peer.receive(bytes.size()), bytes));
  EXPECT_TRUE(succeeds(sent));
}

// C197 F82: the kernel refuses
TEST_P(SocketRegistration, ThatTheKernelRefusesClosesTheSocketAndTellsWhy) {
  if (GetParam().io.type != &io::epollType) return;  // poll asks the kernel for nothing
  for (const int error : {EPERM, ENOSPC, ENOMEM}) {
    Pair pair = makePair(isTcp());
    const ChannelPtr channel = adopt(std::move(pair.ours));
    const LogPtr log = std::make_shared<EventLog>();
    recording(log)(*channel);
    settle();
    {
      FaultScript script;
      script.fail("epoll_ctl", 1, error);
      EXPECT_EQ(errnoOf(registerChannel(loop(), channel)), error);
      EXPECT_EQ(script.faults(), 1U);
    }
    EXPECT_TRUE(succeeds(channel->closeFuture()));
    EXPECT_EQ(pair.peer.receiveAll(), "");
    EXPECT_EQ(inLoop([&] { return channel->closeCause().errnoValue(); }), error);
    EXPECT_EQ(log->count("active"), 0U);
    EXPECT_EQ(log->count("registered"), 0U);
  }
}

// C198: bytes that were there before are read after channelActive only
TEST_P(SocketRegistration, BringsNoInputBeforeItIsActive) {
  Pair pair = makePair(isTcp());
  pair.peer.send("early");
  const ChannelPtr channel = adopt(std::move(pair.ours));
  recording(log_)(*channel);

  EXPECT_TRUE(succeeds(registerChannel(loop(), channel)));
  ASSERT_TRUE(log_->await("readComplete"));

  EXPECT_THAT(log_->events(),
              ElementsAre("added", "registered", "active", "read 5", "readComplete"));
}

// C198: and none at all while nobody wants it
TEST_P(SocketRegistration, WithoutAutoReadBringsNoInput) {
  auto [channel, peer] = link(recording(log_), [](Channel& ch) {
    EXPECT_TRUE(ch.applyOption(options::autoRead, OptionValue(false)).ok());
  });

  peer.send("unwanted");
  settle();
  EXPECT_EQ(log_->byteCount(), 0U);
  channel->read();

  EXPECT_TRUE(log_->awaitBytes(8));
}

template <class C>
concept HasOpenDoors = requires(C& channel) {
  channel.doClose();
}
|| requires(C& channel) { channel.doRegister(); }
|| requires(C& channel) { channel.doBeginRead(); }
|| requires(C& channel) { channel.closeNow(Error()); };

// C200
TEST(SocketChannels, HideWhatOnlyTransportsMayDo) { EXPECT_FALSE(HasOpenDoors<Channel>); }

// F49: what is asked of a group that has ended fails, and leaves nothing behind
TEST_P(SocketRegistration, OperationsOfAChannelWhoseLoopHasEndedFail) {
  auto [channel, peer] = link(recording(log_));
  const ChannelPtr kept = channel;
  peer.shutdownWrite();
  group().shutdownGracefully().sync();

  EXPECT_FALSE(kept->isOpen());
  EXPECT_FALSE(succeeds(kept->bind(anyAddress())));
  EXPECT_FALSE(succeeds(kept->connect(anyAddress())));
  EXPECT_FALSE(succeeds(kept->send(ByteBuf::of("x"))));
  EXPECT_FALSE(succeeds(kept->deregister()));
  kept->write(ByteBuf::of("x"));
  kept->flush();
  kept->read();
  EXPECT_TRUE(succeeds(kept->closeFuture()));
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketRegistration, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
