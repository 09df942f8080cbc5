// SPDX-License-Identifier: Apache-2.0
// Adding, removing, replacing and looking up handlers.
#include "support/loop_test.h"
#include "support/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {
namespace {

using test::textOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct One : ChannelHandler {};
struct Two : ChannelHandler {};
struct Shared : ChannelHandler {
  static constexpr bool sharable = true;
};

template <class H>
std::unique_ptr<H> make() {
  return std::make_unique<H>();
}

class PipelineStructure : public testing::Test {
 protected:
  template <class F>
  void edit(F fn) {
    channel_.run([&] { fn(channel_.pipeline()); });
  }
  std::vector<std::string> names() {
    return channel_.run([&] { return channel_.pipeline().names(); });
  }

  test::Log log_;  // outlives the handlers
  EmbeddedChannel channel_;
};

// behaviour 3.9 items 10 11
TEST_F(PipelineStructure, KeepsTheOrderOfMixedInsertions) {
  edit([](ChannelPipeline& p) {
    p.addLast("3", make<One>());
    p.addFirst("1", make<One>());
    p.addLast("5", make<One>());
    p.addAfter("1", "2", make<Two>());
    p.addBefore("5", "4", make<Two>());
    p.addBefore("1", "0", make<One>());
    p.addAfter("5", "6", make<One>());
    EXPECT_EQ(p.size(), 7U);
    EXPECT_FALSE(p.empty());
    EXPECT_EQ(p.first()->name(), "0");
    EXPECT_EQ(p.last()->name(), "6");
    EXPECT_EQ(p.context("2")->name(), "2");
    EXPECT_EQ(&p.context("2")->handler(), p.get("2"));
    EXPECT_EQ(p.context(*p.get("4"))->name(), "4");
    EXPECT_EQ(p.get<Two>(), p.get("2"));
    EXPECT_EQ(&p.channel(), &p.first()->channel());
  });
  EXPECT_THAT(names(), ElementsAre("0", "1", "2", "3", "4", "5", "6"));
}

// behaviour 3.9 item 10: both directions
TEST_F(PipelineStructure, IsWalkedInBothDirections) {
  test::Log& log = log_;
  edit([&](ChannelPipeline& p) {
    p.addLast("b", std::make_unique<test::Recorder>("b", log));
    p.addFirst("a", std::make_unique<test::Recorder>("a", log));
    p.addAfter("b", "c", std::make_unique<test::Recorder>("c", log));
  });

  channel_.writeInbound(1);
  channel_.writeOutbound(1);

  EXPECT_THAT(test::whoSaw(log, "channelRead"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(test::whoSaw(log, "write"), ElementsAre("c", "b", "a"));
}

// behaviour 3.9 items 8 12: names that are made up
TEST_F(PipelineStructure, MakesUpNamesFromTheClass) {
  edit([](ChannelPipeline& p) {
    p.emplaceLast<One>();
    p.emplaceLast<Two>();
    p.addLast(make<One>());
    p.emplaceFirst<Two>();
    p.addLast("", make<Two>());
    p.addBefore("One#0", "", make<Shared>());
  });
  EXPECT_THAT(names(), ElementsAre("Two#0", "Shared#0", "One#0", "Two#1", "One#1", "Two#2"));
}

// behaviour 3.9 item 13
TEST_F(PipelineStructure, HasNothingAtItsEndsWhenItIsEmpty) {
  edit([](ChannelPipeline& p) {
    EXPECT_TRUE(p.empty());
    EXPECT_EQ(p.size(), 0U);
    EXPECT_EQ(p.first(), nullptr);
    EXPECT_EQ(p.last(), nullptr);
    EXPECT_EQ(p.get("x"), nullptr);
    EXPECT_EQ(p.get<One>(), nullptr);
    EXPECT_EQ(p.context("x"), nullptr);
  });
}

// behaviour 3.9 items 2 3 4 5
TEST_F(PipelineStructure, RemovesByInstanceNameAndType) {
  edit([](ChannelPipeline& p) {
    auto two = make<Two>();
    const ChannelHandler& instance = *two;
    p.addLast("1", make<One>());
    p.addLast("2", std::move(two));
    p.addLast("3", make<One>());
    p.addLast("4", make<Shared>());
    p.remove(instance);
    EXPECT_THAT(p.names(), ElementsAre("1", "3", "4"));
    p.remove("1");
    EXPECT_THAT(p.names(), ElementsAre("3", "4"));
    p.remove<Shared>();
    EXPECT_THAT(p.names(), ElementsAre("3"));

    EXPECT_FALSE(p.removeIfExists("1"));
    EXPECT_FALSE(p.removeIfExists<Two>());
    EXPECT_FALSE(p.removeIfExists(One()));
    EXPECT_TRUE(p.removeIfExists<One>());
    EXPECT_THAT(p.names(), IsEmpty());
    p.addLast("5", make<One>());
    EXPECT_TRUE(p.removeIfExists("5"));
    p.addLast("6", make<One>());
    EXPECT_TRUE(p.removeIfExists(*p.get("6")));
  });
}

// behaviour 3.9 item 5
TEST_F(PipelineStructure, SaysWhatIsNotThere) {
  edit([](ChannelPipeline& p) {
    const One stranger;
    using Wrong = std::invalid_argument;
    EXPECT_THAT(textOf<Wrong>([&] { p.remove("x"); }),
                AllOf(HasSubstr(p.channel().describe()), HasSubstr("no handler \"x\"")));
    EXPECT_THAT(textOf<Wrong>([&] { p.remove(stranger); }), HasSubstr("does not have this"));
    EXPECT_THAT(textOf<Wrong>([&] { p.remove<Two>(); }), HasSubstr("Two"));
    EXPECT_THAT(textOf<Wrong>([&] { p.addBefore("x", "y", make<One>()); }), HasSubstr("\"x\""));
    EXPECT_THAT(textOf<Wrong>([&] { p.addAfter("x", "y", make<One>()); }), HasSubstr("\"x\""));
    EXPECT_THAT(textOf<Wrong>([&] { p.replace("x", "y", make<One>()); }), HasSubstr("\"x\""));
    EXPECT_THAT(textOf<Wrong>([&] { p.addLast(std::unique_ptr<One>()); }), HasSubstr("null"));
    EXPECT_TRUE(p.empty());
  });
}

// behaviour 3.9 item 6
TEST_F(PipelineStructure, ReplacesAtEveryPosition) {
  edit([](ChannelPipeline& p) {
    for (const char* name : {"1", "2", "3"}) p.addLast(name, make<One>());
    p.replace("1", "a", make<Two>());
    p.replace("2", "b", make<Two>());
    p.replace(*p.get("3"), "c", make<Two>());
    EXPECT_EQ(p.get<One>(), nullptr);
    EXPECT_EQ(p.first()->name(), "a");
    EXPECT_EQ(p.last()->name(), "c");
  });
  EXPECT_THAT(names(), ElementsAre("a", "b", "c"));
}

// behaviour 3.9 items 7 8 9
TEST_F(PipelineStructure, ReplacesUnderTheSameNameAMadeUpOneButNotATakenOne) {
  edit([](ChannelPipeline& p) {
    p.addLast("1", make<One>());
    p.addLast("2", make<One>());
    EXPECT_THAT(textOf<std::invalid_argument>([&] { p.replace("1", "2", make<Two>()); }),
                HasSubstr("the name \"2\" is taken"));
    EXPECT_THAT(textOf<std::invalid_argument>([&] { p.addLast("1", make<Two>()); }),
                HasSubstr("is taken"));
    EXPECT_THAT(p.names(), ElementsAre("1", "2"));
    EXPECT_EQ(p.get<Two>(), nullptr);
    p.replace("1", "1", make<Two>());
    p.replace("2", "", make<Two>());
  });
  EXPECT_THAT(names(), ElementsAre("1", "Two#0"));
}

// behaviour 3.9 item 14: the same object in several pipelines, and twice in one
TEST_F(PipelineStructure, SharesHandlersWhoseClassSaysSo) {
  auto shared = std::make_shared<Shared>();
  EmbeddedChannel other([&](Channel& ch) { ch.pipeline().addLast(shared); });
  edit([&](ChannelPipeline& p) {
    p.addLast("1", shared);
    p.addLast("2", shared);
    EXPECT_EQ(p.get("1"), p.get("2"));
  });
  EXPECT_EQ(other.handler<Shared>(), shared.get());
  EXPECT_EQ(shared.use_count(), 4);

  channel_.close();
  other.close();

  EXPECT_EQ(shared.use_count(), 1);
}

TEST_F(PipelineStructure, IsLookedAtOnlyInTheLoopOnceItIsRegistered) {
  EXPECT_THAT(textOf<std::logic_error>([&] { channel_.pipeline().names(); }),
              AllOf(HasSubstr("pipeline.names()"), HasSubstr(channel_.loop().name())));
  EmbeddedChannel fresh({.registered = false});
  EXPECT_THAT(fresh.pipeline().names(), IsEmpty());
}

TEST_F(PipelineStructure, TakesNoHandlerWhenTheChannelIsClosed) {
  channel_.close();
  edit([](ChannelPipeline& p) {
    EXPECT_THAT(textOf<std::invalid_argument>([&] { p.emplaceLast<One>(); }), HasSubstr("closed"));
  });
}

// The destructor of what could not be added runs, once.
TEST_F(PipelineStructure, DestroysWhatItRefuses) {
  struct Counted : ChannelHandler {
    explicit Counted(std::shared_ptr<int> token) : token_(std::move(token)) {}
    std::shared_ptr<int> token_;
  };
  auto token = std::make_shared<int>();
  edit([&](ChannelPipeline& p) {
    p.addLast("x", make<One>());
    EXPECT_THROW(p.addLast("x", std::make_unique<Counted>(token)), std::invalid_argument);
  });
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace millrace
