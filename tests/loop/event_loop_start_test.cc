// SPDX-License-Identifier: Apache-2.0
#include "support/census.h"
#include "support/fault_script.h"
#include "support/heap_count.h"
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/base/error.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <latch>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EngineProbe;
using test::textOf;
using testing::AllOf;
using testing::HasSubstr;

// C024 C045
TEST(EventLoopStart, SixtyFourLoopsCostNoThreadAndLessThan64KiBEach) {
  test::FaultScript calls;
  const test::Census before = test::Census::take();
  const std::int64_t heap = test::heapBytes();

  EventLoopGroup group(64, io::epoll());

  EXPECT_LT(test::heapBytes() - heap, 64 * 64 * 1024);
  EXPECT_EQ(test::Census::take().threads, before.threads);
  EXPECT_EQ(calls.count("pthread_create"), 0U);
  EXPECT_EQ(calls.count("epoll_create1"), 64U);  // the selectors are open, though
  EXPECT_EQ(group.size(), 64U);
  for (const EventLoop& loop : group) {
    EXPECT_EQ(loop.state(), EventLoop::State::notStarted);
    EXPECT_EQ(loop.threadId(), 0);
    EXPECT_FALSE(loop.inEventLoop());
  }
}

// C045
TEST(EventLoopStart, NothingButWorkStartsALoop) {
  test::FaultScript calls;
  EventLoopGroup group(1);
  EventLoop& loop = group.next();

  static_cast<void>(loop.metrics());
  static_cast<void>(loop.dump());
  static_cast<void>(loop.pendingTasks());
  static_cast<void>(loop.terminationFuture());
  loop.setIoRatio(70);
  loop.addShutdownHook([] {});
  loop.executeAfterEventLoopIteration([] {});

  EXPECT_EQ(calls.count("pthread_create"), 0U);
  EXPECT_EQ(loop.state(), EventLoop::State::notStarted);
}

// C046 I1 I6
TEST(EventLoopStart, OneThreadIsMadeForAHundredRacingPosts) {
  constexpr int kThreads = 100;
  test::FaultScript calls;
  for (int round = 0; round < 5; ++round) {
    EventLoopGroup group(1);
    EventLoop& loop = group.next();
    const std::uint64_t before = calls.count("pthread_create");
    std::barrier start(kThreads);
    std::atomic<int> ran{0};
    std::set<std::int64_t> where;  // of the loop's thread alone
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        loop.execute([&] {
          where.insert(threadId());
          ++ran;
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    loop.submit([] {}).get();  // behind all of them

    EXPECT_EQ(calls.count("pthread_create") - before, 1U);
    EXPECT_EQ(ran.load(), kThreads);
    EXPECT_EQ(where.size(), 1U);
    EXPECT_EQ(loop.state(), EventLoop::State::started);
  }
}

// C047
TEST(EventLoopStart, AThreadThatCannotBeMadeIsTriedAgainByTheNextPost) {
  test::FaultScript calls;
  calls.fail("pthread_create", 1, EAGAIN, 3);
  EventLoopGroup group(LoopOptions().loops(1).name("late"));
  EventLoop& loop = group.next();
  auto token = std::make_shared<int>(1);

  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(textOf<Exception>([&] { loop.execute([token] { ++*token; }); }),
                AllOf(HasSubstr("pthread_create mr-late-1"), HasSubstr("no more threads"),
                      HasSubstr("ulimit -u")));
    EXPECT_EQ(token.use_count(), 1);  // the task died here
    EXPECT_EQ(loop.state(), EventLoop::State::notStarted);
    EXPECT_EQ(loop.pendingTasks(), 0U);
  }
  loop.submit([token] { ++*token; }).get();

  EXPECT_EQ(*token, 2);
  EXPECT_EQ(calls.count("pthread_create"), 4U);
}

// C047: the other ways in
TEST(EventLoopStart, AThreadThatCannotBeMadeFailsEveryKindOfPost) {
  test::FaultScript calls;
  calls.failAll("pthread_create", EAGAIN);
  EventLoopGroup group(LoopOptions().loops(1).maxPendingTasks(16));
  EventLoop& loop = group.next();

  for (int i = 0; i < 20; ++i) {  // more often than the capacity: each gives its place back
    EXPECT_THROW(loop.lazyExecute([] {}), Exception);
    EXPECT_THROW(static_cast<void>(loop.submit([] {})), Exception);
    EXPECT_THROW(static_cast<void>(loop.schedule(1s, [] {})), Exception);
  }

  EXPECT_EQ(loop.pendingTasks(), 0U);
  EXPECT_EQ(loop.state(), EventLoop::State::notStarted);
}

// C047
TEST(EventLoopStart, TryExecuteIsFalseWhenNoThreadCanBeMade) {
  test::FaultScript calls;
  calls.failAll("pthread_create", EAGAIN);
  EventLoopGroup group(LoopOptions().loops(1).maxPendingTasks(16));
  int ran = 0;
  Task task = [&] { ++ran; };

  for (int i = 0; i < 20; ++i) EXPECT_FALSE(group.next().tryExecute([] {}));
  EXPECT_FALSE(group.next().offer(task));

  ASSERT_TRUE(static_cast<bool>(task));  // still the caller's
  task();
  EXPECT_EQ(ran, 1);
}

// C047
TEST(EventLoopStart, ListenersOfALoopThatCannotStartStillRun) {
  test::LogCapture log("off");
  test::FaultScript calls;
  calls.failAll("pthread_create", EAGAIN);
  EventLoopGroup group(1);
  Promise<int> promise(group.next());
  std::atomic<int> got{0};
  promise.future().addListener([&](const Result<int>& result) { got = result.value(); });

  promise.setSuccess(7);
  awaitGlobalExecutor();

  EXPECT_EQ(got.load(), 7);
}

// C047: what others queued stays
TEST(EventLoopStart, AFailedStartTakesBackItsOwnTaskOnly) {
  test::FaultScript calls;
  calls.fail("pthread_create", 1, EAGAIN);
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  std::vector<std::string> order;
  loop.executeAfterEventLoopIteration([&] { order.emplace_back("tail 1"); });
  loop.executeAfterEventLoopIteration([&] { order.emplace_back("tail 2"); });

  EXPECT_THROW(loop.execute([&] { order.emplace_back("never"); }), Exception);
  EXPECT_EQ(loop.pendingTasks(), 2U);
  loop.submit([&] { order.emplace_back("task"); }).get();
  loop.submit([] {}).get();  // the turn after that

  EXPECT_EQ(order, (std::vector<std::string>{"task", "tail 1", "tail 2"}));
}

// C047 C062 I1
TEST(EventLoopStart, RacingPostsEitherRunOrThrowWhileStartsFail) {
  constexpr int kThreads = 8;
  std::atomic<int> failures{5};
  std::vector<std::thread> loopThreads;
  {
    EventLoopGroup group(LoopOptions().loops(1).threadFactory([&](const std::string&, Task body) {
      if (failures.fetch_sub(1) > 0) throw std::runtime_error("no thread today");
      loopThreads.emplace_back([run = std::move(body)]() mutable { run(); });
    }));
    EventLoop& loop = group.next();
    std::atomic<int> thrown{0};
    std::atomic<int> accepted{0};
    int ran = 0;  // of the loop's thread alone
    std::barrier start(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        for (int k = 0; k < 50; ++k) {
          try {
            loop.execute([&ran] { ++ran; });
            ++accepted;
          } catch (const std::runtime_error& e) {
            EXPECT_STREQ(e.what(), "no thread today");
            ++thrown;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();

    EXPECT_EQ(loop.submit([&] { return ran; }).get(), accepted.load());
    EXPECT_EQ(thrown.load(), 5);
    EXPECT_EQ(accepted.load(), kThreads * 50 - 5);
  }
  EXPECT_EQ(loopThreads.size(), 1U);
  for (std::thread& thread : loopThreads) thread.join();
}

// C049
TEST(EventLoopStart, TheFirstTaskIsQueuedBeforeTheThreadIsMade) {
  std::size_t pending = 0;
  std::thread thread;
  EventLoop* loop = nullptr;
  {
    EventLoopGroup group(LoopOptions().loops(1).threadFactory([&](const std::string&, Task body) {
      pending = loop->pendingTasks();
      thread = std::thread([run = std::move(body)]() mutable { run(); });
    }));
    loop = &group.next();

    loop->submit([] {}).get();
  }
  thread.join();

  EXPECT_EQ(pending, 1U);
}

// C038: the new thread says so itself, even before whoever made it comes back
TEST(EventLoopStart, TheLoopIsStartedAndBoundInItsFirstTask) {
  std::latch ran(1);
  std::thread thread;
  {
    EventLoopGroup group(LoopOptions().loops(1).threadFactory([&](const std::string&, Task body) {
      thread = std::thread([run = std::move(body)]() mutable { run(); });
      ran.wait();
    }));
    EventLoop& loop = group.next();

    loop.execute([&] {
      EXPECT_EQ(loop.state(), EventLoop::State::started);
      EXPECT_TRUE(loop.inEventLoop());
      EXPECT_EQ(loop.threadId(), threadId());
      ran.count_down();
    });
  }
  thread.join();
}

// C050
TEST(EventLoopStart, PostsFromWithinTheLoopDoNotTryToStartIt) {
  test::FaultScript calls;
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  calls.failAll("pthread_create", EAGAIN);
  std::atomic<int> ran{0};

  loop.submit([&] {
        for (int i = 0; i < 100; ++i) loop.execute([&] { ++ran; });
        static_cast<void>(loop.schedule(0s, [&] { ++ran; }));
      })
      .get();
  while (ran.load() != 101) loop.submit([] {}).get();

  EXPECT_EQ(calls.count("pthread_create"), 1U);
  calls.fail("pthread_create", 1, EAGAIN, 0);
}

// C051 C231: no task has ever run, and yet the quiet period is kept
TEST(EventLoopStart, TheQuietPeriodCountsFromTheStart) {
  ManualClock clock(100'000'000'000);
  auto probe = EngineProbe::make();
  EventLoopGroup group(LoopOptions().loops(1).clock(clock).io(probe->factory()));
  EventLoop& loop = group.next();
  static_cast<void>(loop.schedule(1h, [] {}));  // starts it, runs nothing
  probe->awaitAsleep();

  Future<ShutdownReport> end = loop.shutdownGracefully(10s, 60s);
  probe->awaitAsleep();
  EXPECT_EQ(loop.state(), EventLoop::State::shuttingDown);
  clock.advance(9s);
  probe->awaitAsleep();
  EXPECT_EQ(loop.state(), EventLoop::State::shuttingDown);
  clock.advance(1s);

  EXPECT_FALSE(end.get().timedOut);
}

}  // namespace
}  // namespace millrace
