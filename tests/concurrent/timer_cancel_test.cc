// SPDX-License-Identifier: Apache-2.0
// Cancelling timers, and their futures.
#include "concurrent/timer_fixture.h"
#include "support/log_capture.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace millrace {
namespace {

class TimerCancelTest : public test::TimerFixture {
 public:
  Task count() {
    return [this] { ++runs; };
  }
  int runs = 0;
};

// I5
TEST_F(TimerCancelTest, OfNoTimerIsHarmless) { EXPECT_FALSE(ScheduledFuture().cancel()); }

TEST_F(TimerCancelTest, ATimerThatIsCancelledNeverRuns) {
  ScheduledFuture timer = schedule(5, count());

  EXPECT_TRUE(timer.cancel());

  EXPECT_TRUE(timer.isCancelled());
  EXPECT_TRUE(timer.isDone());
  EXPECT_FALSE(timer.cancel());
  EXPECT_EQ(queue->size(), 0U);
  EXPECT_EQ(queue->next(), kNever);
  EXPECT_EQ(runAt(10), 0U);
  EXPECT_EQ(runs, 0);
}

TEST_F(TimerCancelTest, DestroysTheTaskAtOnce) {
  const auto token = std::make_shared<int>(1);
  ScheduledFuture timer = schedule(5, [token] {});
  EXPECT_EQ(token.use_count(), 2);

  timer.cancel();

  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(TimerCancelTest, DestroysTheTaskAfterItsOnlyRun) {
  const auto token = std::make_shared<int>(1);
  ScheduledFuture timer = schedule(5, [token] {});

  runAt(5);

  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(timer.cancel());
}

// I5: given out as due, but not yet begun
TEST_F(TimerCancelTest, ADueTimerCanBeCancelledUntilItsCall) {
  ScheduledFuture second;
  schedule(1, [&] { EXPECT_TRUE(second.cancel()); });
  second = schedule(1, count());
  schedule(2, count());

  TaskChain due = queue->takeDue(1);
  while (TaskNode* node = due.popFront()) {
    const bool isSecond = node->next() == nullptr && due.empty();
    EXPECT_EQ(queue->run(TimerNode::of(*node), clock), !isSecond);
  }

  EXPECT_EQ(runs, 0);
  EXPECT_EQ(queue->size(), 1U);
}

TEST_F(TimerCancelTest, ATimerThatRunsForTheOnlyTimeCannotBeCancelled) {
  ScheduledFuture timer;
  bool cancelled = true;
  timer = schedule(1, [&] { cancelled = timer.cancel(); });

  runAt(1);

  EXPECT_FALSE(cancelled);
  EXPECT_FALSE(timer.isCancelled());
}

TEST_F(TimerCancelTest, ARepeatingTimerCanEndItselfWhileItRuns) {
  const auto token = std::make_shared<int>(1);
  ScheduledFuture timer;
  bool cancelled = false;
  timer = atFixedRate(1, 1, [&, token] {
    cancelled = timer.cancel();
    EXPECT_EQ(token.use_count(), 2);  // it is not pulled away under its own feet
  });
  Future<void> end = timer.future();

  EXPECT_EQ(runAt(1), 1U);

  EXPECT_TRUE(cancelled);
  EXPECT_TRUE(timer.isCancelled());
  EXPECT_TRUE(end.isCancelled());
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_EQ(runAt(5), 0U);
  EXPECT_TRUE(queue->isEmpty());
}

TEST_F(TimerCancelTest, ARepeatingTimerThatEndsItselfAndThrowsIsCancelled) {
  test::LogCapture log;
  ScheduledFuture timer;
  timer = withFixedDelay(1, 1, [&] {
    timer.cancel();
    throw std::runtime_error("oops");
  });

  runAt(1);

  EXPECT_TRUE(timer.isCancelled());
  EXPECT_TRUE(timer.future().isCancelled());
  EXPECT_TRUE(log.contains("oops"));
}

TEST_F(TimerCancelTest, ATimerCancelledBeforeItIsAddedIsDropped) {
  Ref<TimerNode> timer = queue->make(1, 0, Repeat::no, count());
  EXPECT_TRUE(timer->cancel());

  queue->add(*timer);

  EXPECT_TRUE(queue->isEmpty());
  EXPECT_EQ(runAt(5), 0U);
}

TEST_F(TimerCancelTest, ATimerThatIsNeverAddedDestroysItsTask) {
  const auto token = std::make_shared<int>(1);

  queue->make(1, 0, Repeat::no, [token] {});
  elsewhere([&] { queue->make(1, 0, Repeat::no, [token] {}); });

  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(TimerCancelTest, TheTasksDestructorMayUseTheQueue) {
  struct Reschedules {
    TimerCancelTest* test;
    explicit Reschedules(TimerCancelTest* owner) : test(owner) {}
    Reschedules(Reschedules&& other) noexcept : test(std::exchange(other.test, nullptr)) {}
    ~Reschedules() {
      if (test != nullptr) test->schedule(3, test->count());
    }
    void operator()() const {}
  };
  std::vector<ScheduledFuture> timers;
  for (int i = 0; i < 100; ++i) timers.push_back(schedule(2, Reschedules(this)));

  for (ScheduledFuture& each : timers) each.cancel();  // the heap is rebuilt on the way

  EXPECT_EQ(queue->size(), 100U);
  EXPECT_EQ(runAt(3), 100U);
  EXPECT_EQ(runs, 100);
}

TEST_F(TimerCancelTest, AllCanBeCancelledAtOnce) {
  ScheduledFuture first = schedule(1, count());
  ScheduledFuture second = atFixedRate(2, 1, count());
  ScheduledFuture third = schedule(3, count());
  Future<void> end = first.future();
  end.addListener([&] { third.cancel(); });  // while they are being cancelled

  EXPECT_EQ(queue->cancelAll() + 1, 3U);  // the listener had one of them

  EXPECT_TRUE(first.isCancelled() && second.isCancelled() && third.isCancelled());
  EXPECT_TRUE(end.isCancelled());
  EXPECT_EQ(runAt(10), 0U);
  ScheduledFuture late = schedule(20, count());
  EXPECT_TRUE(late.isCancelled());
  EXPECT_EQ(queue->cancelAll(), 1U);  // the late one
}

TEST_F(TimerCancelTest, ARepeatingTimerDoesNotSurviveTheEndOfItsQueue) {
  ScheduledFuture timer = atFixedRate(1, 1, [&] {
    ++runs;
    queue->cancelAll();  // it runs, so it is not among them
  });

  runAt(1);

  EXPECT_TRUE(timer.isCancelled());
  EXPECT_EQ(runAt(5), 0U);
  EXPECT_EQ(runs, 1);
}

TEST_F(TimerCancelTest, AFutureIsMadeWhenAskedForOnly) {
  ScheduledFuture timer = schedule(1, count());
  EXPECT_EQ(owner.users(), 0);

  Future<void> end = timer.future();

  EXPECT_EQ(owner.users(), 1);
  EXPECT_EQ(timer.future(), end);
  EXPECT_EQ(&end.executor(), &owner);
  EXPECT_FALSE(end.isDone());
  runAt(1);
  EXPECT_TRUE(end.isSuccess());
}

TEST_F(TimerCancelTest, AFutureMadeLateTellsWhatHappened) {
  test::LogCapture log("off");
  ScheduledFuture done = schedule(1, count());
  ScheduledFuture cancelled = schedule(1, count());
  ScheduledFuture failed = schedule(1, [] { throw std::runtime_error("oops"); });
  cancelled.cancel();
  runAt(1);

  EXPECT_TRUE(done.future().isSuccess());
  EXPECT_TRUE(cancelled.future().isCancelled());
  EXPECT_THROW(failed.future().get(), std::runtime_error);
}

TEST_F(TimerCancelTest, AFutureIsCancelledWithItsTimer) {
  ScheduledFuture timer = schedule(1, count());
  Future<void> end = timer.future();
  int told = 0;
  end.addListener([&](const Future<void>& f) { told += f.isCancelled() ? 1 : 0; });

  timer.cancel();

  EXPECT_EQ(told, 1);  // we are on its loop: at once
}

TEST_F(TimerCancelTest, HandlesAreCopiedMovedAndEmpty) {
  ScheduledFuture none;
  EXPECT_FALSE(none.valid());
  ScheduledFuture one = schedule(1, count());
  ScheduledFuture copy = one;
  ScheduledFuture moved = std::move(one);
  none = copy;
  copy = ScheduledFuture();

  EXPECT_FALSE(copy.valid());
  EXPECT_TRUE(moved.cancel());
  EXPECT_TRUE(none.isCancelled());
}

// I5: another thread cancels while the loop runs it
TEST_F(TimerCancelTest, IsEitherCancelledOrRunWhenThreadsRace) {
  constexpr int kRounds = 2'000;
  std::atomic<int> round{0};
  std::atomic<bool> ready{false};
  ScheduledFuture timer;
  bool cancelled = false;
  std::thread other([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load() != i) std::this_thread::yield();
      cancelled = timer.cancel();
      ready.store(true);
    }
  });

  for (int i = 1; i <= kRounds; ++i) {
    runs = 0;
    ready.store(false);
    timer = schedule(0, count());
    TaskChain due = queue->takeDue(0);
    round.store(i);
    const bool ran = queue->run(TimerNode::of(*due.popFront()), clock);
    while (!ready.load()) std::this_thread::yield();
    ASSERT_EQ(runs, ran ? 1 : 0);
    ASSERT_NE(ran, cancelled);
    ASSERT_EQ(timer.isCancelled(), cancelled);
  }
  other.join();
}

// I5: after true it never starts again
TEST_F(TimerCancelTest, ARepeatingTimerStopsWhenAnotherThreadCancelsIt) {
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> count{0};
    std::atomic<bool> stopped{false};
    std::atomic<bool> late{false};
    ScheduledFuture timer = atFixedRate(0, 1, [&] {
      if (stopped.load()) late.store(true);
      ++count;
    });
    Future<void> end = timer.future();
    std::latch start(1);
    bool cancelled = false;
    std::thread other([&] {
      start.wait();
      cancelled = timer.cancel();
    });
    start.count_down();
    while (!timer.isCancelled()) {
      clock.advance(Duration(1));
      runDue();
    }
    stopped.store(true);
    other.join();
    const int before = count.load();
    clock.advance(Duration(10));
    runDue();

    ASSERT_TRUE(cancelled);
    ASSERT_EQ(count.load(), before);
    ASSERT_FALSE(late.load());
    ASSERT_TRUE(end.isCancelled());
  }
}

TEST_F(TimerCancelTest, AFutureAskedForDuringTheLastRunIsCompleted) {
  constexpr int kRounds = 2'000;
  std::atomic<int> round{0};
  std::atomic<int> asked{0};
  ScheduledFuture timer;
  Future<void> end;
  std::thread other([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load() != i) std::this_thread::yield();
      end = timer.future();
      asked.store(i);
    }
  });

  for (int i = 1; i <= kRounds; ++i) {
    timer = schedule(0, count());
    round.store(i);
    if (i % 2 == 0) timer.cancel();
    runDue();
    while (asked.load() != i) std::this_thread::yield();
    ASSERT_TRUE(end.isDone());
    ASSERT_EQ(end.isCancelled(), i % 2 == 0);
  }
  other.join();
}

}  // namespace
}  // namespace millrace
