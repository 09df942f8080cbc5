// SPDX-License-Identifier: Apache-2.0
// The end of groups: shutdown, and destruction wherever it happens.
#include "support/census.h"
#include "support/engines.h"
#include "support/heap_count.h"
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/base/error.h>
#include <millrace/concurrent/thread_pool.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Census;
using test::eventually;
using test::Held;

// C028 C029
TEST(EventLoopGroupEnd, CompletesOnceWhenTheLastLoopHasEnded) {
  EventLoopGroup group(3);
  std::atomic<int> heard{0};
  group.terminationFuture().addListener([&] { ++heard; });
  for (EventLoop& loop : group) loop.submit([] {}).get();
  auto last = group.begin();
  auto held = std::make_unique<Held>(*last);

  Future<ShutdownReport> end = group.shutdownGracefully();
  for (auto it = std::next(last); it != group.end(); ++it) it->terminationFuture().get();
  EXPECT_FALSE(end.isDone());
  EXPECT_FALSE(group.isTerminated());
  EXPECT_FALSE(group.isShutdown());
  EXPECT_TRUE(group.isShuttingDown());
  EXPECT_EQ(group.shutdownGracefully(), end);
  EXPECT_EQ(group.terminationFuture(), end);
  EXPECT_THAT(group.dump(), testing::HasSubstr("3 loops, 1 keep it from ending"));
  held->release();
  end.get();
  ASSERT_TRUE(eventually([&] { return heard.load() != 0; }));
  static_cast<void>(group.shutdownGracefully());
  awaitGlobalExecutor();

  EXPECT_EQ(heard.load(), 1);
  EXPECT_TRUE(group.isTerminated());
  for (const EventLoop& loop : group) EXPECT_TRUE(loop.isTerminated());
}

// C028: loops that end one by one, each by itself
TEST(EventLoopGroupEnd, FollowsLoopsThatWereEndedOneByOne) {
  EventLoopGroup group(3);
  Future<ShutdownReport> end = group.terminationFuture();

  for (EventLoop& loop : group) {
    EXPECT_FALSE(end.isDone());
    EXPECT_FALSE(group.isShuttingDown());
    loop.shutdownGracefully().get();
  }

  end.get();
  EXPECT_TRUE(group.isTerminated());
}

// C029
TEST(EventLoopGroupEnd, ForwardsBothPeriodsToEachLoopAndSumsTheReports) {
  ManualClock clock;
  EventLoopGroup group(LoopOptions().loops(3).clock(clock));
  for (EventLoop& loop : group) {
    loop.submit([] {}).get();
    static_cast<void>(loop.schedule(1h, [] {}));
  }

  Future<ShutdownReport> end = group.shutdownGracefully(5s, 10s);
  for (EventLoop& loop : group) loop.submit([] {}).get();  // still taken by each
  EXPECT_FALSE(end.isDone());
  clock.advance(10s);

  EXPECT_EQ(end.get().timersCancelled, 3U);
}

template <class T>
concept HasAbruptEnd = requires(T& t) {
  t.shutdown();
}
|| requires(T& t) { t.shutdownNow(); };

// C030
TEST(EventLoopGroupEnd, IsAlwaysGraceful) {
  static_assert(!HasAbruptEnd<EventLoopGroup>);
  static_assert(!HasAbruptEnd<EventLoop>);
  int ran = 0;
  {
    EventLoopGroup group(1);
    Held held(group.next());
    for (int i = 0; i < 100; ++i) group.execute([&] { ++ran; });
    held.release();
  }  // the only way to end it in a hurry still runs what was accepted
  EXPECT_EQ(ran, 100);
}

// I8
TEST(EventLoopGroupEnd, LeavesNoThreadNoDescriptorAndNoMemory) {
  std::int64_t heap = 0;
  const Census before = Census::take();
  for (int round = 0; round < 20; ++round) {
    {
      EventLoopGroup group(3);
      for (EventLoop& loop : group) {
        for (int i = 0; i < 100; ++i) loop.execute([] {});
        static_cast<void>(loop.schedule(1h, [] {}));
        loop.submit([] {}).get();
      }
    }
    awaitGlobalExecutor();
    if (round == 9) heap = test::heapBytes();
  }

  EXPECT_EQ(test::leaksSince(before), std::vector<std::string>{});
  EXPECT_LT(test::heapBytes() - heap, 4096);
}

// C003 C061: a handle keeps the memory, not the loop
TEST(EventLoopGroupEnd, LeavesHandlesThatRejectEverything) {
  Ref<EventLoop> kept;
  Future<int> late;
  Promise<int> promise;
  {
    EventLoopGroup group(1);
    kept = Ref<EventLoop>(&group.next());
    kept->submit([] {}).get();
    promise = Promise<int>(*kept);
    late = promise.future();
  }

  EXPECT_TRUE(kept->isTerminated());
  EXPECT_EQ(kept->parent(), nullptr);
  EXPECT_THROW(kept->execute([] {}), RejectedExecution);
  EXPECT_THAT(kept->dump(), testing::HasSubstr("terminated"));
  std::atomic<int> got{0};
  late.addListener([&](const Result<int>& result) { got = result.value(); });
  promise.setSuccess(6);
  awaitGlobalExecutor();
  EXPECT_EQ(got.load(), 6);
}

// I8: on its own loop, where waiting would be for ever
TEST(EventLoopGroupEnd, DoesNotWaitWhenTheGroupDiesOnItsOwnLoop) {
  test::LogCapture log;
  auto group = std::make_unique<EventLoopGroup>(2);
  EventLoop& loop = group->next();
  Future<ShutdownReport> end = group->terminationFuture();
  Future<ShutdownReport> loopEnd = loop.terminationFuture();
  std::atomic<int> ran{0};
  {
    Held held(loop);
    loop.execute([&] {
      group.reset();
      ++ran;
    });
    loop.execute([&] { ++ran; });
  }

  end.get();
  EXPECT_TRUE(loopEnd.isDone());
  EXPECT_EQ(ran.load(), 2);
  EXPECT_EQ(log.count(LogLevel::error), 0U);  // nor was its patience at an end
}

// I8: on another loop, which has other things to do
TEST(EventLoopGroupEnd, DoesNotWaitWhenTheGroupDiesOnAnotherLoop) {
  test::LogCapture log;
  EventLoopGroup outer(1);
  auto inner = std::make_unique<EventLoopGroup>(1);
  Future<ShutdownReport> end = inner->terminationFuture();
  Held held(inner->next());

  outer.next().submit([&] { inner.reset(); }).get();  // comes back, though the loop is held

  EXPECT_FALSE(end.isDone());
  EXPECT_EQ(log.count(LogLevel::error), 0U);
  held.release();
  end.get();
}

// C231: the periods are those that were asked for, not the destructor's own
TEST(EventLoopGroupEnd, KeepsTheTimeoutThatWasAskedForBeforeTheGroupDied) {
  ManualClock clock;
  EventLoopGroup outer(1);
  auto inner = std::make_unique<EventLoopGroup>(LoopOptions().loops(1).clock(clock));
  EventLoop& loop = inner->next();
  std::function<void()> again = [&] { loop.tryExecute([&] { again(); }); };  // never idle
  loop.execute([&] { again(); });
  Future<ShutdownReport> end = inner->shutdownGracefully(0s, 5s);

  outer.next().submit([&] { inner.reset(); }).get();
  while (loop.state() == EventLoop::State::started) std::this_thread::yield();
  clock.advance(5s);

  EXPECT_TRUE(end.get().timedOut);
}

TEST(EventLoopGroupEnd, DoesNotWaitOnTheGlobalExecutor) {
  auto group = std::make_unique<EventLoopGroup>(1);
  Future<ShutdownReport> end = group->terminationFuture();
  Held held(group->next());

  globalExecutor().execute([&] { group.reset(); });
  awaitGlobalExecutor();

  EXPECT_FALSE(end.isDone());
  held.release();
  end.get();
}

// I8: a pool's thread is no loop's: the destructor waits there as anywhere
TEST(EventLoopGroupEnd, IsAwaitedOnAThreadOfAPool) {
  ThreadPool pool(1);
  for (int round = 0; round < 50; ++round) {
    auto group = std::make_unique<EventLoopGroup>(1);
    Future<ShutdownReport> end = group->terminationFuture();
    group->execute([] {});

    pool.submit([&] { group.reset(); }).get();

    EXPECT_TRUE(end.isDone());
  }
}

// I8
TEST(EventLoopGroupEnd, IsAwaitedOnAnyOtherThread) {
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int t = 0; t < 4; ++t) {
    auto group = std::make_unique<EventLoopGroup>(2);
    for (int i = 0; i < 100; ++i) group->execute([&] { ++ran; });
    threads.emplace_back([mine = std::move(group)]() mutable {
      Future<ShutdownReport> end = mine->terminationFuture();
      mine.reset();
      EXPECT_TRUE(end.isDone());
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(ran.load(), 400);
}

// The last handle of a loop may be dropped on its own thread.
TEST(EventLoopGroupEnd, SurvivesThatTheLastHandleGoesOnTheLoopItself) {
  const Census before = Census::take();
  std::latch gone(1);
  Future<ShutdownReport> end;
  {
    auto group = std::make_unique<EventLoopGroup>(1);
    end = group->terminationFuture();
    const Ref<EventLoop> mine(
        &group->next());  // whoever posts keeps the loop until the call is over
    mine->execute([&gone, &loop = *mine, own = std::move(group)]() mutable {
      gone.wait();
      loop.addShutdownHook([handle = Ref<EventLoop>(&loop)] {});
      own.reset();
    });
  }
  gone.count_down();
  end.get();
  end = {};
  awaitGlobalExecutor();

  EXPECT_EQ(test::leaksSince(before), std::vector<std::string>{});
}

// What the destructor does about a loop that does not end: it says so and lets it go.
TEST(EventLoopGroupEnd, LetsAStuckLoopGoAndSaysWhatItRuns) {
  test::LogCapture log;
  std::latch started(1);
  std::latch goOn(1);
  Future<ShutdownReport> end;
  {
    EventLoopGroup group(LoopOptions().loops(1).name("stuck"));
    group.execute([&] {
      started.count_down();
      goOn.wait();
    });
    started.wait();
    end = group.shutdownGracefully(0s, 0s);
  }  // waits for its one second in vain

  EXPECT_FALSE(end.isDone());
  EXPECT_TRUE(log.contains("group stuck is destroyed, but a loop does not end"));
  EXPECT_TRUE(log.contains("mr-stuck-1"));
  EXPECT_TRUE(log.contains("LetsAStuckLoopGoAndSaysWhatItRuns"));  // the task, by its name
  goOn.count_down();
  end.get();
}

// At exit: the threads of a static group are not waited for.
TEST(EventLoopGroupEndDeathTest, ExitDoesNotWaitForAStaticGroup) {
  EXPECT_EXIT(
      {
        static EventLoopGroup group(1);
        static std::latch never(1);
        std::latch started(1);
        group.execute([&] {
          started.count_down();
          never.wait();
        });
        started.wait();
        std::exit(7);
      },
      testing::ExitedWithCode(7), testing::Not(testing::HasSubstr("does not end")));
}

}  // namespace
}  // namespace millrace
