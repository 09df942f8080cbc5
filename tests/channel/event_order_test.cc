// SPDX-License-Identifier: Apache-2.0
// The life of a channel as its handlers see it.
#include "support/recorder.h"

#include <millrace/channel/channel_initializer.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace millrace {
namespace {

using test::Log;
using test::Recorder;
using testing::ElementsAre;
using testing::HasSubstr;

/// A channel that is not registered yet, with one recorder.
struct Recorded {
  Log log;
  EmbeddedChannel channel{{.registered = false},
                          [this](Channel& ch) { ch.pipeline().emplaceLast<Recorder>("h", log); }};

  Future<void> registerAndNote() {
    return channel.run([this] {
      Promise<void> promise(channel.loop());
      const Future<void> done = promise.future();
      done.addListener([this] { log.emplace_back("future"); });
      channel.registerNow({}, std::move(promise));
      return done;
    });
  }
};

// C195 I9, behaviour 3.11 item 1, 3.9 item 18
TEST(EventOrder, OfTheFirstRegistration) {
  Recorded r;

  EXPECT_TRUE(r.registerAndNote().isSuccess());

  EXPECT_THAT(r.log, ElementsAre("h.handlerAdded", "future", "h.channelRegistered",
                                 "h.channelActive", "h.read"));
}

// C195: stop
TEST(EventOrder, EndsWithARegistrationThatWasCancelled) {
  Recorded r;
  r.channel.run([&] {
    Promise<void> promise(r.channel.loop());
    promise.future().cancel();
    r.channel.registerNow({}, std::move(promise));
  });
  EXPECT_THAT(r.log, ElementsAre());
  EXPECT_FALSE(r.channel.isOpen());
  EXPECT_FALSE(r.channel.isRegistered());
}

// C191
TEST(EventOrder, KeepsARegisteredChannelThatIsRegisteredAgain) {
  Recorded r;
  r.channel.start();
  const std::size_t before = r.log.size();

  const Future<void> again = r.channel.start();

  EXPECT_TRUE(again.cause().is(Errc::rejected));
  EXPECT_THAT(again.cause().message(), HasSubstr("is registered already"));
  EXPECT_EQ(r.log.size(), before);
  EXPECT_TRUE(r.channel.isOpen());
}

// C196, behaviour 3.11 item 2
TEST(EventOrder, TellsOfTheActivationOnceHoweverOftenItIsRegistered) {
  Recorded r;
  r.channel.start();
  r.log.clear();

  EXPECT_TRUE(r.channel.run([&] { return r.channel.deregister(); }).isSuccess());
  EXPECT_FALSE(r.channel.isRegistered());
  EXPECT_TRUE(r.channel.isOpen());
  EXPECT_TRUE(r.channel.start().isSuccess());

  EXPECT_THAT(
      r.log, ElementsAre("h.deregister", "h.channelUnregistered", "h.channelRegistered", "h.read"));
  EXPECT_TRUE(r.channel.isActive());
}

// C199: one right after the other, with something still to be written
TEST(EventOrder, ComesBackToItsLoopAtOnce) {
  EmbeddedChannel channel;
  for (int i = 0; i < 5; ++i) {
    channel.run([&] {
      channel.writeAndFlush(i);
      static_cast<void>(channel.deregister());
      EXPECT_FALSE(channel.isRegistered());
      registerChannel(channel.loop(), ChannelPtr(&channel));
      EXPECT_TRUE(channel.isRegistered());
      channel.writeAndFlush(i);
    });
    EXPECT_EQ(channel.readOutbound<int>(), i);
    EXPECT_EQ(channel.readOutbound<int>(), i);
  }
  EXPECT_TRUE(channel.writeInbound(1));
}

// I9
TEST(EventOrder, OfAWholeLife) {
  Recorded r;
  r.channel.start();
  r.channel.writeInbound(1);
  r.channel.close();

  EXPECT_THAT(r.log,
              ElementsAre("h.handlerAdded", "h.channelRegistered", "h.channelActive", "h.read",
                          "h.channelRead", "h.channelReadComplete", "h.read", "h.close",
                          "h.channelInactive", "h.channelUnregistered", "h.handlerRemoved"));
}

// I9: on one thread
TEST(EventOrder, IsSeenFromOneThread) {
  std::set<std::int64_t> threads;
  Log log;
  {
    EmbeddedChannel channel([&](Channel& ch) {
      auto recorder = std::make_unique<Recorder>("h", log);
      for (const test::EventCase& event : test::everyEvent()) {
        recorder->on[event.name] = [&](Context& ctx) {
          EXPECT_TRUE(ctx.loop().inEventLoop());
          threads.insert(threadId());
        };
      }
      ch.pipeline().addLast(std::move(recorder));
    });
    channel.writeInbound(1);
    channel.writeOutbound(1);
  }
  EXPECT_EQ(threads.size(), 1U);
  EXPECT_THAT(log, testing::Contains("h.handlerRemoved"));
}

// behaviour 3.11: close() completes promise, fails pending writes, then inactive, then unregistered
TEST(EventOrder, OfAClose) {
  Recorded r;
  r.channel.start();
  r.channel.stall();
  const auto noting = [&](const char* what) {
    Promise<void> promise(r.channel.loop());
    promise.future().addListener([&r, what](const Result<void>& result) {
      r.log.push_back(what + std::string(result ? " done" : " failed"));
    });
    return promise;
  };
  r.channel.run([&] {
    r.channel.closeFuture().addListener([&] { r.log.emplace_back("closeFuture"); });
    r.channel.writeAndFlush(1, noting("flushed"));
    r.channel.write(2, noting("written"));
  });
  r.log.clear();
  r.channel.run([&] {
    r.channel.close().addListener([&] { r.log.emplace_back("close done"); });
    EXPECT_FALSE(r.channel.isOpen());
  });

  EXPECT_THAT(r.log, ElementsAre("h.close", "closeFuture", "flushed failed", "written failed",
                                 "h.channelInactive", "h.channelUnregistered", "h.handlerRemoved",
                                 "close done"));
}

// F57: where the channel is closed, each callback comes once, inactive after active
TEST(EventOrder, IsKeptWhereverTheChannelIsClosed) {
  for (const char* where :
       {"handlerAdded", "channelRegistered", "channelActive", "channelRead", "channelReadComplete",
        "close", "channelInactive", "channelUnregistered", "handlerRemoved", "read"}) {
    SCOPED_TRACE(where);
    Log log;
    EmbeddedChannel channel({.registered = false}, [&](Channel& ch) {
      ch.pipeline().emplaceLast<Recorder>("a", log);
      ch.pipeline().addLast(
          std::make_unique<Recorder>("b", log, where, [](Context& ctx) { ctx.close(); }));
      ch.pipeline().emplaceLast<Recorder>("c", log);
    });
    channel.start();
    channel.writeInbound(1);
    channel.close();

    const bool wasActive = !test::whoSaw(log, "channelActive").empty();
    for (const char* event : {"handlerAdded", "channelRegistered", "channelUnregistered"}) {
      EXPECT_THAT(test::whoSaw(log, event), ElementsAre("a", "b", "c")) << event;
    }
    EXPECT_THAT(test::whoSaw(log, "handlerRemoved"), ElementsAre("c", "b", "a"));
    if (wasActive) {
      EXPECT_THAT(test::whoSaw(log, "channelActive"), ElementsAre("a", "b", "c"));
      EXPECT_THAT(test::whoSaw(log, "channelInactive"), ElementsAre("a", "b", "c"));
    } else {
      EXPECT_THAT(test::whoSaw(log, "channelInactive"), ElementsAre());
    }
    EXPECT_FALSE(channel.isOpen() || channel.isRegistered() || channel.isActive());
  }
}

// F57: in a listener of the close
TEST(EventOrder, SurvivesACloseInTheListenerOfTheClose) {
  Recorded r;
  r.channel.start();
  int told = 0;
  r.channel.run([&] {
    r.channel.closeFuture().addListener([&] {
      ++told;
      r.channel.Channel::close().addListener([&] { ++told; });
    });
  });

  r.channel.close();

  EXPECT_EQ(told, 2);
  EXPECT_THAT(test::whoSaw(r.log, "channelInactive"), ElementsAre("h"));
  EXPECT_THAT(test::whoSaw(r.log, "channelUnregistered"), ElementsAre("h"));
}

// behaviour 3.9 item 22
TEST(EventOrder, RemovesHandlersFromTheLastToTheFirst) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    for (const char* name : {"a", "b", "c"}) ch.pipeline().emplaceLast<Recorder>(name, log);
  });
  EXPECT_THAT(test::whoSaw(log, "handlerAdded"), ElementsAre("a", "b", "c"));

  channel.close();

  EXPECT_THAT(test::whoSaw(log, "handlerRemoved"), ElementsAre("c", "b", "a"));
}

// behaviour 3.9 items 16 19 20 21: what never was in a registered channel's pipeline hears nothing
TEST(EventOrder, CallsNothingOfHandlersThatLeaveBeforeTheRegistration) {
  Log log;
  EmbeddedChannel channel({.registered = false});
  ChannelPipeline& pipeline = channel.pipeline();
  pipeline.addLast("gone", std::make_unique<Recorder>("gone", log));
  pipeline.addLast("old", std::make_unique<Recorder>("old", log));
  pipeline.remove("gone");
  pipeline.replace("old", "new", std::make_unique<Recorder>("new", log));
  EXPECT_THAT(log, ElementsAre());

  channel.start();

  EXPECT_THAT(log, ElementsAre("new.handlerAdded", "new.channelRegistered", "new.channelActive",
                               "new.read"));
}

// behaviour 3.9 item 21
TEST(EventOrder, IsEmptyForAChannelThatIsNeverRegistered) {
  Log log;
  {
    EmbeddedChannel channel({.registered = false},
                            [&](Channel& ch) { ch.pipeline().emplaceLast<Recorder>("h", log); });
  }
  EXPECT_THAT(log, ElementsAre());
}

// behaviour 3.9 item 29
TEST(EventOrder, LetsAHandlerFireAndWriteInHandlerAdded) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().emplaceLast<Recorder>("first", log);
    ch.pipeline().emplaceLast<Recorder>("last", log);
    ch.pipeline().addBefore(
        "Recorder#1", "middle",
        std::make_unique<Recorder>("middle", log, "handlerAdded", [](Context& ctx) {
          ctx.fireUserEventTriggered(1);
          ctx.write(2);
          ctx.pipeline().fireUserEventTriggered(3);
        }));
  });
  EXPECT_THAT(test::whoSaw(log, "userEventTriggered"),
              ElementsAre("last", "first", "middle", "last"));
  EXPECT_THAT(test::whoSaw(log, "write"), ElementsAre("first"));
}

// behaviour 3.9 item 30
TEST(EventOrder, CallsHandlerAddedAtOnceInAListenerOfTheRegistration) {
  Log log;
  EmbeddedChannel channel({.registered = false});
  channel.run([&] {
    Promise<void> promise(channel.loop());
    promise.future().addListener([&] {
      channel.pipeline().emplaceLast<Recorder>("late", log);
      EXPECT_THAT(log, ElementsAre("late.handlerAdded"));
      channel.pipeline().fireUserEventTriggered(1);
    });
    channel.registerNow({}, std::move(promise));
  });
  EXPECT_THAT(log, ElementsAre("late.handlerAdded", "late.userEventTriggered",
                               "late.channelRegistered", "late.channelActive", "late.read"));
}

// behaviour 3.9 item 15: ChannelInitializerTest
TEST(EventOrder, OfAnInitializerThatGoesWhenItHasFilledThePipeline) {
  Log log;
  int inits = 0;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().emplaceLast<Recorder>("before", log);
    ch.pipeline().emplaceLast<ChannelInitializer>([&](Channel& inner) {
      ++inits;
      inner.pipeline().emplaceLast<Recorder>("a", log);
      inner.pipeline().emplaceLast<ChannelInitializer>(
          [&](Channel& inmost) { inmost.pipeline().emplaceLast<Recorder>("b", log); });
      inner.pipeline().emplaceLast<Recorder>("c", log);
    });
  });
  EXPECT_EQ(inits, 1);
  EXPECT_EQ(channel.handler<ChannelInitializer>(), nullptr);
  EXPECT_THAT(test::whoSaw(log, "handlerAdded"), ElementsAre("before", "a", "b", "c"));
  EXPECT_THAT(test::whoSaw(log, "channelRegistered"), ElementsAre("before", "a", "b", "c"));
  EXPECT_THAT(test::whoSaw(log, "handlerRemoved"), ElementsAre());
}

// behaviour 3.9 item 31
TEST(EventOrder, EndsWithAnInitializerThatThrows) {
  Log log;
  EmbeddedChannel channel({.registered = false}, [&](Channel& ch) {
    ch.pipeline().emplaceLast<ChannelInitializer>(
        [](Channel&) { throw std::runtime_error("no handlers today"); });
    ch.pipeline().emplaceLast<Recorder>("h", log);
  });

  channel.start();

  EXPECT_FALSE(channel.isOpen());
  EXPECT_THAT(test::whoSaw(log, "exceptionCaught"), ElementsAre("h"));
  EXPECT_THAT(channel.takeException().message(), HasSubstr("no handlers today"));
  EXPECT_THAT(test::whoSaw(log, "channelActive"), ElementsAre());
}

}  // namespace
}  // namespace millrace
