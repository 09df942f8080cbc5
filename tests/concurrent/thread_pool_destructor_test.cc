// SPDX-License-Identifier: Apache-2.0
#include "support/log_capture.h"

#include <millrace/concurrent/global_executor.h>
#include <millrace/concurrent/thread_pool.h>

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;

TEST(ThreadPoolDestructor, WaitsForTheTasks) {
  std::atomic<int> ran{0};
  {
    ThreadPool pool(2);
    for (int i = 0; i < 100; ++i) pool.execute([&] { ++ran; });
  }
  EXPECT_EQ(ran.load(), 100);
}

TEST(ThreadPoolDestructor, DoesNotWaitOnAThreadOfThePool) {
  std::atomic<int> ran{0};
  std::latch ready(1);
  auto pool = std::make_unique<ThreadPool>(1);
  ThreadPool& alias = *pool;
  Future<ShutdownReport> end = alias.terminationFuture();
  alias.execute([&] {
    ready.wait();
    pool.reset();
    ++ran;
  });
  alias.execute([&] { ++ran; });

  ready.count_down();
  end.get();

  EXPECT_EQ(ran.load(), 2);
}

TEST(ThreadPoolDestructor, DoesNotWaitOnTheGlobalExecutor) {
  auto pool = std::make_unique<ThreadPool>(1);
  Future<ShutdownReport> end = pool->terminationFuture();
  pool->submit([] {}).get();

  globalExecutor().execute([&] { pool.reset(); });

  end.get();
  awaitGlobalExecutor();
  EXPECT_EQ(pool, nullptr);
}

TEST(ThreadPoolDestructor, LetsAStuckThreadGoAndSaysSo) {
  test::LogCapture log;
  std::latch started(1);
  std::latch goOn(1);
  Future<ShutdownReport> end;
  {
    ThreadPool pool(ThreadPoolOptions().threads(1).name("stuck"));
    pool.execute([&] {
      started.count_down();
      goOn.wait();
    });
    started.wait();
    pool.execute([] {});
    end = pool.shutdownGracefully(0s, 0s);
  }  // waits for its one second in vain

  EXPECT_TRUE(
      log.contains("the pool \"stuck\" dies before its tasks: 1 threads (mr-stuck-…) are stuck and "
                   "1 tasks wait"));
  goOn.count_down();
  EXPECT_TRUE(end.get().timedOut);
  EXPECT_EQ(end.get().tasksRunAfterTimeout, 1U);
}

TEST(ThreadPoolDestructor, ForgetsThePoolInAForkedChild) {
  auto pool = std::make_unique<ThreadPool>(1);
  pool->submit([] {}).get();

  const pid_t child = ::fork();
  if (child == 0) {
    pool.reset();  // its thread is not here: waiting would take for ever
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);

  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(pool->submit([] { return 1; }).get(), 1);
}

TEST(ThreadPoolDestructorDeathTest, StopsTheProgramWhenAPromiseMadeOnItOutlivesIt) {
  EXPECT_DEATH(
      {
        Promise<int> promise;
        ThreadPool pool(1);
        promise = Promise<int>(pool);
      },
      "a Promise or Future made on a ThreadPool outlived it");
}

}  // namespace
}  // namespace millrace
