// SPDX-License-Identifier: Apache-2.0
// Loops on threads that are not their own: a user's executor or thread factory.
#include "support/fault_script.h"
#include "support/loop_test.h"

#include <millrace/base/error.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using test::textOf;
using testing::HasSubstr;

/// Runs each job on a thread of its own and counts them.
class JobCounter final : public Executor {
 public:
  ~JobCounter() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void execute(Task task) override {
    ++jobs;
    threads_.emplace_back([run = std::move(task)]() mutable { run(); });
  }
  bool tryExecute(Task task) override {
    execute(std::move(task));
    return true;
  }
  std::atomic<int> jobs{0};

 private:
  std::vector<std::thread> threads_;
};

// C009 C023
TEST(EventLoopExecutor, AnExecutorGetsOneLongJobPerStartedLoop) {
  test::FaultScript calls;
  JobCounter executor;
  std::set<std::int64_t> where;
  {
    EventLoopGroup group(LoopOptions().loops(3).executor(executor));
    EXPECT_EQ(executor.jobs.load(), 0);
    EventLoop& first = group.next();
    EventLoop& second = group.next();

    for (int i = 0; i < 10; ++i) {
      where.insert(first.submit([] { return threadId(); }).get());
      where.insert(second.submit([] { return threadId(); }).get());
    }

    EXPECT_EQ(executor.jobs.load(), 2);
    EXPECT_EQ(calls.count("pthread_create"), 0U);  // none of ours
  }                                                // waits for both jobs
  EXPECT_EQ(where.size(), 2U);
  EXPECT_EQ(executor.jobs.load(), 2);
}

// C023 C225
TEST(EventLoopExecutor, LoopsRunOnAThreadPool) {
  ThreadPool pool(2);
  int ran = 0;
  {
    EventLoopGroup group(LoopOptions().loops(2).executor(pool));
    for (EventLoop& loop : group) {
      loop.submit([&] {
            EXPECT_TRUE(loop.inEventLoop());
            EXPECT_EQ(EventLoop::current(), &loop);
            ++ran;
          })
          .get();
    }
    group.shutdownGracefully().get();
    EXPECT_TRUE(group.isTerminated());
  }
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(pool.submit([&] { return EventLoop::current() == nullptr; }).get(), true);
}

// C047 C233, behaviour 3.1: 6
TEST(EventLoopExecutor, AnExecutorThatHasEndedRejectsEveryPost) {
  ThreadPool pool(1);
  pool.shutdownGracefully().get();
  EventLoopGroup group(LoopOptions().loops(1).executor(pool));
  EventLoop& loop = group.next();

  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(textOf<RejectedExecution>([&] { loop.execute([] {}); }), HasSubstr("shut down"));
    EXPECT_EQ(loop.state(), EventLoop::State::notStarted);
  }

  // Unlike Netty's it needs no thread to end.
  EXPECT_TRUE(loop.shutdownGracefully().isSuccess());
  EXPECT_TRUE(loop.isTerminated());
}

// C022
TEST(EventLoopExecutor, AnExecutorWithoutThreadsIsRefused) {
  EXPECT_THAT(textOf<std::invalid_argument>([] { LoopOptions().executor(immediateExecutor()); }),
              HasSubstr("executor(): the immediate executor would run the loop inside the call"));
}

// C022 C035
TEST(EventLoopExecutor, AThreadFactoryGetsTheNameAndTheBody) {
  std::vector<std::string> names;
  std::vector<std::thread> threads;
  {
    EventLoopGroup group(
        LoopOptions().loops(2).name("mine").threadFactory([&](const std::string& name, Task body) {
          names.push_back(name);
          threads.emplace_back([run = std::move(body)]() mutable { run(); });
        }));
    for (EventLoop& loop : group) loop.submit([] {}).get();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"mr-mine-1", "mr-mine-2"}));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace millrace
