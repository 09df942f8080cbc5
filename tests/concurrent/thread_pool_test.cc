// SPDX-License-Identifier: Apache-2.0
// ThreadPool at work; its end is in thread_pool_shutdown_test.cc.
#include "support/executors.h"
#include "support/fault_script.h"
#include "support/log_capture.h"

#include <millrace/concurrent/thread_pool.h>
#include <millrace/sys/thread.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <latch>
#include <memory>
#include <pthread.h>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::QueueExecutor;

std::string threadName() {
  std::array<char, 16> name{};
  ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  return name.data();
}

// Keeps threads of a pool busy until it is opened.
class Gate {
 public:
  /// A task that waits here; returns when it does.
  void occupy(ThreadPool& pool) {
    pool.execute([this] {
      inside_.release();
      open_.wait();
    });
    inside_.acquire();
  }
  void open() { open_.count_down(); }

 private:
  std::counting_semaphore<> inside_{0};
  std::latch open_{1};
};

TEST(ThreadPool, RunsTasksOnItsThreads) {
  ThreadPool pool(ThreadPoolOptions().threads(2).name("files"));
  EXPECT_EQ(pool.name(), "files");
  EXPECT_FALSE(pool.inEventLoop());

  const auto [name, inside] =
      pool.submit([&] { return std::pair(threadName(), pool.inEventLoop()); }).get();

  EXPECT_EQ(name, "mr-files-1");
  EXPECT_TRUE(inside);
}

TEST(ThreadPool, IsNamedByItsNumberWithoutAName) {
  ThreadPool pool(1);

  EXPECT_EQ(pool.name().substr(0, 4), "pool");
  EXPECT_EQ(pool.submit([] { return threadName(); }).get(), "mr-" + pool.name() + "-1");
}

TEST(ThreadPool, MakesThreadsOneByOneWhenNoneIsIdle) {
  Gate gate;
  ThreadPool pool(ThreadPoolOptions().threads(2));
  EXPECT_EQ(pool.threads(), 0);

  gate.occupy(pool);
  EXPECT_EQ(pool.threads(), 1);
  gate.occupy(pool);
  EXPECT_EQ(pool.threads(), 2);
  Future<void> third = pool.submit([] {});

  EXPECT_EQ(pool.threads(), 2);
  EXPECT_EQ(pool.pendingTasks(), 1U);
  EXPECT_FALSE(third.isDone());
  gate.open();
  third.get();
}

TEST(ThreadPool, UsesAThreadThatIsIdle) {
  ThreadPool pool(ThreadPoolOptions().threads(4));

  for (int i = 0; i < 50; ++i) {
    pool.submit([] {}).get();
    while (pool.busyThreads() != 0) std::this_thread::yield();  // it may be on its way back
    ASSERT_EQ(pool.threads(), 1);
  }
}

TEST(ThreadPool, HasTwiceTheProcessorsByDefault) {
  ThreadPool pool;

  EXPECT_EQ(pool.capacity(), static_cast<std::size_t>(2 * availableCpus()) * 256);
}

// I1
TEST(ThreadPool, RunsEveryTaskOfManyThreadsOnce) {
  constexpr int kProducers = 4;
  constexpr int kEach = 2'000;
  std::vector<std::atomic<int>> ran(kProducers * kEach);
  {
    ThreadPool pool(ThreadPoolOptions().threads(3).capacity(kProducers * kEach));
    std::vector<std::thread> producers;
    for (int p = 0; p < kProducers; ++p) {
      producers.emplace_back([&, p] {
        for (int i = 0; i < kEach; ++i) {
          pool.execute([&ran, at = static_cast<std::size_t>(p * kEach + i)] { ++ran[at]; });
        }
      });
    }
    for (std::thread& each : producers) each.join();
  }
  for (const auto& each : ran) ASSERT_EQ(each.load(), 1);
}

TEST(ThreadPool, BeginsTasksInTheOrderTheyCame) {
  std::vector<int> order;
  {
    ThreadPool pool(1);
    for (int i = 0; i < 100; ++i) pool.execute([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// C060
TEST(ThreadPool, RejectsWhatDoesNotFitAndSaysWhatToDo) {
  std::atomic<int> ran{0};
  Gate gate;
  ThreadPool pool(ThreadPoolOptions().threads(1).name("small").capacity(2));
  gate.occupy(pool);
  pool.execute([&] { ++ran; });
  EXPECT_TRUE(pool.tryExecute([&] { ++ran; }));
  const auto token = std::make_shared<int>(1);

  EXPECT_FALSE(pool.tryExecute([token] {}));
  EXPECT_THROW(static_cast<void>(pool.submit([token] {})), RejectedExecution);
  try {
    pool.execute([token] {});
    ADD_FAILURE() << "not rejected";
  } catch (const RejectedExecution& e) {
    EXPECT_STREQ(e.what(),
                 "execute(): rejected, 2 tasks wait in the pool \"small\", as many as its capacity "
                 "allows; raise capacity() or threads() of ThreadPoolOptions, or use tryExecute() "
                 "and give it less");
  }
  EXPECT_EQ(token.use_count(), 1);  // the task died here

  gate.open();
  pool.shutdownGracefully().get();
  EXPECT_EQ(ran.load(), 2);
}

// C059
TEST(ThreadPool, RefusesAnEmptyTask) {
  ThreadPool pool(1);

  EXPECT_THROW(pool.execute(nullptr), std::invalid_argument);
  EXPECT_THROW(pool.tryExecute(nullptr), std::invalid_argument);
  EXPECT_EQ(pool.threads(), 0);
}

TEST(ThreadPool, RefusesANegativeNumberOfThreads) {
  EXPECT_THROW(ThreadPool(-1), std::invalid_argument);
  try {
    ThreadPoolOptions().threads(-3);
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(),
                 "ThreadPoolOptions::threads(-3): must not be negative; 0 is the default number");
  }
}

// C066
TEST(ThreadPool, LogsWhatATaskThrowsAndGoesOn) {
  test::LogCapture log;
  ThreadPool pool(ThreadPoolOptions().threads(1).name("log"));

  pool.execute([] { throw std::runtime_error("oops"); });
  pool.execute([] { throw 1; });  // NOLINT: whatever users throw
  pool.submit([] {}).get();

  EXPECT_EQ(log.count(LogLevel::warn), 2U);
  EXPECT_TRUE(log.contains("a task of a thread pool threw: oops"));
  EXPECT_EQ(log.records().front().thread, "mr-log-1");
}

// C067
TEST(ThreadPoolSubmit, GivesResultAndFailureToTheFuture) {
  ThreadPool pool(2);

  Future<int> good = pool.submit([] { return 3; });
  Future<int> bad = pool.submit([]() -> int { throw std::out_of_range("index 5"); });

  EXPECT_EQ(good.get(), 3);
  EXPECT_THROW(bad.get(), std::out_of_range);
}

TEST(ThreadPoolSubmit, RunsListenersOnTheGivenExecutor) {
  QueueExecutor executor;
  ThreadPool pool(1);
  bool onExecutor = false;
  Future<int> future = pool.submit([] { return 1; }, executor);
  future.addListener([&] { onExecutor = executor.inEventLoop(); });

  pool.shutdownGracefully().get();
  EXPECT_FALSE(onExecutor);
  executor.run();

  EXPECT_TRUE(onExecutor);
}

TEST(ThreadPoolSubmit, RunsListenersOnThePoolsThreadByDefault) {
  std::atomic<bool> onPool{false};
  Gate gate;
  ThreadPool pool(1);
  gate.occupy(pool);
  Future<int> future = pool.submit([] { return 1; });
  future.addListener([&] { onPool = pool.inEventLoop(); });

  gate.open();
  pool.shutdownGracefully().get();

  EXPECT_TRUE(onPool.load());
}

TEST(ThreadPoolSubmit, DoesNotRunWhatWasCancelledBeforeItsTurn) {
  std::atomic<bool> ran{false};
  Gate gate;
  ThreadPool pool(1);
  gate.occupy(pool);
  Future<void> future = pool.submit([&] { ran = true; });

  EXPECT_TRUE(future.cancel());
  gate.open();
  pool.shutdownGracefully().get();

  EXPECT_FALSE(ran.load());
}

TEST(ThreadPoolSubmit, GivesFuturesThatOutliveThePool) {
  Future<int> future;
  {
    ThreadPool pool(1);
    future = pool.submit([] { return 9; });
  }
  EXPECT_EQ(future.get(), 9);
}

TEST(ThreadPool, RunsTheListenersOfPromisesMadeOnIt) {
  std::atomic<bool> inside{false};
  ThreadPool pool(1);
  {
    Promise<int> promise(pool);
    promise.future().addListener([&] { inside = pool.inEventLoop(); });
    promise.setSuccess(1);
  }
  // The listener's handle is dropped when it has run, before the task behind it.
  pool.submit([] {}).get();

  EXPECT_TRUE(inside.load());
}

TEST(ThreadPool, GoesOnWithTheThreadsItHas) {
  test::LogCapture log;
  test::FaultScript script;
  Gate gate;
  ThreadPool pool(ThreadPoolOptions().threads(3).name("few"));
  gate.occupy(pool);
  script.fail("pthread_create", 2, EAGAIN, 2);

  Future<int> second = pool.submit([] { return 2; });
  Future<int> third = pool.submit([] { return 3; });

  EXPECT_EQ(pool.threads(), 1);
  EXPECT_EQ(script.faults(), 2U);
  EXPECT_EQ(log.count(LogLevel::warn), 1U);  // said once, not for each task
  EXPECT_TRUE(
      log.contains("the pool \"few\" goes on with 1 of 3 threads: pthread_create mr-few-2"));
  gate.open();
  EXPECT_EQ(second.get() + third.get(), 5);
}

TEST(ThreadPool, RefusesTheTaskWhenItHasNoThreadAtAll) {
  test::FaultScript script;
  ThreadPool pool(ThreadPoolOptions().threads(1).name("none"));
  const auto token = std::make_shared<int>(1);
  script.fail("pthread_create", 1, EAGAIN, 2);

  try {
    pool.execute([token] {});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Exception& e) {
    EXPECT_EQ(e.error().errnoValue(), EAGAIN);
    EXPECT_EQ(e.error().operation(), "pthread_create");
  }
  EXPECT_FALSE(pool.tryExecute([token] {}));
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_EQ(pool.pendingTasks(), 0U);

  EXPECT_EQ(pool.submit([] { return 4; }).get(), 4);  // a later one may be lucky
}

}  // namespace
}  // namespace millrace
