// SPDX-License-Identifier: Apache-2.0
// Tail tasks: run when the other tasks of a turn have run.
#include "support/engines.h"
#include "support/loop_test.h"
#include "support/scripted_engine.h"

#include <millrace/base/error.h>

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

namespace millrace {
namespace {

using test::fromOutside;
using test::ScriptedLoop;

// C155 I2: behaviour 3.4, number 17
TEST(TailTasks, RunAfterTheOtherTasksOfTheTurnInOrder) {
  ScriptedLoop loop;
  std::string order;
  loop->execute([&] {
    order += 'a';
    loop->executeAfterEventLoopIteration([&] { order += 'x'; });
    loop->executeAfterEventLoopIteration([&] { order += 'y'; });
  });
  loop->execute([&] { order += 'b'; });
  loop->execute([&] { order += 'c'; });

  loop->runNow();

  EXPECT_EQ(order, "abcxy");
}

// C155
TEST(TailTasks, RunWithoutOtherTasks) {
  ScriptedLoop loop;
  bool ran = false;
  fromOutside([&] { loop->executeAfterEventLoopIteration([&] { ran = true; }); });

  EXPECT_EQ(loop->runNow(), 1U);

  EXPECT_TRUE(ran);
}

// C155: Netty would go round for ever inside one turn
TEST(TailTasks, AddedByATailTaskWaitForTheNextTurn) {
  int ran = 0;
  std::function<void()> again;  // runs at the loop's end, too
  ScriptedLoop loop;
  again = [&] {
    ++ran;
    loop->executeAfterEventLoopIteration([&] { again(); });
  };
  loop->executeAfterEventLoopIteration([&] { again(); });

  for (int i = 1; i <= 5; ++i) {
    loop.turn();
    EXPECT_EQ(ran, i);
  }

  EXPECT_EQ(loop.script->blockingWaits(), 0U);
  EXPECT_EQ(loop.script->waits.size(), 5U);
}

// C155
TEST(TailTasks, AreCountedAmongThePendingOnes) {
  ScriptedLoop loop;
  std::vector<std::size_t> pending;
  loop->executeAfterEventLoopIteration([] {});
  pending.push_back(loop->pendingTasks());
  loop->execute([&] {
    loop->executeAfterEventLoopIteration([&] { pending.push_back(loop->pendingTasks()); });
    pending.push_back(loop->pendingTasks());
  });
  pending.push_back(loop->pendingTasks());

  loop->runNow();

  // Two wait; then the running one is gone, a third has come; while the last runs none is left.
  EXPECT_EQ(pending, (std::vector<std::size_t>{1, 2, 2, 0}));
  EXPECT_EQ(loop->pendingTasks(), 0U);
}

// C155
TEST(TailTasks, CountAgainstTheCapacity) {
  ScriptedLoop loop(LoopOptions().maxPendingTasks(16));
  for (int i = 0; i < 16; ++i) loop->executeAfterEventLoopIteration([] {});

  EXPECT_THROW(loop->executeAfterEventLoopIteration([] {}), RejectedExecution);
  EXPECT_THROW(loop->execute([] {}), RejectedExecution);
  EXPECT_EQ(loop->runNow(), 16U);

  for (int i = 0; i < 16; ++i) loop->execute([] {});
  EXPECT_EQ(loop->runNow(), 16U);
}

// C155
TEST(TailTasks, DoNotStartALoop) {
  std::atomic<bool> ran{false};
  EventLoopGroup group(1);
  EventLoop& loop = *group.begin();

  loop.executeAfterEventLoopIteration([&] { ran = true; });
  EXPECT_EQ(loop.state(), EventLoop::State::notStarted);
  EXPECT_EQ(loop.threadId(), 0);
  loop.submit([] {}).sync();

  EXPECT_TRUE(test::eventually([&] { return ran.load(); }));
}

// C155: and are not lost if it never starts
TEST(TailTasks, RunWhenALoopEndsThatNeverStarted) {
  bool ran = false;
  {
    EventLoopGroup group(1);
    group.begin()->executeAfterEventLoopIteration([&] { ran = true; });
  }
  EXPECT_TRUE(ran);
}

// C155: 1000 of them to a loop that goes to sleep all the time
TEST(TailTasks, WakeASleepingLoop) {
  std::atomic<int> ran{0};
  EventLoopGroup group(1);
  EventLoop& loop = *group.begin();
  loop.submit([] {}).sync();

  for (int i = 1; i <= 200; ++i) {
    loop.executeAfterEventLoopIteration([&] { ++ran; });
    ASSERT_TRUE(test::eventually([&] { return ran == i; }));
  }
}

// C156: behaviour 3.4, number 18
TEST(TailTasks, CanBeRemovedBeforeTheyRun) {
  ScriptedLoop loop;
  std::string order;
  const TailTask first = loop->executeAfterEventLoopIteration([&] { order += '1'; });
  const TailTask second = loop->executeAfterEventLoopIteration([&] { order += '2'; });

  EXPECT_TRUE(first.remove());
  EXPECT_FALSE(first.remove());
  loop->runNow();

  EXPECT_EQ(order, "2");
  EXPECT_FALSE(second.remove());
  EXPECT_FALSE(TailTask().remove());
}

// C156
TEST(TailTasks, AreDestroyedAtOnceWhenRemoved) {
  ScriptedLoop loop;
  auto token = std::make_shared<int>(0);
  const TailTask task = loop->executeAfterEventLoopIteration([token] {});

  fromOutside([&] { EXPECT_TRUE(task.remove()); });

  EXPECT_EQ(token.use_count(), 1);
  loop->runNow();
  EXPECT_EQ(loop->pendingTasks(), 0U);
}

// C156: in the very turn
TEST(TailTasks, CanBeRemovedByAnEarlierOne) {
  ScriptedLoop loop;
  int ran = 0;
  TailTask second;
  loop->executeAfterEventLoopIteration([&] { EXPECT_TRUE(second.remove()); });
  second = loop->executeAfterEventLoopIteration([&] { ++ran; });

  loop->runNow();

  EXPECT_EQ(ran, 0);
}

// C066 C155
TEST(TailTasks, ThatThrowHarmNobody) {
  ScriptedLoop loop;
  int ran = 0;
  loop->executeAfterEventLoopIteration([] { throw std::runtime_error("tail"); });
  loop->executeAfterEventLoopIteration([&] { ++ran; });

  loop->runNow();

  EXPECT_EQ(ran, 1);
  EXPECT_EQ(loop->metrics().failures, 1U);
}

// C059 C061
TEST(TailTasks, AreRefusedWhenEmptyOrAfterTheEnd) {
  ScriptedLoop loop;
  EXPECT_THROW(loop->executeAfterEventLoopIteration({}), std::invalid_argument);
  static_cast<void>(loop->shutdownGracefully());
  loop->runNow();
  ASSERT_TRUE(loop->isTerminated());

  EXPECT_THROW(loop->executeAfterEventLoopIteration([] {}), RejectedExecution);
}

// C156: refused, then run by the back-off handler as an ordinary task
TEST(TailTaskRejection, RemoveTellsTheTruthOfARefusedTask) {
  EventLoopGroup group(LoopOptions().loops(1).maxPendingTasks(16).rejection(
      rejectAfterBackOff(1'000'000, std::chrono::microseconds(100))));
  EventLoop& loop = group.next();
  test::Held held(loop);
  while (loop.tryExecute([] {})) {
  }
  std::atomic<bool> ran{false};
  std::thread releaser([&held] { held.release(); });
  TailTask task = loop.executeAfterEventLoopIteration([&ran] { ran = true; });
  releaser.join();
  while (!ran) std::this_thread::yield();
  EXPECT_FALSE(task.remove());
}

}  // namespace
}  // namespace millrace
