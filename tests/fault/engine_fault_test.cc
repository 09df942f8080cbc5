// SPDX-License-Identifier: Apache-2.0
// Engines whose waits fail for good reasons and for none: loops go on, and end when they are asked
// to.
#include "support/census.h"
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/log_capture.h"
#include "support/scripted_engine.h"

#include <millrace/base/error.h>
#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <stdexcept>

namespace millrace {
namespace {

using std::chrono::microseconds;
using test::FaultScript;
using test::LogCapture;
using test::Pipe;

class EngineFaults : public test::EngineTest {
 protected:
  const char* waitCall() const {
    if (GetParam().io.type == &io::uringType) return "io_uring_enter";
    return GetParam().io.type == &io::pollType ? "ppoll" : "epoll_pwait2";
  }
};

// C076 I1: the k-th wait fails, for k = 1, 2, … until a run has fewer
TEST_P(EngineFaults, OfASingleWaitCostNothingButANewSelector) {
  const LogCapture quiet;
  int runs = 0;
  for (std::uint64_t k = 1;; ++k) {
    const Pipe pipe;
    std::atomic<int> ran{0};
    std::atomic<int> read{0};
    FaultScript script;
    script.fail(waitCall(), k, ENOMEM);
    EventLoopGroup group(options().loops(1).errorPause({}));
    EventLoop& loop = *group.begin();

    const Watch watch = test::watchInLoop(
        loop, pipe.readEnd(), kReadable,
        [&](int fd, std::uint32_t) { read += static_cast<int>(test::readAll(fd).size()); });
    for (int i = 0; i < 5; ++i) loop.submit([&] { ++ran; }).sync();
    loop.schedule(microseconds(200), [&] { ++ran; }).future().sync();
    pipe.put("data");
    EXPECT_TRUE(test::eventually([&] { return read == 4; }));
    group.shutdownGracefully().sync();

    EXPECT_EQ(ran, 6);
    const LoopMetrics metrics = loop.metrics();
    // The end of a loop on poll waits for wakeups by the same call; that is no turn.
    EXPECT_LE(metrics.failures, script.faults());
    // A ring stays as it is.
    EXPECT_EQ(metrics.rebuilds,
              waitCall() == std::string_view("io_uring_enter") ? 0 : metrics.failures);
    if (script.faults() == 0) break;
    ++runs;
  }
  EXPECT_GT(runs, 3);
}

// C071 C072 C076: tasks run and the loop ends though every wait fails
TEST_P(EngineFaults, OfEveryWaitLeaveTasksTimersAndTheEndWorking) {
  const LogCapture quiet;
  FaultScript script;
  script.failAll(waitCall(), EBADF);
  std::atomic<int> ran{0};
  EventLoopGroup group(options().loops(1).errorPause(microseconds(100)));
  expectEngine(group);
  EventLoop& loop = *group.begin();

  for (int i = 0; i < 20; ++i) loop.submit([&] { ++ran; }).sync();
  loop.schedule(microseconds(300), [&] { ++ran; }).future().sync();
  EXPECT_TRUE(test::eventually([&] { return loop.metrics().failures > 3; }));
  EXPECT_TRUE(group.shutdownGracefully().await(Deadline::after(std::chrono::minutes(1))));

  EXPECT_EQ(ran, 21);
  EXPECT_GT(script.faults(), 3U);
}

// C072 C073: also in the middle of the pause that follows a failure, however long
TEST_P(EngineFaults, PauseTheLoopUntilItIsAskedToEnd) {
  const LogCapture quiet;
  FaultScript script;
  script.failAll(waitCall(), EBADF);
  EventLoopGroup group(options().loops(1).errorPause(std::chrono::hours(1)));
  EventLoop& loop = *group.begin();
  loop.submit([] {}).sync();
  EXPECT_TRUE(test::eventually([&] { return loop.metrics().failures == 1; }));

  EXPECT_TRUE(group.shutdownGracefully().await(Deadline::after(std::chrono::minutes(1))));

  EXPECT_LE(loop.metrics().failures, 2U);
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineFaults, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

// C071: in the turn itself, whatever fails in it
TEST(TurnFaults, LeaveTasksTimersAndTailTasksOfTheTurnAlone) {
  const LogCapture quiet;
  const auto failingWait = [](test::EngineScript& script) {
    script.onWait = [](Deadline) { return Result<WaitOutcome>(Error::fromErrno(EBADF, "wait")); };
  };
  const auto throwingDispatch = [](test::EngineScript& script) {
    script.onWait = [](Deadline) { return WaitOutcome{1, false}; };
    script.onDispatch = []() -> int { throw std::runtime_error("escaped"); };
  };
  using Fault = std::function<void(test::EngineScript&)>;
  for (const Fault& fault : {Fault(failingWait), Fault(throwingDispatch)}) {
    ManualClock clock;
    test::ScriptedLoop loop(LoopOptions().clock(clock).errorPause({}));
    std::string order;
    loop->schedule(Duration(1), [&] { order += 'T'; });
    loop->runNow();
    clock.advance(Duration(1));
    fault(*loop.script);
    loop->execute([&] { order += 'a'; });
    loop->executeAfterEventLoopIteration([&] { order += 'z'; });

    EXPECT_EQ(loop->runNow(), 3U);

    EXPECT_EQ(order, "aTz");
    EXPECT_EQ(loop->metrics().failures, 1U);
  }
}

// C076: what the engine says is logged, and a new selector is asked for at once
TEST(TurnFaults, OfTheEngineAskForANewSelectorAtOnce) {
  const LogCapture log;
  test::ScriptedLoop loop(LoopOptions().errorPause({}));
  loop.script->onWait = [](Deadline) {
    return Result<WaitOutcome>(Error::fromErrno(EBADF, "scripted wait"));
  };

  loop.turn();

  EXPECT_EQ(loop.script->rebuilds, 1);
  EXPECT_TRUE(log.contains("the engine failed: scripted wait"));
}

}  // namespace
}  // namespace millrace
