// SPDX-License-Identifier: Apache-2.0
// The memory of timers: how much, where it goes, and who may hold it for how long.
#include "concurrent/timer_fixture.h"
#include "support/heap_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace millrace {
namespace {

class TimerPoolTest : public test::TimerFixture {
 protected:
  // A timer that is armed; remembers which memory was ever used.
  ScheduledFuture scheduleTracked(std::int64_t deadline) {
    Ref<TimerNode> timer = queue->make(deadline, 0, Repeat::no, [] {});
    queue->add(*timer);
    addresses.insert(timer.get());
    return ScheduledFuture::adopt(*timer.release());
  }
  std::set<const TimerNode*> addresses;
};

// C173
TEST_F(TimerPoolTest, AMillionSchedulesAndCancelsDoNotGrowMemory) {
  std::vector<ScheduledFuture> living;
  for (int i = 0; i < 100; ++i) living.push_back(scheduleTracked(1'000'000'000 + i));
  const std::int64_t before = test::heapBytes();

  std::size_t most = 0;
  for (std::int64_t i = 0; i < 1'000'000; ++i) {
    scheduleTracked(500'000'000 + i).cancel();
    most = std::max(most, queue->entries());
  }

  EXPECT_EQ(queue->size(), 100U);
  EXPECT_LE(most, 1'000U);
  EXPECT_LE(addresses.size(), 1'000U);  // the same memory again and again
  EXPECT_LE(test::heapBytes() - before, 100'000);
}

// C173: the cancels come from another thread
TEST_F(TimerPoolTest, CancelsOfAnotherThreadDoNotGrowMemoryEither) {
  constexpr int kRounds = 200;
  constexpr std::size_t kBatch = 1'000;
  std::vector<ScheduledFuture> batch;
  std::atomic<int> filled{0};
  std::atomic<int> cancelled{0};
  std::thread other([&] {
    for (int r = 1; r <= kRounds; ++r) {
      while (filled.load() != r) std::this_thread::yield();
      for (ScheduledFuture& each : batch) EXPECT_TRUE(each.cancel());
      batch.clear();  // and the last references, mostly
      cancelled.store(r);
    }
  });

  std::size_t most = 0;
  for (int r = 1; r <= kRounds; ++r) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      batch.push_back(scheduleTracked(1'000 + r));
      most = std::max(most, queue->entries());
    }
    filled.store(r);
    while (cancelled.load() != r) std::this_thread::yield();
  }
  other.join();

  EXPECT_LE(most, 4 * kBatch);
  EXPECT_LE(addresses.size(), 32 * kBatch);  // one slab holds nearly twenty batches
  EXPECT_EQ(queue->next(), kNever);
  EXPECT_EQ(queue->entries(), 0U);
}

TEST_F(TimerPoolTest, AllocatesNothingForATimerInTheSteadyState) {
  const auto turn = [&] {
    for (int i = 0; i < 100; ++i) schedule(clock.nanos(), [] {});
    runDue();
  };
  turn();
  const std::uint64_t before = test::heapCallsOfThread();

  for (int i = 0; i < 100; ++i) turn();

  EXPECT_EQ(test::heapCallsOfThread() - before, 0U);
}

TEST_F(TimerPoolTest, SurvivesManyTimersInAnyOrder) {
  std::mt19937 random(7);  // NOLINT: the same every time
  std::vector<ScheduledFuture> timers;
  for (int i = 0; i < 60'000; ++i) {  // several slabs
    timers.push_back(schedule(static_cast<std::int64_t>(random() % 1'000), [] {}));
  }
  std::shuffle(timers.begin(), timers.end(), random);

  std::size_t cancelled = 0;
  for (std::size_t i = 0; i < timers.size(); i += 2) cancelled += timers[i].cancel() ? 1 : 0;
  timers.erase(timers.begin() + 20'000, timers.end());
  const std::size_t ran = runAt(1'000);
  timers.clear();

  EXPECT_EQ(cancelled, 30'000U);
  EXPECT_EQ(ran, 30'000U);
  EXPECT_TRUE(queue->isEmpty());
  for (int i = 0; i < 60'000; ++i) schedule(2'000, [] {});  // and once more
  EXPECT_EQ(runAt(2'000), 60'000U);
}

TEST_F(TimerPoolTest, HandlesOutliveTheQueue) {
  ScheduledFuture done = schedule(1, [] {});
  ScheduledFuture open = schedule(5, [] {});
  Ref<TimerNode> guest = elsewhere([&] { return queue->make(9, 0, Repeat::no, [] {}); });
  queue->add(*guest);
  ScheduledFuture foreign = ScheduledFuture::adopt(*guest.release());
  runAt(1);

  queue.reset();

  EXPECT_TRUE(done.isDone());
  EXPECT_FALSE(done.isCancelled());
  EXPECT_TRUE(open.isCancelled());
  EXPECT_TRUE(foreign.isCancelled());
  EXPECT_FALSE(open.cancel());
  ScheduledFuture copy = open;
  open = ScheduledFuture();
  done = ScheduledFuture();
  EXPECT_EQ(copy.deadline(), Deadline::at(5));
}

TEST_F(TimerPoolTest, TheLastHandleMayDieOnAnotherThreadAfterTheQueue) {
  for (int round = 0; round < 50; ++round) {
    queue = std::make_unique<TimerQueue>(owner);
    std::vector<ScheduledFuture> handles;
    for (int i = 0; i < 20; ++i) {
      handles.push_back(schedule(5 + i, [] {}));
      Ref<TimerNode> guest = elsewhere([&] { return queue->make(9, 0, Repeat::no, [] {}); });
      queue->add(*guest);
      handles.push_back(ScheduledFuture::adopt(*guest.release()));
    }
    std::atomic<bool> go{false};
    std::thread other([&] {
      while (!go.load()) std::this_thread::yield();
      handles.clear();
    });
    go.store(true);
    queue.reset();  // races with the handles
    other.join();
  }
}

TEST_F(TimerPoolTest, MemoryReleasedByAnotherThreadIsUsedAgain) {
  std::vector<ScheduledFuture> handles;
  std::set<const TimerNode*> first;
  for (int i = 0; i < 30'000; ++i) handles.push_back(scheduleTracked(1));
  first.swap(addresses);
  runAt(1);
  std::thread([&] { handles.clear(); }).join();

  for (int i = 0; i < 30'000; ++i) scheduleTracked(2);

  std::size_t again = 0;
  for (const TimerNode* each : addresses) again += first.count(each);
  EXPECT_GT(again, 10'000U);
  runAt(2);
}

TEST_F(TimerPoolTest, TheMemoryComesBackWithTheLastHandleOrTheQueue) {
  for (const bool away : {false, true}) {
    for (const bool queueLast : {false, true}) {
      addresses.clear();
      const std::int64_t due = clock.nanos() + 5;
      ScheduledFuture first = scheduleTracked(due);
      ScheduledFuture second = first;
      const TimerNode* memory = *addresses.begin();
      const auto isFree = [&] { return queue->make(1, 0, Repeat::no, [] {}).get() == memory; };
      const auto drop = [&](ScheduledFuture& handle) {
        if (away) return elsewhere([&] { handle = ScheduledFuture(); });
        handle = ScheduledFuture();
      };

      drop(first);
      EXPECT_FALSE(isFree());
      if (!queueLast) runAt(due);
      EXPECT_FALSE(isFree());
      drop(second);
      EXPECT_EQ(isFree(), !queueLast && !away);  // from elsewhere it comes home later
      if (queueLast) runAt(due);
      EXPECT_EQ(isFree(), queueLast || !away);
    }
    queue = std::make_unique<TimerQueue>(owner);
  }
}

TEST_F(TimerPoolTest, CopiesOfAHandleMayDieOnTwoThreadsAtOnce) {
  constexpr int kRounds = 100;
  constexpr std::size_t kBatch = 200;
  std::vector<ScheduledFuture> theirs;
  std::atomic<int> filled{0};
  std::atomic<int> finished{0};
  std::atomic<std::size_t> won{0};
  const auto cancelAndDrop = [&won](std::vector<ScheduledFuture>& handles) {
    for (ScheduledFuture& each : handles) {
      if (each.cancel()) ++won;
      each = ScheduledFuture();
    }
    handles.clear();
  };
  std::thread other([&] {
    for (int r = 1; r <= kRounds; ++r) {
      while (filled.load() != r) std::this_thread::yield();
      cancelAndDrop(theirs);
      finished.store(r);
    }
  });

  for (int r = 1; r <= kRounds; ++r) {
    std::vector<ScheduledFuture> ours;
    for (std::size_t i = 0; i < kBatch; ++i) ours.push_back(scheduleTracked(1'000 + r));
    theirs = ours;
    filled.store(r);
    cancelAndDrop(ours);
    while (finished.load() != r) std::this_thread::yield();
  }
  other.join();

  EXPECT_EQ(won.load(), kRounds * kBatch);  // each timer once
  EXPECT_EQ(queue->next(), kNever);
  EXPECT_EQ(queue->entries(), 0U);
}

// Others' cancels count, too, when the loop looks for its next deadline.
TEST_F(TimerPoolTest, TimersCancelledElsewhereDoNotStay) {
  std::vector<ScheduledFuture> timers;
  ScheduledFuture keeps = schedule(1, [] {});
  const auto token = std::make_shared<int>(1);
  for (int i = 0; i < 10'000; ++i) timers.push_back(schedule(1'000 + i, [token] {}));
  elsewhere([&] {
    for (const ScheduledFuture& each : timers) each.cancel();
  });
  EXPECT_EQ(token.use_count(), 1);
  const std::size_t before = queue->entries();

  EXPECT_EQ(queue->next(), 1);

  EXPECT_EQ(before, 10'001U);
  EXPECT_EQ(queue->entries(), 1U);
}

}  // namespace
}  // namespace millrace
