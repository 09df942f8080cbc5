// SPDX-License-Identifier: Apache-2.0
// Which events a handler is asked about. What must not compile is in tests/compile_fail.
#include "support/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace millrace {
namespace {

using testing::ElementsAre;

constexpr EventMask bits(std::initializer_list<Event> events) {
  EventMask mask = 0;
  for (const Event event : events) mask |= static_cast<EventMask>(event);
  return mask;
}

struct Nothing : ChannelHandler {};
struct OnlyLife : ChannelHandler {
  void handlerAdded(Context&) override { ++calls; }
  void handlerRemoved(Context&) override { ++calls; }
  int calls = 0;
};
struct Reads : ChannelHandler {
  void channelRead(Context&, Message&&) override {}
};
struct ReadsMore : Reads {
  void flush(Context& ctx) override { ctx.flush(); }
};
class Private : public ChannelHandler {
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
    ctx.write(std::move(msg), std::move(done));
  }
};
struct Overloaded : ChannelHandler {
  void close(Context& ctx, Promise<void>&& done) override { ctx.close(std::move(done)); }
  void close(int) {}
};
struct Noexcept : ChannelHandler {
  void read(Context& ctx) noexcept override { ctx.read(); }
};
struct Final final : ReadsMore {
  void channelRead(Context&, Message&&) final {}
};

// behaviour 3.9 item 47: computed at compile time
static_assert(eventsOf<ChannelHandler>() == 0);
static_assert(eventsOf<Nothing>() == 0);
static_assert(eventsOf<OnlyLife>() == 0);
static_assert(eventsOf<Reads>() == bits({Event::channelRead}));
static_assert(eventsOf<ReadsMore>() == bits({Event::channelRead, Event::flush}));
static_assert(eventsOf<Final>() == bits({Event::channelRead, Event::flush}));
static_assert(eventsOf<Private>() == bits({Event::write}));
static_assert(eventsOf<Overloaded>() == bits({Event::close}));
static_assert(eventsOf<Noexcept>() == bits({Event::read}));
static_assert(eventsOf<test::Recorder>() == kEveryEvent);

/// Everything that can happen to a channel, and to a handler in it.
void fireEverything(EmbeddedChannel& channel) {
  channel.run([&] {
    for (const test::EventCase& event : test::everyEvent()) {
      if (event.name != "close" && event.name != "disconnect") {
        static_cast<void>(event.fire(channel, 1));
      }
    }
  });
  while (channel.takeException()) {
  }
}

// behaviour 3.9 item 47: events go past who does not override them; added and removed are called
TEST(EventMask, LetsEventsPassHandlersThatDoNotWantThem) {
  test::Log log;
  int calls = 0;
  {
    EmbeddedChannel channel([&](Channel& ch) {
      ch.pipeline().emplaceLast<Nothing>();
      ch.pipeline().emplaceLast<test::Recorder>("h", log);
      ch.pipeline().emplaceLast<OnlyLife>();
    });
    fireEverything(channel);
    for (const test::EventCase& event : test::everyEvent()) {
      if (event.name == "close" || event.name == "disconnect") continue;
      EXPECT_THAT(test::whoSaw(log, event.name), testing::Contains("h")) << event.name;
    }
    calls = channel.handler<OnlyLife>()->calls;
  }
  EXPECT_EQ(calls, 1);
}

// The mask is that of the class that the pipeline was given, unless the object is of another.
TEST(EventMask, IsFullForAHandlerKnownByItsBaseOnly) {
  test::Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    std::unique_ptr<ChannelHandler> known = std::make_unique<test::Recorder>("h", log);
    ch.pipeline().addLast(std::move(known));
    std::unique_ptr<ChannelHandler> plain = std::make_unique<ChannelHandler>();
    ch.pipeline().addLast(std::move(plain));
    std::unique_ptr<ChannelHandler> silent = std::make_unique<Nothing>();  // full mask, passes on
    ch.pipeline().addFirst(std::move(silent));
  });
  log.clear();

  fireEverything(channel);

  for (const test::EventCase& event : test::everyEvent()) {
    if (event.name == "close" || event.name == "disconnect") continue;
    EXPECT_THAT(test::whoSaw(log, event.name), testing::Contains("h")) << event.name;
  }
}

TEST(EventMask, CallsPrivateAndOverloadedOverrides) {
  struct Seen : Overloaded {
    explicit Seen(int& count) : closes(count) {}
    void close(Context& ctx, Promise<void>&& done) override {
      ++closes;
      ctx.close(std::move(done));
    }
    int& closes;
  };
  int closes = 0;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().emplaceLast<Private>();
    ch.pipeline().emplaceLast<Seen>(closes);
  });
  channel.writeOutbound(1);
  EXPECT_EQ(channel.readOutbound<int>(), 1);

  channel.close();

  EXPECT_EQ(closes, 1);
}

}  // namespace
}  // namespace millrace
