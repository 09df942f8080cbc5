// SPDX-License-Identifier: Apache-2.0
// Waits that return early for no reason: counted, told, and ended by a new selector.
#include "support/call_hooks.h"
#include "support/engines.h"
#include "support/log_capture.h"
#include "support/scripted_engine.h"

#include <millrace/sys/calls.h>

#include <gtest/gtest.h>

#include <unistd.h>

namespace millrace {
namespace {

using test::fromOutside;
using test::LogCapture;
using test::Pipe;
using test::ScriptedLoop;

void returnEarly(ScriptedLoop& loop, int times) {
  for (int i = 0; i < times; ++i) EXPECT_EQ(loop.turn(), 0U);
}

// C105 C107
TEST(EarlyReturns, MakeTheSelectorAnewAfter512InARow) {
  const LogCapture log;
  ScriptedLoop loop;
  EXPECT_EQ(LoopOptions().values().rebuildThreshold, 512);

  returnEarly(loop, 511);
  EXPECT_EQ(loop.script->rebuilds, 0);
  returnEarly(loop, 1);
  EXPECT_EQ(loop.script->rebuilds, 1);
  EXPECT_EQ(log.count(LogLevel::warn), 1U);
  EXPECT_TRUE(log.contains("returned early 512 times in a row"));
  returnEarly(loop, 511);
  EXPECT_EQ(loop.script->rebuilds, 1);
  returnEarly(loop, 1);

  EXPECT_EQ(loop.script->rebuilds, 2);
  EXPECT_EQ(loop->metrics().rebuilds, 2U);
  EXPECT_EQ(loop->metrics().prematureReturns, 1024U);
}

// C105
TEST(EarlyReturns, NeverMakeTheSelectorAnewBelowAThresholdOfThree) {
  for (const int threshold : {2, 1, 0, -1}) {
    ScriptedLoop loop(LoopOptions().rebuildThreshold(threshold));
    returnEarly(loop, 2000);
    EXPECT_EQ(loop.script->rebuilds, 0) << "threshold " << threshold;
  }
}

// C105
TEST(EarlyReturns, MakeTheSelectorAnewAtTheThresholdThatIsSet) {
  ScriptedLoop loop(LoopOptions().rebuildThreshold(3));

  returnEarly(loop, 2);
  EXPECT_EQ(loop.script->rebuilds, 0);
  returnEarly(loop, 1);

  EXPECT_EQ(loop.script->rebuilds, 1);
}

// C107
TEST(EarlyReturns, NameTheCulprit) {
  const LogCapture log;
  ScriptedLoop loop(LoopOptions().rebuildThreshold(3));
  loop.script->culprit = 17;

  returnEarly(loop, 3);

  EXPECT_TRUE(log.contains("descriptor 17 reports events that nobody watches"));
}

// C107: work of any kind makes the count begin anew
TEST(EarlyReturns, AreCountedOnlyInARow) {
  const auto withEvent = [](ScriptedLoop& loop) {
    loop.script->onWait = [](Deadline) { return WaitOutcome{1, false}; };
    loop.script->onDispatch = [] { return 1; };
    EXPECT_EQ(loop.turn(), 1U);
    loop.script->onWait = {};
  };
  const auto withWakeup = [](ScriptedLoop& loop) {
    loop.script->onWait = [&](Deadline) {
      fromOutside([&] { loop->execute([] {}); });
      return WaitOutcome{0, true};
    };
    EXPECT_EQ(loop.turn(), 1U);
    loop.script->onWait = {};
  };
  const auto withTask = [](ScriptedLoop& loop) {
    loop->execute([] {});
    EXPECT_EQ(loop.turn(), 1U);
  };
  const auto withTailTask = [](ScriptedLoop& loop) {
    loop->executeAfterEventLoopIteration([] {});
    EXPECT_EQ(loop.turn(), 1U);
  };
  using Work = std::function<void(ScriptedLoop&)>;
  for (const Work& work : {Work(withEvent), Work(withWakeup), Work(withTask), Work(withTailTask)}) {
    ScriptedLoop loop(LoopOptions().rebuildThreshold(10));
    returnEarly(loop, 9);

    work(loop);
    returnEarly(loop, 9);
    EXPECT_EQ(loop.script->rebuilds, 0);
    returnEarly(loop, 1);

    EXPECT_EQ(loop.script->rebuilds, 1);
  }
}

// C108
TEST(EarlyReturns, AreToldAfterwardsIfThereWereMoreThanThree) {
  for (const int times : {3, 4, 9}) {
    const LogCapture log;
    ScriptedLoop loop;
    returnEarly(loop, times);
    EXPECT_EQ(log.count(LogLevel::debug), 0U);

    loop->execute([] {});
    loop.turn();

    EXPECT_EQ(log.count(LogLevel::debug), times > 3 ? 1U : 0U);
    EXPECT_EQ(log.contains("returned early " + std::to_string(times - 1) + " times"), times > 3);
  }
}

// C111
TEST(EarlyReturns, AreFollowedByALookAtTheNewSelectorInTheSameTurn) {
  ScriptedLoop loop(LoopOptions().rebuildThreshold(3));
  loop.script->onWait = [&](Deadline until) {
    return WaitOutcome{until == Deadline::past() && loop.script->rebuilds == 1 ? 1 : 0, false};
  };
  loop.script->onDispatch = [] { return 1; };
  returnEarly(loop, 2);

  EXPECT_EQ(loop.turn(), 1U);

  EXPECT_EQ(loop.script->dispatches, 1);
  EXPECT_EQ(loop.script->waits.back(), Deadline::past());
}

class SpuriousReturns : public test::EngineTest {};

// C106: time that is over is no early return, neither in one step nor in two
TEST_P(SpuriousReturns, AreNotSeenInGenuineTimeouts) {
  const Pipe pipe;
  const Ref<EventLoop> loop = handDriven(options().rebuildThreshold(3));
  const Watch watch =
      test::watchInLoop(*loop, pipe.readEnd(), kReadable, [](int, std::uint32_t) { FAIL(); });

  for (int i = 0; i < 600; ++i) {
    loop->run(Deadline::after(std::chrono::microseconds(20)));
  }
  for (int i = 0; i < 4; ++i) loop->run(Deadline::after(std::chrono::milliseconds(25)));

  EXPECT_EQ(loop->metrics().prematureReturns, 0U);
  EXPECT_EQ(loop->metrics().rebuilds, 0U);
}

// A watch that was ended after its descriptor was closed, while a copy lives on elsewhere: with
// epoll the kernel goes on reporting it.
struct Stale {
  explicit Stale(EventLoop& loop) : number(pipe.readEnd()), copy(::dup(number)) {
    const Watch watch =
        test::watchInLoop(loop, number, kReadable, [this](int, std::uint32_t) { ++calls; });
    pipe.closeRead();
    loop.execute([watch] { watch.unwatch(); });
    loop.runNow();
    pipe.put();
  }
  ~Stale() { ::close(copy); }

  Pipe pipe;
  const int number;
  const int copy;
  int calls = 0;
};

// C107 C109 C120a
TEST_P(SpuriousReturns, OfADescriptorClosedWithoutUnwatchEndWithANewSelector) {
  if (GetParam().io.type == &io::pollType) return;  // below
  const LogCapture log;
  const Ref<EventLoop> loop = handDriven(options().rebuildThreshold(100));
  const Pipe live;
  std::string read;
  const Watch watch = test::watchInLoop(*loop, live.readEnd(), kReadable,
                                        [&](int fd, std::uint32_t) { read += test::readAll(fd); });
  Stale stale(*loop);

  for (int i = 0; i < 100; ++i) EXPECT_EQ(loop->run(Deadline::never()), 0U);

  EXPECT_EQ(loop->metrics().rebuilds, 1U);
  EXPECT_TRUE(log.contains("descriptor " + std::to_string(stale.number) + " reports"));
  loop->run(Deadline::after(std::chrono::milliseconds(1)));
  EXPECT_EQ(loop->metrics().prematureReturns, 100U);  // it sleeps again
  live.put("alive");
  loop->run(Deadline::never());
  EXPECT_EQ(read, "alive");
  EXPECT_EQ(stale.calls, 0);
}

// C107: poll keeps its own list, so nothing stale is left in it
TEST_P(SpuriousReturns, OfADescriptorClosedWithoutUnwatchDoNotHappenWithPoll) {
  if (GetParam().io.type != &io::pollType) return;
  const Ref<EventLoop> loop = handDriven();
  Stale stale(*loop);

  loop->run(Deadline::after(std::chrono::milliseconds(1)));

  EXPECT_EQ(loop->metrics().prematureReturns, 0U);
  EXPECT_EQ(stale.calls, 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, SpuriousReturns, testing::ValuesIn(test::selectorEngines()),
                         test::engineName);

// C111: on the real engine, with data that comes while the selector is made
TEST(SpuriousReturnsOfEpoll, DeliverWhatBecameReadyDuringTheRebuildInTheSameTurn) {
  const Pipe live;
  std::function<void()> atCreation;
  test::CallHooks hooks;
  hooks.epollCreate = [&](int flags) {
    if (atCreation) atCreation();
    return realCalls().epoll_create1(flags);
  };
  const Ref<EventLoop> loop =
      EventLoop::handDriven(LoopOptions().io(io::epoll()).rebuildThreshold(3));
  std::string read;
  const Watch watch = test::watchInLoop(*loop, live.readEnd(), kReadable,
                                        [&](int fd, std::uint32_t) { read += test::readAll(fd); });
  const Stale stale(*loop);
  atCreation = [&] { live.put("now"); };

  for (int i = 0; i < 2; ++i) EXPECT_EQ(loop->run(Deadline::never()), 0U);
  EXPECT_EQ(loop->run(Deadline::never()), 1U);

  EXPECT_EQ(read, "now");
  EXPECT_EQ(loop->metrics().ioEvents, 1U);
}

}  // namespace
}  // namespace millrace
