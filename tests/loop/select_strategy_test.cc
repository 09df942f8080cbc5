// SPDX-License-Identifier: Apache-2.0
// Who decides whether a turn blocks, looks or goes round.
#include "support/engines.h"
#include "support/scripted_engine.h"

#include <millrace/loop/select_strategy.h>

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>

namespace millrace {
namespace {

using test::ScriptedLoop;

using Decide = std::function<int(const std::function<int()>& selectNow, bool hasTasks)>;

// A factory of strategies that ask `decide`.
SelectStrategyFactory strategyOf(Decide decide) {
  struct Asking final : SelectStrategy {
    explicit Asking(Decide fn) : ask(std::move(fn)) {}
    int decide(const std::function<int()>& selectNow, bool hasTasks) override {
      return ask(selectNow, hasTasks);
    }
    Decide ask;
  };
  return [decide] { return std::make_unique<Asking>(decide); };
}

ScriptedLoop loopWith(Decide decide) {
  return ScriptedLoop(LoopOptions().errorPause({}).strategy(strategyOf(std::move(decide))));
}

const std::vector<Deadline> kOneLook{Deadline::past()};
const std::vector<Deadline> kOneSleep{Deadline::never()};

// C080
TEST(SelectStrategyConstants, HaveNettysValues) {
  EXPECT_EQ(SelectStrategy::kSelect, -1);
  EXPECT_EQ(SelectStrategy::kContinue, -2);
  EXPECT_EQ(SelectStrategy::kBusyWait, -3);
}

// C080
TEST(CustomStrategy, BlocksTheLoopWithSelect) {
  ScriptedLoop loop = loopWith([](auto&, bool) { return SelectStrategy::kSelect; });

  loop.turn();

  EXPECT_EQ(loop.script->waits, kOneSleep);
  EXPECT_EQ(loop.script->dispatches, 0);
}

// C080 C083
TEST(CustomStrategy, LooksWithoutBlockingWithBusyWait) {
  ScriptedLoop loop = loopWith([](auto&, bool) { return SelectStrategy::kBusyWait; });
  loop.script->onWait = [](Deadline) { return WaitOutcome{2, false}; };

  loop.turn();

  EXPECT_EQ(loop.script->waits, kOneLook);
  EXPECT_EQ(loop.script->dispatches, 1);
  EXPECT_EQ(loop->metrics().sleeps, 0U);
}

// C080
TEST(CustomStrategy, GivesTheNumberOfEventsThatSelectNowFound) {
  int found = 0;
  ScriptedLoop loop = loopWith([&](auto& selectNow, bool) { return found = selectNow(); });
  loop.script->onWait = [](Deadline) { return WaitOutcome{3, false}; };
  loop.script->onDispatch = [] { return 3; };

  EXPECT_EQ(loop.turn(), 3U);

  EXPECT_EQ(found, 3);
  EXPECT_EQ(loop.script->waits, kOneLook);
  EXPECT_EQ(loop.script->dispatches, 1);
}

// C080
TEST(CustomStrategy, IsToldWhetherTasksWait) {
  std::vector<bool> told;
  ScriptedLoop loop = loopWith([&](auto&, bool hasTasks) {
    told.push_back(hasTasks);
    return 0;
  });

  loop.turn();
  loop->execute([] {});
  loop.turn();
  loop->executeAfterEventLoopIteration([] {});
  loop.turn();

  EXPECT_EQ(told, (std::vector<bool>{false, true, true}));
}

// What was built in, and the same as a factory.
class DefaultStrategy : public testing::TestWithParam<bool> {
 protected:
  static ScriptedLoop make() {
    LoopOptions options;
    if (GetParam()) options.strategy(defaultSelectStrategy());
    return ScriptedLoop(options);
  }
};

// C081
TEST_P(DefaultStrategy, NeverBlocksWhileATaskWaits) {
  ScriptedLoop loop = make();
  int ran = 0;
  loop->execute([&] {
    for (int i = 0; i < 3 * 64; ++i) loop->execute([&] { ++ran; });
  });

  for (int turn = 0; turn < 4; ++turn) loop.turn();

  EXPECT_EQ(ran, 3 * 64);
  EXPECT_EQ(loop.script->waits, (std::vector<Deadline>(4, Deadline::past())));
}

// C081
TEST_P(DefaultStrategy, BlocksWhenNothingWaits) {
  ScriptedLoop loop = make();

  loop.turn();

  EXPECT_EQ(loop.script->waits, kOneSleep);
}

// C081
TEST_P(DefaultStrategy, HandsOnTheEventsThatItsLookFound) {
  ScriptedLoop loop = make();
  loop.script->onWait = [](Deadline) { return WaitOutcome{1, false}; };
  loop->execute([] {});

  loop.turn();

  EXPECT_EQ(loop.script->dispatches, 1);
}

INSTANTIATE_TEST_SUITE_P(BuiltInAndFactory, DefaultStrategy, testing::Bool());

// C082
TEST(ContinueStrategy, DelaysTasksAndIoThenProceeds) {
  int rounds = 0;
  ScriptedLoop loop = loopWith([&](auto& selectNow, bool) {
    return ++rounds <= 3 ? SelectStrategy::kContinue : selectNow();
  });
  bool ran = false;
  loop->execute([&] { ran = true; });

  for (int i = 0; i < 3; ++i) EXPECT_EQ(loop.turn(), 0U);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(loop.script->waits.empty());
  EXPECT_EQ(loop.turn(), 1U);

  EXPECT_TRUE(ran);
  EXPECT_EQ(loop.script->waits, kOneLook);
}

// C082
TEST(ContinueStrategy, CannotKeepALoopFromShuttingDown) {
  std::atomic<bool> ran{false};
  EventLoopGroup group(LoopOptions().loops(1).strategy(
      strategyOf([](auto&, bool) { return SelectStrategy::kContinue; })));
  group.execute([&] { ran = true; });

  EXPECT_TRUE(group.shutdownGracefully().await(Deadline::after(std::chrono::seconds(60))));

  EXPECT_TRUE(ran);
}

// C084
TEST(StrategyFactory, MakesOneStrategyForEachLoop) {
  struct Recording final : SelectStrategy {
    explicit Recording(std::function<void(const void*)> fn) : used(std::move(fn)) {}
    int decide(const std::function<int()>& selectNow, bool hasTasks) override {
      used(this);
      return hasTasks ? selectNow() : kSelect;
    }
    std::function<void(const void*)> used;
  };
  std::mutex mutex;
  std::set<std::pair<const EventLoop*, const void*>> seen;
  std::atomic<int> made{0};
  EventLoopGroup group(LoopOptions().loops(3).strategy([&] {
    ++made;
    return std::make_unique<Recording>([&](const void* self) {
      const std::lock_guard lock(mutex);
      seen.emplace(EventLoop::current(), self);
    });
  }));
  EXPECT_EQ(made, 3);

  for (EventLoop& loop : group) {
    for (int i = 0; i < 10; ++i) loop.submit([] {}).sync();
  }
  group.shutdownGracefully().sync();

  std::set<const EventLoop*> loops;
  std::set<const void*> strategies;
  for (const auto& [loop, strategy] : seen) {
    loops.insert(loop);
    strategies.insert(strategy);
  }
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_EQ(loops.size(), 3U);
  EXPECT_EQ(strategies.size(), 3U);
  EXPECT_EQ(made, 3);
}

// C085 C094 I3: posted after the look, before the sleep, when the loop counts as awake
TEST(CustomStrategy, LosesNoTaskThatCameAfterItsLook) {
  EventLoop* target = nullptr;
  bool posts = true;
  ScriptedLoop loop = loopWith([&](auto& selectNow, bool) {
    selectNow();
    if (std::exchange(posts, false)) {
      test::fromOutside([&] { target->execute([] {}); });
    }
    return SelectStrategy::kSelect;
  });
  target = &*loop;

  EXPECT_EQ(loop.turn(), 1U);

  EXPECT_EQ(loop.script->waits, (std::vector<Deadline>{Deadline::past(), Deadline::past()}));
  EXPECT_EQ(loop.script->wakeups, 0);
}

// C094: tasks that an earlier turn left over are no less pending than those in the inbox
TEST(CustomStrategy, DoesNotBlockTheLoopWhileTasksWait) {
  ScriptedLoop loop = loopWith([](auto&, bool) { return SelectStrategy::kSelect; });
  int ran = 0;
  loop->execute([&] {
    for (int i = 0; i < 100; ++i) loop->execute([&] { ++ran; });
    loop->executeAfterEventLoopIteration(
        [&] { loop->executeAfterEventLoopIteration([&] { ++ran; }); });
  });

  for (int turn = 0; turn < 3; ++turn) loop.turn();

  EXPECT_EQ(ran, 101);
  EXPECT_EQ(loop.script->blockingWaits(), 0U);
}

// C085: events that selectNow() found are delivered, whatever the strategy answers then
TEST(CustomStrategy, LosesNoEventThatItsLookFound) {
  for (const int answer :
       {SelectStrategy::kSelect, SelectStrategy::kContinue, SelectStrategy::kBusyWait, 0}) {
    ScriptedLoop loop = loopWith([&](auto& selectNow, bool) {
      selectNow();
      return answer;
    });
    bool found = false;
    loop.script->onWait = [&](Deadline) {
      return WaitOutcome{std::exchange(found, true) ? 0 : 1, false};  // as an edge: once
    };

    loop.turn();

    EXPECT_EQ(loop.script->dispatches, 1) << "answer " << answer;
  }
}

// C071: behaviour 3.6, number 6
TEST(CustomStrategy, FailsATurnWhenItThrowsAndTheLoopGoesOn) {
  int rounds = 0;
  ScriptedLoop loop = loopWith([&](auto& selectNow, bool) {
    if (++rounds == 1) throw std::runtime_error("no idea");
    return selectNow();
  });
  int ran = 0;
  loop->execute([&] { ++ran; });

  loop.turn();
  loop->execute([&] { ++ran; });
  loop.turn();

  EXPECT_EQ(ran, 2);
  EXPECT_EQ(loop->metrics().failures, 1U);
}

class BusyWaiting : public test::EngineTest {};

// C083: never sleeps, needs no wakeup, and serves tasks, timers and descriptors
TEST_P(BusyWaiting, ServesEverythingWithoutASleep) {
  const test::Pipe pipe;
  std::atomic<int> read{0};
  EventLoopGroup group(options().loops(1).strategy(busyWaitStrategy()));
  expectEngine(group);
  EventLoop& loop = *group.begin();

  const Watch watch = test::watchInLoop(
      loop, pipe.readEnd(), kReadable,
      [&](int fd, std::uint32_t) { read += static_cast<int>(test::readAll(fd).size()); });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(loop.submit([i] { return i; }).get(), i);
  loop.schedule(std::chrono::microseconds(300), [] {}).future().sync();
  pipe.put("abc");

  EXPECT_TRUE(test::eventually([&] { return read == 3; }));
  const LoopMetrics metrics = loop.metrics();
  EXPECT_EQ(metrics.sleeps, 0U);
  EXPECT_EQ(metrics.wakeups, 0U);
}

INSTANTIATE_TEST_SUITE_P(Engines, BusyWaiting, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

}  // namespace
}  // namespace millrace
