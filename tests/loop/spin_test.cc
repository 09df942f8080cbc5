// SPDX-License-Identifier: Apache-2.0
// Looking for work for a while before sleeping.
#include "support/engines.h"
#include "support/fault_script.h"

#include <millrace/base/manual_clock.h>

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace millrace {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using test::Pipe;

class Spinning : public test::EngineTest {};

// C097 I4: found by looking, so nobody wakes and nobody sleeps
TEST_P(Spinning, FindsPostsWithoutAWakeup) {
  const test::FaultScript script;
  EventLoopGroup group(options().loops(1).spin(minutes(5)));
  expectEngine(group);
  EventLoop& loop = *group.begin();

  for (int i = 0; i < 500; ++i) EXPECT_EQ(loop.submit([i] { return i; }).get(), i);
  group.shutdownGracefully().sync();

  EXPECT_EQ(loop.metrics().sleeps, 0U);
  EXPECT_EQ(script.count("write"), 0U);
}

// C091: the longest spin does not make a timer late, nor an end
TEST_P(Spinning, EndsWithTheNextTimerAndWithTheQuietPeriod) {
  EventLoopGroup group(options().loops(1).spin(minutes(5)));
  EventLoop& loop = *group.begin();

  const ScheduledFuture timer = loop.schedule(milliseconds(2), [] {});
  timer.future().sync();
  EXPECT_GE(Clock::real().nanos(), timer.deadline().nanos());

  EXPECT_TRUE(
      group.shutdownGracefully(milliseconds(5), minutes(4)).await(Deadline::after(minutes(1))));
}

// C091: nor a run by hand
TEST_P(Spinning, EndsWithTheLimitOfARun) {
  const Ref<EventLoop> loop = handDriven(options().spin(minutes(5)));

  loop->run(Deadline::after(milliseconds(1)));  // hangs if it does not

  EXPECT_EQ(loop->metrics().sleeps, 0U);
}

// C091: when the time is over, it sleeps
TEST_P(Spinning, GoesToSleepAfterwards) {
  EventLoopGroup group(options().loops(1).spin(microseconds(1)));
  EventLoop& loop = *group.begin();
  loop.submit([] {}).sync();

  EXPECT_TRUE(test::eventually([&] { return loop.metrics().sleeps > 0; }));
  EXPECT_EQ(loop.submit([] { return 7; }).get(), 7);
}

INSTANTIATE_TEST_SUITE_P(Engines, Spinning, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

class SpinningOnIo : public test::EngineTest {};

// C099: what a look finds is delivered, edges too, which the kernel reports once
TEST_P(SpinningOnIo, DeliversTheEventsThatItFinds) {
  for (const Trigger trigger : {Trigger::level, Trigger::edge}) {
    if (trigger == Trigger::edge && !GetParam().hasEdge) continue;
    const Pipe pipe;
    std::atomic<int> calls{0};
    EventLoopGroup group(options().loops(1).spin(minutes(5)));
    EventLoop& loop = *group.begin();
    const Watch watch = test::watchInLoop(
        loop, pipe.readEnd(), kReadable,
        [&](int fd, std::uint32_t) {
          test::readAll(fd);
          ++calls;
        },
        trigger);

    for (int i = 1; i <= 20; ++i) {
      pipe.put();
      ASSERT_TRUE(test::eventually([&] { return calls == i; }, std::chrono::seconds(20)));
    }

    EXPECT_EQ(loop.metrics().sleeps, 0U);
    EXPECT_EQ(loop.metrics().ioEvents, 20U);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, SpinningOnIo, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

TEST(SpinOption, RefusesANegativeTime) {
  EXPECT_THROW(LoopOptions().spin(Duration(-1)), std::invalid_argument);
  EXPECT_EQ(LoopOptions().values().spin, Duration(0));
}

}  // namespace
}  // namespace millrace
