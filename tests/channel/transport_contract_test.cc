// SPDX-License-Identifier: Apache-2.0
// What Channel promises to a transport, seen by one that does nothing but note its calls.
#include "support/log_capture.h"
#include "support/loop_test.h"
#include "support/recorder.h"

#include <millrace/channel/outbound_buffer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Log;
using test::Recorder;
using testing::ElementsAre;
using testing::HasSubstr;

/// Lives on the heap, as channels do, and counts as one in `alive`.
class NotingChannel final : public Channel {
 public:
  NotingChannel(EventLoop& loop, Log& calls, int& alive)
      : Channel(loop), calls_(calls), alive_(alive) {
    ++alive_;
  }
  ~NotingChannel() override { --alive_; }
  const char* kind() const noexcept override { return "noting"; }

  Error registerFailure;
  int writeError = 0;
  bool full = false;
  bool breaksWhenFull = false;
  bool lingers = false;
  std::function<void()> whileClosing;

  void peerEnds() { lingerDone(); }
  void goOn() {
    full = false;
    const Scope scope(*this);
    flushAgain();
  }

 private:
  Result<void> doRegister() override {
    calls_.emplace_back("register");
    return registerFailure ? Result<void>(registerFailure) : Result<void>();
  }
  void doDeregister() noexcept override { calls_.emplace_back("deregister"); }
  void doClose() noexcept override {
    if (whileClosing) whileClosing();
    calls_.emplace_back("close");
  }
  Result<void> doShutdownOutput() override {
    calls_.emplace_back("shutdownOutput");
    return {};
  }
  void doBeginRead() override { calls_.emplace_back("beginRead"); }
  void doStopRead() override { calls_.emplace_back("stopRead"); }
  int doWrite(OutboundBuffer& out) override {
    if (writeError != 0) return writeError;
    if (full) {
      kernelIsFull();
      if (breaksWhenFull) failWith(Error::fromErrno(ENOMEM, "epoll_ctl"));
      return 0;
    }
    while (isOpen() && out.hasFlushed()) {
      calls_.emplace_back("write");
      out.removeFront();
    }
    return 0;
  }
  bool isActiveNow() const noexcept override { return true; }
  bool canLinger() const noexcept override { return lingers; }
  void doLinger() override { calls_.emplace_back("linger"); }

  Log& calls_;
  int& alive_;
};

class TransportContract : public testing::Test {
 protected:
  TransportContract()
      : loop_(EventLoop::handDriven(LoopOptions().io(io::parking()).clock(clock_))),
        channel_(new NotingChannel(*loop_, calls_, alive_)),
        noting_(static_cast<NotingChannel*>(channel_.get())) {}
  ~TransportContract() override {
    channel_ = nullptr;
    static_cast<void>(loop_->shutdownGracefully());
    while (!loop_->isTerminated()) {
      loop_->runNow();
      clock_.advance(1s);
    }
    EXPECT_EQ(alive_, 0);
  }
  template <class F>
  void run(F fn) {
    loop_->execute(fn);
    settle();
  }
  void settle() {
    while (loop_->runNow() != 0) {
    }
  }
  Future<void> start() {
    const Future<void> done = registerChannel(*loop_, channel_);
    settle();
    return done;
  }

  Log calls_;
  Log events_;
  int alive_ = 0;
  ManualClock clock_;
  Ref<EventLoop> loop_;
  ChannelPtr channel_;
  NotingChannel* noting_;
};

// C198: nothing is read before the channel is active
TEST_F(TransportContract, BeginsToReadWhenTheChannelIsActive) {
  EXPECT_TRUE(start().isSuccess());
  EXPECT_THAT(calls_, ElementsAre("register", "beginRead"));
}

// Whoever asks meanwhile, from another thread, and closes or binds what the channel had.
TEST_F(TransportContract, IsNotSaidToBeClosedBeforeItIs) {
  Future<void> asked = start();
  bool wasDone = true;
  noting_->whileClosing = [&] {
    std::thread([&] {
      asked = channel_->closeFuture();
      wasDone = asked.isDone();
    }).join();
  };

  run([&] { channel_->close(); });

  EXPECT_FALSE(wasDone);
  EXPECT_TRUE(asked.isSuccess());
  EXPECT_TRUE(channel_->closeFuture().isSuccess());
}

// C197
TEST_F(TransportContract, ClosesAChannelThatCannotBeRegistered) {
  test::LogCapture quiet("warn");
  channel_->pipeline().emplaceLast<Recorder>("h", events_);
  noting_->registerFailure = Error::fromErrno(EPERM, "epoll_ctl");

  const Future<void> done = start();

  EXPECT_EQ(done.cause().errnoValue(), EPERM);
  EXPECT_THAT(calls_, ElementsAre("register", "close"));
  EXPECT_TRUE(channel_->closeFuture().isSuccess());
  EXPECT_EQ(channel_->closeCause().errnoValue(), EPERM);
  EXPECT_THAT(events_, ElementsAre());
  EXPECT_TRUE(quiet.contains("cannot be registered"));
}

TEST_F(TransportContract, KeepsTheChannelAliveWhileItIsRegistered) {
  start();
  channel_ = nullptr;
  settle();
  EXPECT_EQ(alive_, 1);

  run([this] { static_cast<void>(noting_->close()); });

  EXPECT_EQ(alive_, 0);
}

// Lifetimes: a handler goes with the registration, however many refer to the channel.
TEST_F(TransportContract, DestroysHandlersWhenTheChannelIsClosed) {
  auto token = std::make_shared<int>();
  struct Holder : ChannelHandler {
    explicit Holder(std::shared_ptr<int> held) : token(std::move(held)) {}
    std::shared_ptr<int> token;
  };
  channel_->pipeline().emplaceLast<Holder>(token);
  start();
  EXPECT_EQ(token.use_count(), 2);

  run([this] { static_cast<void>(channel_->close()); });

  EXPECT_EQ(token.use_count(), 1);
  EXPECT_EQ(alive_, 1);
}

TEST_F(TransportContract, RefusesMessagesThatTheTransportDoesNotTake) {
  start();
  Future<void> refused;
  Future<void> taken;
  run([&] {
    refused = channel_->send(std::string("text"));
    taken = channel_->send(ByteBuf::of("bytes"));
  });

  EXPECT_TRUE(refused.cause().is(Errc::notSupported));
  EXPECT_THAT(refused.cause().message(), HasSubstr("an encoder is missing"));
  EXPECT_THAT(refused.cause().message(), HasSubstr("string"));
  EXPECT_TRUE(taken.isSuccess());
}

TEST_F(TransportContract, SaysWhichOperationsTheTransportDoesNotHave) {
  start();
  run([this] {
    EXPECT_TRUE(channel_->bind(SocketAddress::loopback4(1)).cause().is(Errc::notSupported));
    EXPECT_TRUE(channel_->isOpen());
    EXPECT_TRUE(channel_->connect(SocketAddress::loopback4(1)).cause().is(Errc::notSupported));
    EXPECT_FALSE(channel_->isOpen());  // nobody else could use it
  });
}

// A flush from a plain task: the channel goes in the middle of it, and nobody else refers to it.
TEST_F(TransportContract, SurvivesTheEndOfTheChannelInAFlush) {
  test::LogCapture quiet("warn");
  channel_->pipeline().emplaceLast<Recorder>("h", events_);
  start();
  noting_->full = true;
  noting_->breaksWhenFull = true;
  Context* ctx = nullptr;
  run([&] { ctx = channel_->pipeline().first(); });
  channel_ = nullptr;
  run([ctx] { ctx->write(ByteBuf::of(std::string(100'000, 'x'))); });

  run([ctx] { ctx->flush(); });

  EXPECT_EQ(alive_, 0);
  EXPECT_THAT(test::whoSaw(events_, "exceptionCaught"), ElementsAre("h"));
  EXPECT_THAT(test::whoSaw(events_, "handlerRemoved"), ElementsAre("h"));
}

// The same with a listener that closes.
TEST_F(TransportContract, SurvivesAListenerThatClosesInAFlush) {
  start();
  Channel* channel = channel_.get();
  channel_ = nullptr;
  run([&] {
    Promise<void> promise(*loop_);
    promise.future().addListener([channel] { static_cast<void>(channel->close()); });
    channel->write(ByteBuf::of(std::string(100'000, 'x')), std::move(promise));
    channel->flush();
  });
  EXPECT_EQ(alive_, 0);
}

TEST_F(TransportContract, WritesAgainOnlyWhenTheKernelHasRoom) {
  start();
  calls_.clear();
  noting_->full = true;
  run([this] { channel_->writeAndFlush(ByteBuf::of("a")); });
  noting_->full = false;
  run([this] { channel_->writeAndFlush(ByteBuf::of("b")); });
  EXPECT_THAT(calls_, ElementsAre());

  run([this] { noting_->goOn(); });

  EXPECT_THAT(calls_, ElementsAre("write", "write"));
}

TEST_F(TransportContract, LingersUntilThePeerEndsOrItsTimeIsUp) {
  noting_->lingers = true;
  start();
  calls_.clear();
  run([this] {
    channel_->writeAndFlush(ByteBuf::of("last"));
    channel_->closeGracefully();
  });
  EXPECT_THAT(calls_, ElementsAre("write", "shutdownOutput", "linger"));
  EXPECT_TRUE(channel_->isOpen());

  clock_.advance(1999ms);
  settle();
  EXPECT_TRUE(channel_->isOpen());
  clock_.advance(1ms);
  settle();

  EXPECT_FALSE(channel_->isOpen());
}

TEST_F(TransportContract, EndsALingeringCloseWithThePeersEnd) {
  noting_->lingers = true;
  start();
  run([this] { channel_->closeGracefully(); });
  EXPECT_TRUE(channel_->isOpen());

  run([this] { noting_->peerEnds(); });

  EXPECT_FALSE(channel_->isOpen());
  EXPECT_FALSE(channel_->closeCause());
}

TEST_F(TransportContract, StopsReadingOnRequestAndBeginsAgain) {
  start();
  calls_.clear();
  run([this] { channel_->setAutoRead(false); });
  run([this] { channel_->setAutoRead(true); });
  run([this] { static_cast<void>(channel_->deregister()); });

  EXPECT_THAT(calls_, ElementsAre("stopRead", "beginRead", "deregister"));
}

}  // namespace
}  // namespace millrace
