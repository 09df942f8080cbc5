// SPDX-License-Identifier: Apache-2.0
#include "support/engines.h"
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/concurrent/thread_pool.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EngineProbe;
using test::Held;
using test::textOf;
using testing::AllOf;
using testing::HasSubstr;

/// The same on every engine: those with a selector, and the one that only parks (C056).
class EventLoopPost : public test::EngineTest {
 protected:
  EventLoopPost() : group(options().loops(1)), loop(group.next()) {}
  void SetUp() override { expectEngine(group); }

  EventLoopGroup group;
  EventLoop& loop;
};

INSTANTIATE_TEST_SUITE_P(Engines, EventLoopPost, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

// C004 C056 I2
TEST_P(EventLoopPost, AMillionTasksOfOneThreadRunInOrderAndNeverOverlap) {
  constexpr int kTasks = 1'000'000;
  int next = 0;  // unsynchronised on purpose: the loop is the lock
  int wrong = 0;
  bool inside = false;

  for (int i = 0; i < kTasks; ++i) {
    loop.execute([&next, &wrong, &inside, i] {
      if (inside || next != i) ++wrong;
      inside = true;
      ++next;
      inside = false;
    });
  }
  loop.submit([] {}).get();

  EXPECT_EQ(next, kTasks);
  EXPECT_EQ(wrong, 0);
}

// C012 C055 C056 I1 I2
TEST_P(EventLoopPost, TasksOfEightThreadsKeepTheirOrderAndNoneIsLostOrDoubled) {
  constexpr int kThreads = 8;
  constexpr int kTasks = 10'000;
  std::array<int, kThreads> next{};  // unsynchronised on purpose
  int wrong = 0;
  int sum = 0;
  std::vector<std::thread> threads;

  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        loop.execute([&next, &wrong, &sum, t, i] {
          if (next[t]++ != i) ++wrong;
          ++sum;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop.submit([] {}).get();

  EXPECT_EQ(sum, kThreads * kTasks);
  EXPECT_EQ(wrong, 0);
}

// I3 C056: the loop goes to sleep between two posts, or is just about to
TEST_P(EventLoopPost, NoPostIsMissedByALoopThatGoesToSleep) {
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(loop.submit([i] { return i; }).get(), i);
  }
}

// C067
TEST_P(EventLoopPost, ResultsAndExceptionsReachTheFutureOfASubmittedTask) {
  Future<std::string> good = loop.submit([] { return std::string("done"); });
  Future<int> bad = loop.submit([]() -> int { throw std::out_of_range("too far"); });

  EXPECT_EQ(good.get(), "done");
  EXPECT_EQ(textOf<std::out_of_range>([&] { bad.get(); }), "too far");
  EXPECT_EQ(&good.executor(), &loop);
}

// C067
TEST_P(EventLoopPost, ListenersOfASubmittedTaskRunOnTheLoop) {
  std::atomic<int> onLoop{0};
  Promise<void> done(immediateExecutor());
  Future<void> allDone = done.future();
  Held held(loop);
  Future<int> future = loop.submit([] { return 1; });
  future.addListener([&] { onLoop += loop.inEventLoop() ? 1 : 0; });
  held.release();
  future.get();

  future.addListener([&] {  // added late, from outside
    onLoop += loop.inEventLoop() ? 1 : 0;
    done.setSuccess();
  });
  allDone.get();

  EXPECT_EQ(onLoop.load(), 2);
}

// C066 I10
TEST_P(EventLoopPost, ATaskThatThrowsDoesNotStopTheNextOne) {
  test::LogCapture log;
  int ran = 0;

  loop.execute([] { throw std::runtime_error("this one fails"); });
  loop.execute([&] { ++ran; });
  loop.execute([] { throw 42; });  // NOLINT: whatever it is
  loop.submit([&] { ++ran; }).get();

  EXPECT_EQ(ran, 2);
  EXPECT_TRUE(log.contains(loop.name() + ": a task threw: "));
  EXPECT_TRUE(log.contains("this one fails"));
  EXPECT_TRUE(log.contains("ATaskThatThrowsDoesNotStopTheNextOne"));  // where the task is from
  EXPECT_EQ(log.count(LogLevel::warn), 2U);
  EXPECT_EQ(loop.metrics().failures, 2U);
  EXPECT_EQ(loop.state(), EventLoop::State::started);
}

// C065
TEST_P(EventLoopPost, PendingTasksAreCountedFromAnyThread) {
  Held held(loop);
  EXPECT_EQ(loop.pendingTasks(), 0U);  // the one that runs does not wait

  for (int i = 0; i < 5; ++i) loop.execute([] {});
  loop.lazyExecute([] {});
  loop.executeAfterEventLoopIteration([] {});
  static_cast<void>(loop.schedule(1h, [] {}));  // none of the user's tasks
  EXPECT_EQ(loop.pendingTasks(), 7U);
  std::size_t elsewhere = 0;
  std::thread([&] { elsewhere = loop.pendingTasks(); }).join();
  EXPECT_EQ(elsewhere, 7U);
  EXPECT_EQ(loop.metrics().pendingTasks, 7U);

  held.release();
  loop.submit([] {}).get();
  loop.submit([] {}).get();
  EXPECT_EQ(loop.pendingTasks(), 0U);
}

// C065
TEST_P(EventLoopPost, PendingTasksAreNeverMissedWhileTheLoopTakesThem) {
  std::uint64_t posted = 0;
  for (int round = 0; round < 20'000; ++round) {
    for (int i = 0; i <= round % 20; ++i, ++posted) loop.execute([] {});
    while (loop.pendingTasks() != 0) std::this_thread::yield();
    ASSERT_GE(loop.metrics().tasks, posted);  // none pending: all have begun
  }
}

// A stream of posts that stops and goes on, in every rhythm: nothing waits for the next post.
TEST_P(EventLoopPost, TheLastTasksOfAStreamAreNotForgotten) {
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> ran{0};
    const int count = round % 100 + 1;
    for (int i = 0; i < count; ++i) {
      loop.execute([&ran] { ran.fetch_add(1, std::memory_order_release); });
    }
    while (ran.load(std::memory_order_acquire) != count) std::this_thread::yield();
  }
}

// C065: in the middle of a batch, while others look
TEST_P(EventLoopPost, PendingTasksShrinkOneByOne) {
  std::vector<std::size_t> seen;
  Held held(loop);
  for (int i = 0; i < 3; ++i) loop.execute([&] { seen.push_back(loop.pendingTasks()); });
  held.release();
  loop.submit([] {}).get();

  ASSERT_EQ(seen.size(), 3U);
  EXPECT_GE(seen[0], 2U);  // the submit may have come, too
  EXPECT_LE(seen[0], 3U);
  EXPECT_LE(seen[2], 1U);
}

// I2: what came before from outside runs before what the loop posts to itself
TEST_P(EventLoopPost, InLoopPostsQueueBehindEarlierOnesFromOutside) {
  std::vector<std::string> order;

  loop.submit([&] {
        std::thread([&] { loop.execute([&] { order.emplace_back("outside"); }); }).join();
        loop.execute([&] { order.emplace_back("inside"); });
        std::thread([&] { loop.execute([&] { order.emplace_back("outside 2"); }); }).join();
        loop.execute([&] { order.emplace_back("inside 2"); });
      })
      .get();
  loop.submit([] {}).get();

  EXPECT_EQ(order, (std::vector<std::string>{"outside", "inside", "outside 2", "inside 2"}));
}

struct DiesOn {
  std::int64_t* where;
  explicit DiesOn(std::int64_t* out) : where(out) {}
  DiesOn(DiesOn&& other) noexcept : where(std::exchange(other.where, nullptr)) {}
  ~DiesOn() {
    if (where != nullptr) *where = threadId();
  }
};

TEST_P(EventLoopPost, TasksDieOnTheLoopBeforeTheNextOneRuns) {
  std::int64_t diedOn = 0;
  loop.execute([guard = DiesOn(&diedOn)] {});

  const std::int64_t seen = loop.submit([&] { return diedOn; }).get();

  EXPECT_EQ(seen, loop.threadId());
}

// C063, behaviour 3.1: 12
TEST(EventLoopLazyPost, WaitsForTheNextNaturalWakeupAndKeepsItsPlace) {
  auto probe = EngineProbe::make();
  EventLoopGroup group(1, probe->factory());
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  probe->awaitAsleep();
  const std::uint64_t before = probe->wakeups();
  std::vector<int> order;

  loop.lazyExecute([&] { order.push_back(1); });
  loop.lazyExecute([&] { order.push_back(2); });
  EXPECT_EQ(probe->wakeups(), before);
  EXPECT_TRUE(probe->isAsleep());  // and nobody else will wake it
  EXPECT_EQ(loop.pendingTasks(), 2U);
  loop.execute([&] { order.push_back(3); });
  loop.submit([] {}).get();

  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_GE(probe->wakeups(), before + 1);
}

// C046 C063
TEST(EventLoopLazyPost, StartsALoopThatHasNotStarted) {
  EventLoopGroup group(1);
  Promise<int> promise(immediateExecutor());
  Future<int> future = promise.future();

  group.next().lazyExecute([done = std::move(promise)] { done.setSuccess(3); });

  EXPECT_EQ(future.get(), 3);
}

// C064: ours needs no marker task; what wakes a loop is no work of anybody's
TEST(EventLoopWakeup, IsNotCountedAsATask) {
  ManualClock clock;
  auto probe = EngineProbe::make();
  EventLoopGroup group(LoopOptions().loops(1).clock(clock).io(probe->factory()));
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  probe->awaitAsleep();
  const LoopMetrics before = loop.metrics();

  for (int i = 0; i < 10; ++i) {
    clock.advance(1s);  // wakes it
    probe->awaitAsleep();
  }

  EXPECT_EQ(loop.metrics().tasks, before.tasks);
  EXPECT_EQ(loop.metrics().wakeups, before.wakeups + 10);
  EXPECT_EQ(loop.pendingTasks(), 0U);
}

// C008
TEST(EventLoopAffinity, IsTrueOnlyInsideATurnOfThatLoop) {
  EventLoopGroup group(2);
  EventLoop& one = group.next();
  EventLoop& two = group.next();
  EXPECT_FALSE(one.inEventLoop());
  EXPECT_FALSE(group.inEventLoop());

  one.submit([&] {
       EXPECT_TRUE(one.inEventLoop());
       EXPECT_FALSE(two.inEventLoop());
       EXPECT_TRUE(group.inEventLoop());
       EXPECT_EQ(EventLoop::current(), &one);
       one.assertInEventLoop();
       EXPECT_THAT(textOf<std::logic_error>([&] { two.assertInEventLoop(); }),
                   AllOf(HasSubstr(two.name()), HasSubstr("the thread of " + one.name()),
                         HasSubstr("use execute() or submit()")));
       bool elsewhere = true;
       std::thread([&] { elsewhere = one.inEventLoop(); }).join();
       EXPECT_FALSE(elsewhere);
     })
      .get();

  EXPECT_FALSE(one.inEventLoop());
  EXPECT_THAT(textOf<std::logic_error>([&] { one.assertInEventLoop(); }),
              HasSubstr("a thread that is in no loop's turn"));
}

// C008
TEST(EventLoopAffinity, APoolsThreadIsInNoLoopsTurn) {
  EventLoopGroup group(1);
  ThreadPool pool(1);

  EXPECT_TRUE(pool.submit([] { return EventLoop::current() == nullptr; }).get());
  const std::string text =
      pool.submit(
              [&] { return textOf<std::logic_error>([&] { group.next().assertInEventLoop(); }); })
          .get();

  EXPECT_THAT(text, HasSubstr("a thread that is in no loop's turn"));
}

// C067: cancelled before its turn
TEST(EventLoopSubmit, ACancelledTaskDoesNotRun) {
  EventLoopGroup group(1);
  bool ran = false;
  Future<void> future;
  {
    Held held(group.next());
    future = group.next().submit([&] { ran = true; });
    EXPECT_TRUE(future.cancel());
  }
  group.next().submit([] {}).get();

  EXPECT_FALSE(ran);
  EXPECT_TRUE(future.isCancelled());
}

// C012
TEST(EventLoopSubmit, AnUnsynchronisedCounterIsSafeBehindALoop) {
  EventLoopGroup group(1);
  int counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      int last = 0;
      for (int i = 0; i < 200; ++i) {
        const int now = group.next().submit([&] { return ++counter; }).get();
        EXPECT_GT(now, last);
        last = now;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(counter, 8 * 200);
}

// I10
TEST(EventLoopSubmit, AFailingListenerHarmsNobodyElse) {
  test::LogCapture log;
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  std::atomic<int> heard{0};
  {
    Held held(loop);
    Future<void> future = loop.submit([] {});
    future.addListener([] { throw std::runtime_error("bad listener"); });
    future.addListener([&] { ++heard; });
  }
  loop.submit([] {}).get();
  loop.submit([] {}).get();

  EXPECT_EQ(heard.load(), 1);
  EXPECT_TRUE(log.contains("bad listener"));
}

}  // namespace
}  // namespace millrace
