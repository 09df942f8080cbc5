// SPDX-License-Identifier: Apache-2.0
// A loop that is full refuses users' tasks, never what must not be refused.
#include "support/engines.h"
#include "support/loop_test.h"

#include <millrace/sys/events.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::Held;
using test::Pipe;
using testing::HasSubstr;

/// A loop whose capacity is used up while its thread is held.
class FullLoop : public testing::Test {
 protected:
  void fill() {
    held.emplace(loop);
    while (loop.tryExecute([] {})) {
    }
  }
  EventLoopGroup group{LoopOptions().loops(1).io(io::epoll()).maxPendingTasks(16)};
  EventLoop& loop = group.next();
  std::optional<Held> held;
};

TEST_F(FullLoop, RunsTheCallbacksOfItsFutures) {
  Promise<int> promise(loop);
  std::atomic<int> where{0};
  promise.future().addListener([&] { where = loop.inEventLoop() ? 1 : 2; });
  fill();

  promise.trySuccess(1);
  EXPECT_EQ(where.load(), 0);  // not on another thread meanwhile
  held->release();

  while (where.load() == 0) std::this_thread::yield();
  EXPECT_EQ(where.load(), 1);
}

TEST_F(FullLoop, EndsAWatch) {
  const Pipe pipe;
  std::atomic<int> calls{0};
  Watch watch = loop.watch(pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; }).get();
  fill();

  watch.unwatch();
  held->release();
  while (loop.metrics().registrations != 0) std::this_thread::yield();
  pipe.put();
  loop.submit([] {}).sync();

  EXPECT_EQ(calls.load(), 0);
}

TEST_F(FullLoop, AnswersADump) {
  fill();
  std::thread releaser([this] { held->release(); });
  const std::string text = loop.dump();
  releaser.join();
  EXPECT_THAT(text, testing::Not(HasSubstr("rejected")));
  while (loop.pendingTasks() != 0) std::this_thread::yield();
  EXPECT_THAT(loop.dump(), testing::Not(HasSubstr("does not answer")));
}

// C154
TEST(EventLoopOverload, TimersThatAreAlwaysDueDoNotKeepPostsFromRunning) {
  struct Chain {
    EventLoop& loop;
    std::atomic<bool>& stop;
    void again() {
      if (!stop.load(std::memory_order_relaxed))
        loop.schedule(Duration::zero(), [this] { again(); });
    }
  };
  std::atomic<bool> stop{false};
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < 200; ++i) chains.push_back(std::make_unique<Chain>(Chain{loop, stop}));
  loop.submit([&] {
        for (auto& chain : chains) chain->again();
      })
      .sync();

  for (int i = 0; i < 10; ++i) loop.submit([] {}).sync();
  loop.shutdownGracefully().sync();  // its request is a post, too
  stop = true;
}

TEST(EventLoopEnd, WaitingForItOnTheLoopItselfIsRefused) {
  EventLoopGroup group(1);
  EXPECT_THROW(group.submit([&] { group.next().terminationFuture().sync(); }).sync(),
               BlockingOperation);
  EXPECT_THROW(group.submit([&] { group.shutdownGracefully().sync(); }).sync(), BlockingOperation);
}

TEST(EventLoopEnd, AGroupPassesTasksOnToLoopsThatStillRun) {
  using namespace std::chrono_literals;
  EventLoopGroup group(4);
  EventLoop& started = group.next();
  started.submit([] {}).sync();
  Held held(started);  // it cannot end meanwhile
  group.shutdownGracefully(1ms, 20s);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(group.tryExecute([] {}));
  EXPECT_FALSE(group.isShutdown());
}

TEST(GroupPromise, BelongsToALoopAndOutlivesTheGroup) {
  Future<int> future;
  Promise<int> promise;
  {
    EventLoopGroup group(1);
    promise = Promise<int>(group);
    future = promise.future();
  }
  std::atomic<bool> told{false};
  future.addListener([&] { told = true; });
  promise.trySuccess(1);
  while (!told) std::this_thread::yield();
}

TEST(ScheduledFutureEnd, ItsFutureCanBeAskedForAfterTheLoopIsGone) {
  ScheduledFuture timer;
  {
    EventLoopGroup group(1);
    timer = group.schedule(std::chrono::hours(1), [] {});
  }
  EXPECT_TRUE(timer.future().isCancelled());
}

TEST(WatchEnd, ACancelledWatchDoesNotBegin) {
  const Pipe pipe;
  EventLoopGroup group(1, io::epoll());
  EventLoop& loop = group.next();
  Held held(loop);
  Future<Watch> future = loop.watch(pipe.readEnd(), kReadable, [](int, std::uint32_t) {});
  EXPECT_TRUE(future.cancel());
  held.release();
  loop.submit([] {}).sync();
  EXPECT_EQ(loop.metrics().registrations, 0U);
}

TEST(GroupEnd, ATimeoutWithoutEndIsWaitedFor) {
  std::atomic<bool> ran{false};
  {
    EventLoopGroup group(1);
    group.submit([] {}).sync();
    Held held(group.next());
    group.execute([&] { ran = true; });
    group.shutdownGracefully(Duration::zero(), Duration::max());
    held.release();
  }
  EXPECT_TRUE(ran.load());
}

TEST(HandDriven, WaitingOnItsThreadIsRefusedBetweenTurnsToo) {
  Ref<EventLoop> loop = EventLoop::handDriven();
  loop->runNow();
  Future<int> future = loop->submit([] { return 1; });
  EXPECT_THROW(future.sync(), BlockingOperation);
  while (!future.isDone()) loop->runNow();
  EXPECT_EQ(future.get(), 1);
}

TEST(HandDriven, IsNotEnteredWhileAnotherThreadEndsIt) {
  Ref<EventLoop> loop = EventLoop::handDriven();
  std::latch inside(1);
  std::latch go(1);
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  for (int i = 0; i < 2; ++i) {
    loop->execute([&] {
      most = std::max(most.load(), ++running);
      if (!inside.try_wait()) inside.count_down();
      go.wait();
      --running;
    });
  }
  std::thread ender([&] { loop->shutdownGracefully(); });
  inside.wait();
  EXPECT_EQ(loop->runNow(), 0U);
  go.count_down();
  ender.join();
  EXPECT_EQ(most.load(), 1);
  EXPECT_TRUE(loop->isTerminated());
}

}  // namespace
}  // namespace millrace
