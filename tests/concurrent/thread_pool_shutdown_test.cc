// SPDX-License-Identifier: Apache-2.0
#include "support/census.h"
#include "support/fault_script.h"
#include "support/log_capture.h"

#include <millrace/base/manual_clock.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/concurrent/thread_pool.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Census;

std::string textOfRejection(ThreadPool& pool) {
  try {
    pool.execute([] {});
  } catch (const RejectedExecution& e) {
    return e.what();
  }
  return "not rejected";
}

// Runs one task. Afterwards its thread is idle again, so that no end of a task falls into what a
// test does with the clock.
void runOne(ThreadPool& pool) {
  pool.submit([] {}).get();
  while (pool.busyThreads() != 0) std::this_thread::yield();
}

// C061 C225 C228
TEST(ThreadPoolShutdown, RunsWhatIsQueuedThenRejects) {
  std::latch started(1);
  std::latch goOn(1);
  std::atomic<int> ran{0};
  ThreadPool pool(ThreadPoolOptions().threads(1).name("end"));
  pool.execute([&] {
    started.count_down();
    goOn.wait();
  });
  for (int i = 0; i < 10; ++i) pool.execute([&] { ++ran; });
  started.wait();
  EXPECT_FALSE(pool.isShuttingDown());

  Future<ShutdownReport> end = pool.shutdownGracefully();
  EXPECT_TRUE(pool.isShuttingDown());
  EXPECT_FALSE(pool.isShutdown());
  EXPECT_FALSE(pool.isTerminated());
  EXPECT_FALSE(pool.awaitTermination(Deadline::past()));
  EXPECT_EQ(end, pool.terminationFuture());
  pool.execute([&] { ++ran; });  // still taken: a task runs
  goOn.count_down();
  const ShutdownReport report = end.get();

  EXPECT_EQ(ran.load(), 11);
  EXPECT_TRUE(pool.isShutdown());
  EXPECT_TRUE(pool.isTerminated());
  EXPECT_TRUE(pool.awaitTermination(Deadline::past()));
  EXPECT_FALSE(report.timedOut);
  EXPECT_EQ(report.tasksRunAfterTimeout, 0U);
  EXPECT_FALSE(pool.tryExecute([] {}));
  EXPECT_EQ(textOfRejection(pool),
            "execute(): rejected, the pool \"end\" is shut down and takes no more tasks; use "
            "tryExecute() where that may happen");
}

// I8
TEST(ThreadPoolShutdown, LeavesNoThreadBehind) {
  const Census before = Census::take();
  std::latch busy(3);
  ThreadPool pool(3);
  for (int i = 0; i < 3; ++i) {
    pool.execute([&] { busy.arrive_and_wait(); });
  }
  busy.wait();

  pool.shutdownGracefully().get();
  awaitGlobalExecutor();  // which has joined them and now ends, too

  EXPECT_EQ(pool.threads(), 0);
  EXPECT_EQ(test::leaksSince(before), std::vector<std::string>{});
}

struct CountsThreadEnds {
  std::atomic<int>* ends = nullptr;
  ~CountsThreadEnds() {
    if (ends != nullptr) ++*ends;
  }
};

TEST(ThreadPoolShutdown, IsTerminatedAfterTheThreadsLocalsAreGone) {
  std::atomic<int> ends{0};
  std::latch both(2);
  ThreadPool pool(2);
  for (int i = 0; i < 2; ++i) {
    pool.execute([&] {
      thread_local CountsThreadEnds local;
      local.ends = &ends;
      both.arrive_and_wait();
    });
  }

  pool.shutdownGracefully().get();

  EXPECT_EQ(ends.load(), 2);
}

// C234
TEST(ThreadPoolShutdown, TellsItsEndOnTheGlobalExecutor) {
  std::atomic<bool> onGlobal{false};
  ThreadPool pool(1);
  pool.submit([] {}).get();
  pool.terminationFuture().addListener([&] { onGlobal = globalExecutor().inEventLoop(); });

  pool.shutdownGracefully().get();
  awaitGlobalExecutor();

  EXPECT_TRUE(onGlobal.load());
}

TEST(ThreadPoolShutdown, OfAPoolWithoutThreadsNeedsNone) {
  test::FaultScript script;
  ThreadPool pool(2);

  EXPECT_TRUE(pool.shutdownGracefully().isDone());

  EXPECT_TRUE(pool.isTerminated());
  EXPECT_EQ(script.count("pthread_create"), 0U);
  EXPECT_FALSE(pool.tryExecute([] {}));
}

// C231 C232
TEST(ThreadPoolShutdown, TakesTasksUntilTheQuietPeriodIsOver) {
  ManualClock clock;
  ThreadPool pool(ThreadPoolOptions().threads(2).clock(clock));
  runOne(pool);

  Future<ShutdownReport> end = pool.shutdownGracefully(10s, 1min);
  for (int i = 0; i < 3; ++i) {  // each of them makes it longer
    clock.advance(9s);
    EXPECT_FALSE(pool.isShutdown());
    runOne(pool);
  }
  clock.advance(9s);
  EXPECT_FALSE(pool.isShutdown());
  clock.advance(1s);

  EXPECT_FALSE(end.get().timedOut);
  EXPECT_FALSE(pool.tryExecute([] {}));
}

// C232 C233: nobody has used it yet, but somebody may
TEST(ThreadPoolShutdown, HasAQuietPeriodWithoutThreadsToo) {
  ManualClock clock;
  ThreadPool pool(ThreadPoolOptions().threads(2).clock(clock));

  Future<ShutdownReport> end = pool.shutdownGracefully(10s, 1min);
  EXPECT_FALSE(end.isDone());
  runOne(pool);
  clock.advance(10s);

  end.get();
  EXPECT_TRUE(pool.isTerminated());
}

TEST(ThreadPoolShutdown, EndsAtOnceWhenNobodyCanWaitForTheQuietPeriod) {
  test::FaultScript script;
  script.failAll("pthread_create", EAGAIN);
  ThreadPool pool(2);

  EXPECT_TRUE(pool.shutdownGracefully(10s, 20s).isDone());
}

// C231
TEST(ThreadPoolShutdown, EndsAtTheTimeoutAndRunsWhatItHas) {
  std::latch started(1);
  std::latch goOn(1);
  std::atomic<int> ran{0};
  ManualClock clock;
  ThreadPool pool(ThreadPoolOptions().threads(1).clock(clock));
  pool.execute([&] {
    started.count_down();
    goOn.wait();
  });
  started.wait();
  pool.execute([&] { ++ran; });
  pool.execute([&] { ++ran; });

  Future<ShutdownReport> end = pool.shutdownGracefully(1s, 5s);
  clock.advance(4s);
  EXPECT_FALSE(pool.isShutdown());
  EXPECT_TRUE(pool.tryExecute([&] { ++ran; }));
  clock.advance(1s);
  EXPECT_FALSE(pool.tryExecute([&] { ++ran; }));
  EXPECT_TRUE(pool.isShutdown());
  goOn.count_down();
  const ShutdownReport report = end.get();

  EXPECT_EQ(ran.load(), 3);
  EXPECT_TRUE(report.timedOut);
  EXPECT_EQ(report.tasksRunAfterTimeout, 3U);
}

// behaviour 3.1: (e)
TEST(ThreadPoolShutdown, IsNotShortenedByASecondCall) {
  ManualClock clock;
  ThreadPool pool(ThreadPoolOptions().threads(1).clock(clock));
  runOne(pool);
  Future<ShutdownReport> end = pool.shutdownGracefully(10s, 20s);

  EXPECT_EQ(pool.shutdownGracefully(0s, 0s), end);
  clock.advance(9s);
  EXPECT_FALSE(pool.isShutdown());
  EXPECT_EQ(pool.shutdownGracefully(15s, 20s), end);  // but made longer
  clock.advance(5s);
  EXPECT_FALSE(pool.isShutdown());
  clock.advance(1s);

  end.get();
  EXPECT_EQ(pool.shutdownGracefully(), end);
}

// behaviour 3.1: (d)
TEST(ThreadPoolShutdown, RefusesPeriodsThatMakeNoSense) {
  ThreadPool pool(1);

  EXPECT_THROW(static_cast<void>(pool.shutdownGracefully(-1ns, 1s)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(pool.shutdownGracefully(0s, -1ns)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(pool.shutdownGracefully(2s, 1s)), std::invalid_argument);
  try {
    static_cast<void>(pool.shutdownGracefully(2ns, 1ns));
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(),
                 "shutdownGracefully(2ns, 1ns): neither may be negative, nor the timeout below the "
                 "quiet period");
  }
  EXPECT_FALSE(pool.isShuttingDown());
}

TEST(ThreadPoolShutdown, EndsOnTheRealClockToo) {
  ThreadPool pool(2);
  pool.submit([] {}).get();

  const ShutdownReport report = pool.shutdownGracefully(1ms, Duration::max()).get();

  EXPECT_FALSE(report.timedOut);
}

TEST(ThreadPoolShutdown, WaitsForARunningTaskWithoutATimeout) {
  std::latch both(2);
  std::latch goOn(1);
  ThreadPool pool(2);
  pool.execute([&] {
    both.arrive_and_wait();
    goOn.wait();
  });
  pool.execute([&] { both.arrive_and_wait(); });
  both.wait();
  while (pool.busyThreads() != 1) std::this_thread::yield();  // the other one is idle

  Future<ShutdownReport> end = pool.shutdownGracefully(Duration::zero(), Duration::max());
  EXPECT_FALSE(pool.isShutdown());
  goOn.count_down();

  EXPECT_FALSE(end.get().timedOut);
}

TEST(ThreadPoolShutdown, EndsWithoutAThreadForTheGlobalExecutor) {
  test::LogCapture log("off");
  test::FaultScript script;
  std::latch both(2);
  ThreadPool pool(2);
  for (int i = 0; i < 2; ++i) {
    pool.execute([&] { both.arrive_and_wait(); });
  }
  both.wait();
  script.failAll("pthread_create", EAGAIN);

  pool.shutdownGracefully().get();

  EXPECT_TRUE(pool.isTerminated());
}

// behaviour 3.1: (c)
TEST(ThreadPoolShutdown, IsNotAwaitedOnThePoolsThreads) {
  ThreadPool pool(1);

  Future<void> waited = pool.submit([&] { pool.awaitTermination(Deadline::never()); });

  EXPECT_THROW(waited.get(), BlockingOperation);
}

}  // namespace
}  // namespace millrace
