// SPDX-License-Identifier: Apache-2.0
// How a turn shares its time between I/O and tasks. Time is moved by hand: by the dispatch, and by
// each task.
#include "support/engines.h"
#include "support/scripted_engine.h"

#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>

#include <stdexcept>

namespace millrace {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::ScriptedLoop;

// A loop with tasks of 0.1 ms each, posted by itself.
struct Busy {
  explicit Busy(LoopOptions options) : loop(options.clock(clock)) {}

  void post(int count, Duration each = microseconds(100)) {
    loop->execute([this, count, each] {
      for (int i = 0; i < count; ++i) {
        loop->execute([this, each] {
          clock.advance(each);
          ++ran;
        });
      }
    });
    loop.turn();
  }
  // Events in every turn from now on, whose callbacks take `ioTime`.
  void withIo(Duration ioTime) {
    loop.script->onWait = [](Deadline) { return WaitOutcome{1, false}; };
    loop.script->onDispatch = [this, ioTime] {
      clock.advance(ioTime);
      return 1;
    };
  }
  // Tasks run by one turn.
  int turn() {
    const int before = ran;
    loop.turn();
    return ran - before;
  }

  ManualClock clock;
  ScriptedLoop loop;
  int ran = 0;
};

// C145
TEST(IoRatio, Is50UnlessSet) {
  EXPECT_EQ(LoopOptions().values().ioRatio, 50);
  ScriptedLoop loop;
  EXPECT_EQ(loop->ioRatio(), 50);
}

// C145
TEST(IoRatio, IsFromOneTo100AndCanBeReadBack) {
  ScriptedLoop loop(LoopOptions().ioRatio(70));
  EXPECT_EQ(loop->ioRatio(), 70);
  for (const int good : {1, 42, 100}) {
    loop->setIoRatio(good);
    EXPECT_EQ(loop->ioRatio(), good);
  }
  for (const int bad : {0, -1, 101}) {
    EXPECT_THROW(loop->setIoRatio(bad), std::invalid_argument);
    EXPECT_THROW(LoopOptions().ioRatio(bad), std::invalid_argument);
  }
  EXPECT_EQ(loop->ioRatio(), 100);
}

// C145
TEST(IoRatio, IsNamedInTheErrorWithItsLimits) {
  try {
    LoopOptions().ioRatio(101);
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "ioRatio(101): must be 1 to 100; 100 sets tasks no time limit");
  }
}

// C146
TEST(IoRatio, Of100RunsAllTasksBetweenTwoLooks) {
  Busy busy(LoopOptions().ioRatio(100));
  busy.post(10'000, microseconds(10));
  const std::size_t looks = busy.loop.script->waits.size();

  EXPECT_EQ(busy.turn(), 10'000);

  EXPECT_EQ(busy.loop.script->waits.size(), looks + 1);
}

// C146: but what they post waits, so that I/O does not starve; Netty goes on
TEST(IoRatio, Of100LooksAtTheIoBeforeTasksThatTasksPosted) {
  std::function<void()> again;  // runs at the loop's end, too
  Busy busy(LoopOptions().ioRatio(100));
  again = [&] {
    ++busy.ran;
    busy.loop->execute([&] { again(); });
  };
  busy.loop->execute([&] { again(); });

  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(busy.turn(), 1);
    EXPECT_EQ(busy.loop.script->waits.size(), static_cast<std::size_t>(i));
  }
}

// C147 C149: 10 ms of I/O, tasks of 0.1 ms, the clock read after every 64
TEST(IoRatio, LimitsTasksInProportionToTheTimeOfIo) {
  const std::vector<std::pair<int, int>> expected{{50, 128},   // 10 ms: 100 tasks
                                                  {80, 64},    // 2.5 ms: 25 tasks
                                                  {99, 64},    // 0.1 ms
                                                  {20, 448},   // 40 ms: 400 tasks
                                                  {1, 1000}};  // 990 ms: all
  for (const auto& [ratio, tasks] : expected) {
    Busy busy(LoopOptions().ioRatio(ratio));
    busy.post(1000);
    busy.withIo(milliseconds(10));

    EXPECT_EQ(busy.turn(), tasks) << "ratio " << ratio;
  }
}

// C147: set while the loop runs
TEST(IoRatio, CanBeChangedFromOneTurnToTheNext) {
  Busy busy(LoopOptions().ioRatio(50));
  busy.post(1000);
  busy.withIo(milliseconds(10));

  EXPECT_EQ(busy.turn(), 128);
  busy.loop->setIoRatio(80);
  EXPECT_EQ(busy.turn(), 64);
}

// C148 I7
TEST(TaskBatch, Is64WhenThereWasNoIo) {
  Busy busy(LoopOptions{});
  busy.post(1000, Duration(0));
  std::vector<int> batches;
  const std::size_t looks = busy.loop.script->waits.size();

  while (busy.ran < 1000) batches.push_back(busy.turn());

  std::vector<int> expected(15, 64);
  expected.push_back(1000 - 15 * 64);
  EXPECT_EQ(batches, expected);
  EXPECT_EQ(busy.loop.script->waits.size() - looks, batches.size());
}

// C149
TEST(TaskBatch, IsAtLeast64HoweverShortTheIoWas) {
  Busy busy(LoopOptions().ioRatio(99));
  busy.post(200);
  busy.withIo(Duration(0));

  EXPECT_EQ(busy.turn(), 64);
}

// A clock that counts how often it is read.
class CountingClock final : public Clock {
 public:
  std::int64_t nanos() const noexcept override {
    ++reads;
    return time;
  }
  mutable std::int64_t reads = 0;
  std::int64_t time = 0;
};

// C149
TEST(TaskBatch, CostsOneLookAtTheClockForEvery64Tasks) {
  CountingClock clock;
  ScriptedLoop loop(LoopOptions().clock(clock).ioRatio(1));
  const auto readsOfTurnWith = [&](int tasks) {
    loop->execute([&, tasks] {
      for (int i = 0; i < tasks; ++i) loop->execute([] {});
    });
    loop.turn();
    loop.script->onWait = [](Deadline) { return WaitOutcome{1, false}; };
    loop.script->onDispatch = [&] {
      clock.time += 1'000'000'000;
      return 1;
    };
    const std::int64_t before = clock.reads;
    EXPECT_EQ(loop.turn(), static_cast<std::size_t>(tasks) + 1);
    loop.script->onWait = {};
    return clock.reads - before;
  };

  const std::int64_t few = readsOfTurnWith(10);
  const std::int64_t many = readsOfTurnWith(10 + 64 * 20);

  EXPECT_EQ(many - few, 20);
}

class Fairness : public test::EngineTest {};

// C148 I7: I/O and tasks that never end share every turn
TEST_P(Fairness, LetsNeitherTasksNorIoStarve) {
  const test::Pipe pipe;
  int calls = 0;
  int ran = 0;
  std::function<void()> again;  // runs at the loop's end, too
  const Ref<EventLoop> loop = handDriven();
  const Watch watch =
      test::watchInLoop(*loop, pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; });
  again = [&] {
    ++ran;
    loop->execute([&] { again(); });
  };
  loop->execute([&] {
    for (int i = 0; i < 300; ++i) again();
  });
  loop->runNow();
  pipe.put();

  for (int turn = 0; turn < 50; ++turn) {
    const int callsBefore = calls;
    const int ranBefore = ran;
    loop->runNow();
    EXPECT_EQ(calls, callsBefore + 1);
    EXPECT_GE(ran, ranBefore + 64);
  }
}

// C093: a timer that is always due
TEST_P(Fairness, LetsReadsThroughBesideATimerThatIsAlwaysDue) {
  const test::Pipe pipe;
  int calls = 0;
  int ran = 0;
  const Ref<EventLoop> loop = handDriven();
  const Watch watch =
      test::watchInLoop(*loop, pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; });
  loop->scheduleAtFixedRate({}, Duration(1), [&] { ++ran; });
  pipe.put();
  loop->runNow();

  for (int i = 0; i < 20; ++i) {
    const int callsBefore = calls;
    const int ranBefore = ran;
    loop->run(Deadline::never());
    EXPECT_EQ(calls, callsBefore + 1);
    EXPECT_EQ(ran, ranBefore + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Fairness, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

}  // namespace
}  // namespace millrace
