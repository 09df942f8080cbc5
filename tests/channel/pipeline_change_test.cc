// SPDX-License-Identifier: Apache-2.0
// Pipelines that change while an event travels through them, or from other threads.
#include "support/engines.h"
#include "support/loop_test.h"
#include "support/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using test::EventCase;
using test::Log;
using test::Recorder;
using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

/// Three recorders a, b and c; one of them changes the pipeline in the middle of an event.
class ChangeDuring : public testing::TestWithParam<EventCase> {
 protected:
  enum class Change {
    removeSelf,
    removeNext,
    removePrevious,
    addNext,
    addPrevious,
    replaceSelf,
    replaceNext
  };
  static constexpr Change kAll[] = {Change::removeSelf, Change::removeNext,  Change::removePrevious,
                                    Change::addNext,    Change::addPrevious, Change::replaceSelf,
                                    Change::replaceNext};

  bool inbound() const { return GetParam().inbound; }
  /// The names in the order in which the event meets them.
  Log inOrder() const { return inbound() ? Log{"a", "b", "c"} : Log{"c", "b", "a"}; }

  /// What `actor` does; gives who must see the event.
  Log apply(Change change, const std::string& actor, ChannelPipeline& p) {
    Log seen = inOrder();
    const auto self = std::find(seen.begin(), seen.end(), actor);
    const bool hasNext = self + 1 != seen.end();
    const bool hasPrevious = self != seen.begin();
    const auto fresh = [&] { return std::make_unique<Recorder>("n", log_); };
    switch (change) {
      case Change::removeSelf:
        p.remove(actor);
        break;
      case Change::removeNext:
        if (!hasNext) break;
        p.remove(*(self + 1));
        seen.erase(self + 1);
        break;
      case Change::removePrevious:
        if (hasPrevious) p.remove(*(self - 1));
        break;
      case Change::addNext:
        inbound() ? p.addAfter(actor, "n", fresh()) : p.addBefore(actor, "n", fresh());
        seen.insert(self + 1, "n");
        break;
      case Change::addPrevious:
        inbound() ? p.addBefore(actor, "n", fresh()) : p.addAfter(actor, "n", fresh());
        break;
      case Change::replaceSelf:
        p.replace(actor, "n", fresh());
        seen.insert(self + 1, "n");
        break;
      case Change::replaceNext:
        if (!hasNext) break;
        p.replace(*(self + 1), "n", fresh());
        *(self + 1) = "n";
        break;
    }
    return seen;
  }

  void runCase(Change change, const std::string& actor) {
    SCOPED_TRACE(actor + " makes change " + std::to_string(static_cast<int>(change)));
    log_.clear();
    Log expected;
    {
      EmbeddedChannel channel([&](Channel& ch) {
        for (const char* name : {"a", "b", "c"}) {
          ch.pipeline().addLast(name, std::make_unique<Recorder>(name, log_));
        }
      });
      channel.run([&] {
        auto& handler = static_cast<Recorder&>(*channel.pipeline().get(actor));
        handler.on[GetParam().name] = [&](Context& ctx) {
          if (expected.empty()) expected = apply(change, actor, ctx.pipeline());
        };
        const std::size_t before = log_.size();
        static_cast<void>(GetParam().fire(channel, 1));
        const Log during(log_.begin() + static_cast<std::ptrdiff_t>(before), log_.end());
        EXPECT_THAT(test::whoSaw(during, GetParam().name), ElementsAreArray(expected));
      });
      while (channel.takeException()) {
      }
    }
    // However it went, each was added once and removed once.
    Log added = test::whoSaw(log_, "handlerAdded");
    Log removed = test::whoSaw(log_, "handlerRemoved");
    std::sort(added.begin(), added.end());
    std::sort(removed.begin(), removed.end());
    EXPECT_EQ(added, removed);
    EXPECT_EQ(std::adjacent_find(added.begin(), added.end()), added.end());
  }

  Log log_;
};

// F53
TEST_P(ChangeDuring, SkipsNobodyAndCallsNobodyTwice) {
  for (const Change change : kAll) {
    for (const char* actor : {"a", "b", "c"}) runCase(change, actor);
  }
}

INSTANTIATE_TEST_SUITE_P(Events, ChangeDuring, testing::ValuesIn(test::everyEvent()),
                         [](const auto& each) { return each.param.name; });

// F53: a handler may even empty the pipeline, and is not destroyed before it returns
TEST(ChangingPipeline, KeepsWhoIsOnTheStackUntilHeReturns) {
  struct Emptier : ChannelHandler {
    explicit Emptier(bool& gone) : gone_(gone) {}
    ~Emptier() override { gone_ = true; }
    void channelRead(Context& ctx, Message&& msg) override {
      while (ctx.pipeline().last() != nullptr) ctx.pipeline().remove(ctx.pipeline().last()->name());
      EXPECT_TRUE(ctx.isRemoved());
      EXPECT_FALSE(gone_);
      ctx.fireChannelRead(std::move(msg));
      ctx.writeAndFlush(5);
      EXPECT_FALSE(gone_);
    }
    bool& gone_;
  };
  bool gone = false;
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().emplaceLast<Recorder>("before", log);
    ch.pipeline().emplaceLast<Emptier>(gone);
    ch.pipeline().emplaceLast<Recorder>("after", log);
  });

  channel.writeInbound(4);

  EXPECT_TRUE(gone);
  EXPECT_EQ(channel.readInbound<int>(), 4);
  EXPECT_EQ(channel.readOutbound<int>(), 5);
  EXPECT_THAT(test::whoSaw(log, "channelRead"), ElementsAre("before"));
}

// F53 behaviour 3.9 item 17: what the old one passes on in its last call goes to the new one
TEST(ChangingPipeline, GivesWhatAReplacedHandlerHeldToItsSuccessor) {
  struct Holder : ChannelHandler {
    void handlerRemoved(Context& ctx) override {
      ctx.fireChannelRead(1);
      ctx.write(2);
      ctx.flush();
    }
  };
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().addLast("before", std::make_unique<Recorder>("before", log));
    ch.pipeline().addLast("holder", std::make_unique<Holder>());
    ch.pipeline().addLast("after", std::make_unique<Recorder>("after", log));
  });

  channel.run(
      [&] { channel.pipeline().replace("holder", "new", std::make_unique<Recorder>("new", log)); });

  EXPECT_THAT(test::whoSaw(log, "channelRead"), ElementsAre("new", "after"));
  EXPECT_THAT(test::whoSaw(log, "write"), ElementsAre("new", "before"));
  EXPECT_EQ(channel.readInbound<int>(), 1);
  EXPECT_EQ(channel.readOutbound<int>(), 2);
}

// F53: the new handler takes the old one out by itself
TEST(ChangingPipeline, SurvivesASuccessorThatRemovesWhomItReplaces) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) {
    ch.pipeline().addLast("old", std::make_unique<Recorder>("old", log));
    ch.pipeline().addLast("last", std::make_unique<Recorder>("last", log));
  });
  channel.run([&] {
    channel.pipeline().replace(
        "old", "new", std::make_unique<Recorder>("new", log, "handlerAdded", [](Context& ctx) {
          ctx.pipeline().remove("old");
        }));
    EXPECT_THAT(channel.pipeline().names(), ElementsAre("new", "last"));
  });
  channel.writeInbound(1);

  EXPECT_THAT(test::whoSaw(log, "handlerRemoved"), ElementsAre("old"));
  EXPECT_THAT(test::whoSaw(log, "channelRead"), ElementsAre("new", "last"));
}

// F53: the successor throws in handlerAdded and goes again; the old one has left, too
TEST(ChangingPipeline, SurvivesASuccessorThatThrows) {
  Log log;
  EmbeddedChannel channel(
      [&](Channel& ch) { ch.pipeline().addLast("old", std::make_unique<Recorder>("old", log)); });
  channel.run([&] {
    channel.pipeline().replace("old", "new",
                               std::make_unique<Recorder>("new", log, "handlerAdded", [](Context&) {
                                 throw std::runtime_error("not me");
                               }));
  });
  EXPECT_TRUE(channel.run([&] { return channel.pipeline().empty(); }));
  EXPECT_THAT(channel.takeException().message(), HasSubstr("not me"));
  EXPECT_THAT(test::whoSaw(log, "handlerRemoved"), ElementsAre("new", "old"));
}

// --- from other threads ---

TEST(ChangingPipeline, TakesHandlersFromOtherThreadsInTheirOrder) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  Log log;
  EmbeddedChannel channel;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const std::string name = std::to_string(t) + "-" + std::to_string(i);
        channel.pipeline().addLast(name, std::make_unique<Recorder>(name, log));
      }
    });
  }
  for (int i = 0; i < 100; ++i) channel.runPendingTasks();
  for (std::thread& thread : threads) thread.join();
  channel.runPendingTasks();

  const std::vector<std::string> names = channel.run([&] { return channel.pipeline().names(); });
  EXPECT_EQ(names.size(), std::size_t{kThreads} * kEach);
  EXPECT_EQ(test::whoSaw(log, "handlerAdded"), names);
  for (int t = 0; t < kThreads; ++t) {
    int next = 0;
    for (const std::string& name : names) {
      if (!name.starts_with(std::to_string(t) + "-")) continue;
      EXPECT_EQ(name, std::to_string(t) + "-" + std::to_string(next++));
    }
    EXPECT_EQ(next, kEach);
  }
}

TEST(ChangingPipeline, ReportsWhatFailsFromAnotherThreadAsAnException) {
  Log log;
  EmbeddedChannel channel(
      [&](Channel& ch) { ch.pipeline().addLast("x", std::make_unique<Recorder>("x", log)); });
  std::thread([&] {
    channel.pipeline().addLast("x", std::make_unique<Recorder>("second", log));
    channel.pipeline().remove("y");
    channel.pipeline().replace("x", "z", std::make_unique<Recorder>("z", log));
  }).join();
  channel.runPendingTasks();

  EXPECT_THAT(channel.takeException().message(), HasSubstr("\"x\" is taken"));
  EXPECT_THAT(channel.takeException().message(), HasSubstr("no handler \"y\""));
  EXPECT_FALSE(channel.takeException());
  EXPECT_THAT(channel.run([&] { return channel.pipeline().names(); }), ElementsAre("z"));
}

// behaviour 3.9 item 32
TEST(ChangingPipeline, IsChangedByTwoLoopsEachInTheOthersChannel) {
  constexpr int kRounds = 200;
  Log logs[2];
  EmbeddedChannel* channels[2] = {nullptr, nullptr};
  std::latch made(2);
  std::latch done(2);
  std::latch drained(2);
  std::vector<std::thread> threads;
  for (int me = 0; me < 2; ++me) {
    threads.emplace_back([&, me] {
      EmbeddedChannel channel(
          [](Channel& ch) { ch.pipeline().addLast("base", std::make_unique<ChannelHandler>()); });
      channels[me] = &channel;
      made.arrive_and_wait();
      ChannelPipeline& other = channels[1 - me]->pipeline();
      channel.run([&] {
        for (int i = 0; i < kRounds; ++i) {
          other.addBefore("base", "", std::make_unique<Recorder>("r", logs[1 - me]));
        }
      });
      done.arrive_and_wait();
      channel.runPendingTasks();
      EXPECT_EQ(channel.run([&] { return channel.pipeline().size(); }), kRounds + 1U);
      drained.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// behaviour 3.9 item 28
TEST(ChangingPipeline, CallsHandlerRemovedOnlyWhereHandlerAddedWasCalled) {
  struct Counted : ChannelHandler {
    Counted(std::atomic<int>& a, std::atomic<int>& r, std::atomic<int>& d)
        : added(a), removed(r), destroyed(d) {}
    ~Counted() override { ++destroyed; }
    void handlerAdded(Context&) override { ++added; }
    void handlerRemoved(Context&) override { ++removed; }
    std::atomic<int>&added, &removed, &destroyed;
  };
  std::atomic<int> added{0};
  std::atomic<int> removed{0};
  std::atomic<int> destroyed{0};
  constexpr int kRounds = 200;
  for (int i = 0; i < kRounds; ++i) {
    EmbeddedChannel channel;
    std::thread other([&] {
      channel.pipeline().emplaceLast<Counted>(added, removed, destroyed);
      channel.pipeline().emplaceLast<Counted>(added, removed, destroyed);
    });
    channel.close();
    other.join();
    channel.runPendingTasks();
    while (channel.takeException()) {
    }
  }
  EXPECT_EQ(added.load(), removed.load());
  EXPECT_EQ(destroyed.load(), 2 * kRounds);
}

TEST(ChangingPipeline, LetsNoOtherThreadUseAContext) {
  Log log;
  EmbeddedChannel channel([&](Channel& ch) { ch.pipeline().emplaceLast<Recorder>("h", log); });
  Context& ctx = *channel.run([&] { return channel.pipeline().first(); });

  const auto wrong = AllOf(HasSubstr(channel.loop().name()), HasSubstr("use the Channel"));
  using Logic = std::logic_error;
  EXPECT_THAT(test::textOf<Logic>([&] { ctx.write(1); }), wrong);
  EXPECT_THAT(test::textOf<Logic>([&] { ctx.writeAndFlush(1); }), wrong);
  EXPECT_THAT(test::textOf<Logic>([&] { ctx.flush(); }), wrong);
  EXPECT_THAT(test::textOf<Logic>([&] { ctx.read(); }), wrong);
  EXPECT_THAT(test::textOf<Logic>([&] { ctx.close(); }), wrong);
  EXPECT_THAT(test::textOf<Logic>([&] { ctx.fireChannelRead(1); }), wrong);
  EXPECT_THAT(test::textOf<Logic>([&] { ctx.fireChannelActive(); }), wrong);
  EXPECT_THAT(test::textOf<Logic>([&] { ctx.allocate(1); }), wrong);
}

}  // namespace
}  // namespace millrace
