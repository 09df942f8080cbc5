// SPDX-License-Identifier: Apache-2.0
// Order, time and repetition. Cancelling, futures and memory have files of their own.
#include "concurrent/timer_fixture.h"
#include "support/heap_count.h"
#include "support/log_capture.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace millrace {
namespace {

class TimerQueueTest : public test::TimerFixture {
 protected:
  Task note(int what) {
    return [this, what] { ran.push_back(what); };
  }
  std::vector<int> ran;
};

TEST_F(TimerQueueTest, CountsTimersThatComeAfterTheEnd) {
  queue->add(*queue->make(1, 0, Repeat::no, [] {}));
  EXPECT_EQ(queue->cancelAll(), 1U);

  queue->add(*queue->make(2, 0, Repeat::no, [] {}));
  queue->add(*queue->make(3, 10, Repeat::atFixedRate, [] {}));

  EXPECT_EQ(queue->cancelAll(), 2U);
  EXPECT_EQ(queue->cancelAll(), 0U);
}

TEST_F(TimerQueueTest, IsEmptyAtFirst) {
  EXPECT_TRUE(queue->isEmpty());
  EXPECT_EQ(queue->size(), 0U);
  EXPECT_EQ(queue->entries(), 0U);
  EXPECT_EQ(queue->next(), kNever);
  EXPECT_EQ(runAt(kNever - 1), 0U);
}

// C165
TEST_F(TimerQueueTest, HoldsNoMemoryForTimersBeforeTheFirst) {
  const std::int64_t before = test::heapBytes();

  TimerQueue unused(owner);

  EXPECT_LE(test::heapBytes() - before, 512);
}

// I2
TEST_F(TimerQueueTest, RunsTimersInTheOrderOfTheirDeadlines) {
  for (const int deadline : {50, 10, 40, 20, 30}) {
    schedule(deadline, note(deadline));
  }
  EXPECT_EQ(queue->next(), 10);
  EXPECT_EQ(queue->size(), 5U);

  EXPECT_EQ(runAt(50), 5U);

  EXPECT_EQ(ran, (std::vector<int>{10, 20, 30, 40, 50}));
  EXPECT_TRUE(queue->isEmpty());
}

// C166 I2
TEST_F(TimerQueueTest, RunsEqualDeadlinesFirstInFirstOut) {
  std::vector<int> expected;
  for (int i = 0; i < 200; ++i) {
    schedule(7, note(i));
    expected.push_back(i);
  }

  runAt(7);

  EXPECT_EQ(ran, expected);
}

// I5
TEST_F(TimerQueueTest, RunsNothingBeforeItsDeadline) {
  schedule(100, note(1));

  EXPECT_EQ(runAt(99), 0U);
  EXPECT_EQ(queue->next(), 100);
  EXPECT_EQ(runAt(100), 1U);
}

// C167
TEST_F(TimerQueueTest, NeverRunsATimerWithTheLargestDeadline) {
  ScheduledFuture never = schedule(saturatingAdd(5, kNever), note(1));

  EXPECT_EQ(queue->next(), kNever);
  EXPECT_TRUE(never.deadline().isNever());
  EXPECT_EQ(never.delay(clock), Duration::max());
  EXPECT_EQ(runAt(kNever - 1), 0U);
  EXPECT_TRUE(never.cancel());
}

// C167
TEST_F(TimerQueueTest, SaturatesTheNextDeadlineOfARepeatingTimer) {
  ScheduledFuture timer = atFixedRate(10, kNever, note(1));

  EXPECT_EQ(runAt(10), 1U);

  EXPECT_TRUE(timer.deadline().isNever());
  EXPECT_EQ(runAt(kNever - 1), 0U);
}

// behaviour 3.3: 1-4
TEST_F(TimerQueueTest, TellsTheTimeThatIsLeft) {
  ScheduledFuture timer = schedule(30, note(1));

  EXPECT_TRUE(timer.valid());
  EXPECT_FALSE(timer.isDone());
  EXPECT_EQ(timer.deadline(), Deadline::at(30));
  EXPECT_EQ(timer.delay(clock), Duration(30));
  clock.advance(Duration(40));
  EXPECT_EQ(timer.delay(clock), Duration(0));
  EXPECT_EQ(queue->size(), 1U);
  runDue();
  EXPECT_TRUE(timer.isDone());
  EXPECT_FALSE(timer.isCancelled());
}

TEST_F(TimerQueueTest, HandsOutWhatIsDueAndLeavesTheRest) {
  for (int i = 0; i < 10; ++i) schedule(i, note(i));

  TaskChain due = queue->takeDue(4);

  EXPECT_EQ(queue->size(), 5U);
  EXPECT_EQ(queue->next(), 5);
  std::size_t count = 0;
  while (TaskNode* node = due.popFront()) {
    EXPECT_NE(node->kind() & TaskNode::timer, 0U);
    EXPECT_TRUE(queue->run(TimerNode::of(*node), clock));
    ++count;
  }
  EXPECT_EQ(count, 5U);
}

TEST_F(TimerQueueTest, TakesTimersThatATimerSchedules) {
  schedule(5, [this] {
    ran.push_back(1);
    schedule(5, note(2));  // due at once, in the next turn
    schedule(1, note(3));
  });

  EXPECT_EQ(runAt(5), 1U);
  EXPECT_EQ(queue->next(), 1);
  EXPECT_EQ(runDue(), 2U);

  EXPECT_EQ(ran, (std::vector<int>{1, 3, 2}));
}

TEST_F(TimerQueueTest, TakesTimersMadeOnAnotherThread) {
  // Two references: one travels to the loop.
  Ref<TimerNode> timer = elsewhere([&] { return queue->make(3, 0, Repeat::no, note(1), 2); });
  queue->adopt(*timer);

  EXPECT_EQ(runAt(3), 1U);

  EXPECT_EQ(timer->state(), TimerNode::State::done);
  EXPECT_EQ(timer->repeat(), Repeat::no);
}

TEST_F(TimerQueueTest, ShowsEachArmedTimer) {
  schedule(1, note(1));
  ScheduledFuture dead = schedule(2, note(2));
  schedule(3, note(3));
  dead.cancel();

  std::int64_t sum = 0;
  queue->forEach([&](const TimerNode& timer) { sum += timer.deadline(); });

  EXPECT_EQ(sum, 4);
  EXPECT_EQ(queue->size(), 2U);
  EXPECT_EQ(queue->entries(), 3U);
}

// C170: the planned moments count
TEST_F(TimerQueueTest, CatchesUpAtAFixedRate) {
  std::vector<std::int64_t> begins;
  ScheduledFuture timer = atFixedRate(10, 10, [&] {
    begins.push_back(clock.nanos());
    clock.advance(Duration(30));  // it takes three periods
  });
  runAt(10);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(timer.deadline(), Deadline::at(20 + 10 * i));
    EXPECT_EQ(runDue(), 1U);
  }

  EXPECT_EQ(begins, (std::vector<std::int64_t>{10, 40, 70, 100}));  // back to back
  timer.cancel();
}

// C170: the end of the run before counts
TEST_F(TimerQueueTest, LeavesAGapWithAFixedDelay) {
  std::vector<std::int64_t> begins;
  ScheduledFuture timer = withFixedDelay(10, 10, [&] {
    begins.push_back(clock.nanos());
    clock.advance(Duration(30));
  });
  runAt(10);
  EXPECT_EQ(timer.deadline(), Deadline::at(50));
  EXPECT_EQ(runDue(), 0U);
  EXPECT_EQ(runAt(49), 0U);
  EXPECT_EQ(runAt(51), 1U);  // and it was late: the next one is counted from its end
  EXPECT_EQ(timer.deadline(), Deadline::at(91));

  EXPECT_EQ(begins, (std::vector<std::int64_t>{10, 51}));
  timer.cancel();
}

TEST_F(TimerQueueTest, RunsARepeatingTimerOncePerTurnHoweverLateItIs) {
  atFixedRate(0, 1, note(1));
  schedule(100, note(2));

  EXPECT_EQ(runAt(100), 2U);  // the other one gets its turn, too
  EXPECT_EQ(runDue(), 1U);
}

// C172
TEST_F(TimerQueueTest, EndsARepeatingTimerThatThrows) {
  int runs = 0;
  ScheduledFuture timer = atFixedRate(0, 10, [&] {
    if (++runs == 3) throw std::runtime_error("third");
  });
  Future<void> end = timer.future();
  bool otherRan = false;
  schedule(70, [&] { otherRan = true; });

  for (std::int64_t now = 0; now <= 100; now += 10) runAt(now);

  EXPECT_EQ(runs, 3);
  EXPECT_TRUE(timer.isDone());
  EXPECT_FALSE(timer.isCancelled());
  EXPECT_THROW(end.get(), std::runtime_error);
  EXPECT_EQ(end.cause().operation(), "scheduled task");
  EXPECT_FALSE(timer.cancel());
  EXPECT_TRUE(otherRan);
}

// C066
TEST_F(TimerQueueTest, LogsAFailureThatNobodyAskedFor) {
  test::LogCapture log;
  ScheduledFuture unasked = schedule(1, [] { throw std::runtime_error("oops"); });
  ScheduledFuture asked = schedule(1, [] { throw std::runtime_error("heard"); });
  Future<void> heard = asked.future();

  runAt(1);

  EXPECT_EQ(log.count(LogLevel::warn), 1U);
  EXPECT_TRUE(log.contains("scheduled task: oops"));
  EXPECT_THROW(heard.get(), std::runtime_error);
  EXPECT_THROW(unasked.future().get(), std::runtime_error);  // not lost for who asks later
}

}  // namespace
}  // namespace millrace
