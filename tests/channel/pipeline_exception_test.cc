// SPDX-License-Identifier: Apache-2.0
// What handlers throw: it stays at their boundary and reaches whom it concerns.
#include "support/log_capture.h"
#include "support/recorder.h"
#include "support/sanitized.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {
namespace {

using test::EventCase;
using test::Log;
using test::Recorder;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

void raise(Context&) { throw std::runtime_error("out of order"); }

/// Three recorders a, b and c; one of them throws when the event comes to it.
class ThrownIn : public testing::TestWithParam<EventCase> {
 protected:
  static Log upTo(Log names, const std::string& last) {
    names.erase(std::find(names.begin(), names.end(), last) + 1, names.end());
    return names;
  }
  static Log from(Log names, const std::string& first) {
    names.erase(names.begin(), std::find(names.begin(), names.end(), first));
    return names;
  }

  const EventCase& event() const { return GetParam(); }
  Log inOrder() const { return event().inbound ? Log{"a", "b", "c"} : Log{"c", "b", "a"}; }

  void runCase(const std::string& thrower) {
    SCOPED_TRACE(thrower + " throws");
    test::LogCapture quiet("warn");
    auto token = std::make_shared<int>();
    Log log;
    EmbeddedChannel channel([&](Channel& ch) {
      for (const char* name : {"a", "b", "c"}) {
        ch.pipeline().addLast(name, std::make_unique<Recorder>(name, log));
      }
    });
    Future<void> future;
    channel.run([&] {
      static_cast<Recorder&>(*channel.pipeline().get(thrower)).on[event().name] = &raise;
      log.clear();
      future = event().fire(channel, token);
    });

    EXPECT_THAT(test::whoSaw(log, event().name), ElementsAreArray(upTo(inOrder(), thrower)));
    if (event().name == "exceptionCaught") {  // F56: logged, and that is all
      EXPECT_TRUE(quiet.contains("out of order"));
      EXPECT_TRUE(quiet.contains("fired"));
      EXPECT_FALSE(channel.takeException());
    } else if (event().hasPromise) {
      EXPECT_THAT(future.cause().message(), HasSubstr("out of order"));
      EXPECT_THAT(test::whoSaw(log, "exceptionCaught"), ElementsAre());
    } else {
      EXPECT_THAT(test::whoSaw(log, "exceptionCaught"),
                  ElementsAreArray(from({"a", "b", "c"}, thrower)));
      EXPECT_THAT(channel.takeException().message(), HasSubstr("out of order"));
    }
    EXPECT_EQ(token.use_count(), 1);  // the message went, once
    EXPECT_TRUE(channel.isOpen() && channel.isRegistered() && channel.isActive());
    EXPECT_EQ(channel.run([&] { return channel.pipeline().size(); }), 3U);
    EXPECT_FALSE(channel.takeException());
  }
};

// F55 F56
TEST_P(ThrownIn, ReachesWhomItConcernsAndNobodyElse) {
  for (const char* thrower : {"a", "b", "c"}) runCase(thrower);
}

INSTANTIATE_TEST_SUITE_P(Events, ThrownIn, testing::ValuesIn(test::everyEvent()),
                         [](const auto& each) { return each.param.name; });

// F55: the handler that threw does not want to know; those behind it do
TEST(Thrown, PassesHandlersThatDoNotHandleErrors) {
  struct Thrower : ChannelHandler {
    void channelRead(Context&, Message&&) override { throw 42; }
  };
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().emplaceLast<Recorder>("before", log);
    ch.pipeline().emplaceLast<Thrower>();
    ch.pipeline().emplaceLast<Recorder>("behind", log);
  });

  EXPECT_THROW(channel.writeInbound(1), int);

  EXPECT_THAT(test::whoSaw(log, "exceptionCaught"), ElementsAre("behind"));
}

// F55: nobody waits for the write
TEST(Thrown, InAWriteWithoutAPromiseIsReportedToTheHandlers) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().addLast(std::make_unique<Recorder>("h", log, "write", &raise));
  });

  channel.run([&] { channel.write(1); });

  EXPECT_THAT(test::whoSaw(log, "exceptionCaught"), ElementsAre("h"));
  EXPECT_TRUE(channel.takeException());
}

// F55: the promise has gone on already; it is done by whoever has it
TEST(Thrown, AfterTheOperationWasPassedOnIsReportedToTheHandlers) {
  struct Late : ChannelHandler {
    void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
      ctx.write(std::move(msg), std::move(done));
      throw std::runtime_error("too late");
    }
    void close(Context& ctx, Promise<void>&& done) override {
      ctx.close(std::move(done));
      throw std::runtime_error("far too late");
    }
  };
  EmbeddedChannel channel([&](Channel& ch) { ch.pipeline().emplaceLast<Late>(); });
  const Future<void> written = channel.writeOneOutbound(1);
  EXPECT_THAT(channel.takeException().message(), HasSubstr("too late"));
  channel.flushOutbound();
  EXPECT_TRUE(written.isSuccess());

  EXPECT_TRUE(channel.close().isSuccess());

  EXPECT_THAT(channel.takeException().message(), HasSubstr("far too late"));
}

// behaviour 3.9 items 45 46
TEST(Thrown, FromExceptionCaughtIsNotToldAgain) {
  test::LogCapture quiet("warn");
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    auto a = std::make_unique<Recorder>("a", log, "channelRead", &raise);
    a->on["exceptionCaught"] = [](Context& ctx) { ctx.fireUserEventTriggered(1); };
    ch.pipeline().addLast(std::move(a));
    auto b = std::make_unique<Recorder>("b", log, "userEventTriggered", &raise);
    b->on["exceptionCaught"] = [](Context&) { throw std::runtime_error("handling failed"); };
    ch.pipeline().addLast(std::move(b));
    ch.pipeline().emplaceLast<Recorder>("c", log);
  });

  channel.writeInbound(1);

  // b is told of its own failure, and of the one that a passes on.
  EXPECT_THAT(test::whoSaw(log, "exceptionCaught"), ElementsAre("a", "b", "b"));
  EXPECT_EQ(quiet.count(LogLevel::warn), 2U);
  EXPECT_TRUE(quiet.contains("handling failed"));
  EXPECT_FALSE(channel.takeException());
}

// F54, behaviour 3.9 item 24
TEST(Thrown, FromHandlerAddedTakesTheHandlerOutAgain) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) { ch.pipeline().emplaceLast<Recorder>("a", log); });
  channel.run([&] {
    channel.pipeline().addLast(std::make_unique<Recorder>("bad", log, "handlerAdded", &raise));
    channel.pipeline().emplaceLast<Recorder>("b", log);
    EXPECT_EQ(channel.pipeline().size(), 2U);
  });

  EXPECT_THAT(test::whoSaw(log, "handlerRemoved"), ElementsAre("bad"));
  EXPECT_THAT(test::whoSaw(log, "exceptionCaught"), ElementsAre("a"));
  EXPECT_THAT(channel.takeException().message(), HasSubstr("handlerAdded() of Recorder"));
  channel.writeInbound(1);
  EXPECT_THAT(test::whoSaw(log, "channelRead"), ElementsAre("a", "b"));
}

// F54, behaviour 3.9 item 25
TEST(Thrown, FromHandlerRemovedIsReportedAndTheHandlerIsGone) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().emplaceLast<Recorder>("a", log);
    ch.pipeline().addLast("bad", std::make_unique<Recorder>("bad", log, "handlerRemoved", &raise));
  });
  channel.run([&] { channel.pipeline().remove("bad"); });

  EXPECT_EQ(channel.run([&] { return channel.pipeline().size(); }), 1U);
  EXPECT_THAT(test::whoSaw(log, "exceptionCaught"), ElementsAre("a"));
  EXPECT_THAT(channel.takeException().message(), HasSubstr("handlerRemoved() of"));
}

// F54, behaviour 3.9 items 26 27: many bad ones, early and late
TEST(Thrown, FromBothIsReportedAndLeavesNobodyBehind) {
  Log log;
  const auto bad = [&] {
    auto handler = std::make_unique<Recorder>("bad", log, "handlerAdded", &raise);
    handler->on["handlerRemoved"] = &raise;
    return handler;
  };
  EmbeddedChannel channel({.registered = false}, [&](Channel& ch) {
    for (int i = 0; i < 16; ++i) ch.pipeline().addLast(bad());
  });
  EXPECT_TRUE(channel.start().isSuccess());
  channel.run([&] {
    for (int i = 0; i < 16; ++i) channel.pipeline().addLast(bad());
  });

  EXPECT_TRUE(channel.run([&] { return channel.pipeline().empty(); }));
  EXPECT_EQ(test::whoSaw(log, "handlerAdded").size(), 32U);
  EXPECT_EQ(test::whoSaw(log, "handlerRemoved").size(), 32U);
  int errors = 0;
  while (channel.takeException()) ++errors;
  EXPECT_EQ(errors, 64);
}

// F54: in the removal that comes with the close
TEST(Thrown, FromHandlerRemovedDoesNotStopTheClose) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    for (const char* name : {"a", "b", "c"}) {
      ch.pipeline().addLast(std::make_unique<Recorder>(name, log, "handlerRemoved", &raise));
    }
  });
  channel.close();

  EXPECT_THAT(test::whoSaw(log, "handlerRemoved"), ElementsAre("c", "b", "a"));
  EXPECT_FALSE(channel.isRegistered());
  while (channel.takeException()) {
  }
}

// behaviour 3.9: DefaultChannelPipelineTailTest
TEST(Unhandled, MessagesEventsAndErrorsAreGivenToTheChannel) {
  struct Sink : ChannelHandler {
    void channelRead(Context& ctx, Message&& msg) override { ctx.fireChannelRead(std::move(msg)); }
    void userEventTriggered(Context& ctx, Message&& event) override {
      ctx.fireUserEventTriggered(std::move(event));
    }
  };
  for (const bool empty : {true, false}) {
    EmbeddedChannel channel([&](Channel& ch) {
      if (!empty) ch.pipeline().emplaceLast<Sink>();
    });
    channel.run([&] {
      channel.pipeline().fireChannelRead(1);
      channel.pipeline().fireUserEventTriggered(2);
      channel.pipeline().fireExceptionCaught(Error(Errc::closed, "three"));
    });
    EXPECT_EQ(channel.readInbound<int>(), 1);
    EXPECT_EQ(channel.readUserEvent().take<int>(), 2);
    EXPECT_EQ(channel.takeException().operation(), "three");
  }
}

// --- depth ---

struct Passing : ChannelHandler {
  void channelRead(Context& ctx, Message&& msg) override { ctx.fireChannelRead(std::move(msg)); }
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
    ctx.write(std::move(msg), std::move(done));
  }
  void exceptionCaught(Context& ctx, const Error& error) override {
    ctx.fireExceptionCaught(error);
  }
};

void passThroughAThousand() {
  EmbeddedChannel channel([](Channel& ch) {
    for (int i = 0; i < 1000; ++i) ch.pipeline().emplaceLast<Passing>();
  });
  channel.writeInbound(1);
  channel.writeOutbound(2);
  channel.run([&] { channel.pipeline().fireExceptionCaught(Error(Errc::closed, "x")); });

  EXPECT_EQ(channel.readInbound<int>(), 1);
  EXPECT_EQ(channel.readOutbound<int>(), 2);
  EXPECT_TRUE(channel.takeException());
}

// F76: a thousand handlers deep. Each takes some hundred bytes of the stack; the optimizer leaves a
// third of that, sanitizers add to it.
TEST(DeepPipeline, OfAThousandHandlersFitsOnASmallStack) {
  constexpr std::size_t kStack = (test::kSanitized ? 2048 : 768) * 1024;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStack), 0);
  pthread_t thread;
  const auto body = [](void*) -> void* {
    passThroughAThousand();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace
}  // namespace millrace
