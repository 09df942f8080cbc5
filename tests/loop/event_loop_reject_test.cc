// SPDX-License-Identifier: Apache-2.0
// Bad use, and more work than a loop takes: the exact exception, and what its text says.
#include "support/loop_test.h"

#include <millrace/base/error.h>
#include <millrace/concurrent/rejection.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Held;
using test::textOf;
using testing::AllOf;
using testing::HasSubstr;

// C059
TEST(EventLoopReject, AnEmptyTaskIsAnErrorAndChangesNothing) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"execute()", [&] { loop.execute(nullptr); }},
      {"execute()", [&] { loop.execute(std::function<void()>()); }},
      {"tryExecute()", [&] { loop.tryExecute(Task()); }},
      {"lazyExecute()", [&] { loop.lazyExecute(nullptr); }},
      {"schedule()", [&] { static_cast<void>(loop.schedule(1s, nullptr)); }},
      {"scheduleAtFixedRate()",
       [&] { static_cast<void>(loop.scheduleAtFixedRate(1s, 1s, nullptr)); }},
      {"scheduleWithFixedDelay()",
       [&] { static_cast<void>(loop.scheduleWithFixedDelay(1s, 1s, nullptr)); }},
      {"executeAfterEventLoopIteration()", [&] { loop.executeAfterEventLoopIteration(nullptr); }},
      {"beforeShutdown()", [&] { loop.beforeShutdown(nullptr); }},
      {"addShutdownHook()", [&] { loop.addShutdownHook(nullptr); }}};

  for (const auto& [name, call] : calls) {
    EXPECT_THAT(textOf<std::invalid_argument>(call),
                AllOf(testing::StartsWith(name), HasSubstr("empty"), HasSubstr("callable")));
  }

  EXPECT_EQ(loop.pendingTasks(), 0U);
  EXPECT_EQ(loop.state(), EventLoop::State::notStarted);
}

// C057 C060
TEST(EventLoopReject, TheSeventeenthTaskIsRejectedWhereTheCapacityIsTheLeast) {
  EventLoopGroup group(LoopOptions().loops(1).maxPendingTasks(1));  // the floor is 16
  EventLoop& loop = group.next();
  Held held(loop);
  int ran = 0;

  for (int i = 0; i < 16; ++i) loop.execute([&] { ++ran; });
  EXPECT_THAT(textOf<RejectedExecution>([&] { loop.execute([&] { ++ran; }); }),
              AllOf(HasSubstr("execute()"), HasSubstr("capacity"), HasSubstr("maxPendingTasks"),
                    HasSubstr("rejectAfterBackOff()")));
  EXPECT_FALSE(loop.tryExecute([&] { ++ran; }));
  EXPECT_THROW(loop.lazyExecute([&] { ++ran; }), RejectedExecution);
  EXPECT_THROW(loop.executeAfterEventLoopIteration([&] { ++ran; }), RejectedExecution);
  EXPECT_THROW(static_cast<void>(loop.submit([&] { ++ran; })), RejectedExecution);
  EXPECT_EQ(loop.pendingTasks(), 16U);

  held.release();
  while (loop.pendingTasks() != 0) std::this_thread::yield();
  loop.submit([] {}).get();  // there is room again
  EXPECT_EQ(ran, 16);
}

// C057
TEST(EventLoopReject, CapacitiesAboveTheFloorAreKeptAndTheDefaultHasNoLimit) {
  EXPECT_EQ(LoopOptions().maxPendingTasks(0).values().maxPendingTasks, 16U);
  EXPECT_EQ(LoopOptions().maxPendingTasks(17).values().maxPendingTasks, 17U);
  EventLoopGroup group(1);
  Held held(group.next());

  for (int i = 0; i < 100'000; ++i) group.next().execute([] {});

  EXPECT_EQ(group.next().pendingTasks(), 100'000U);
}

// C060: the framework's own nodes are always taken
TEST(EventLoopReject, AFullLoopStillTakesTimersAndItsShutdown) {
  EventLoopGroup group(LoopOptions().loops(1).maxPendingTasks(16));
  EventLoop& loop = group.next();
  Future<ShutdownReport> end;
  {
    Held held(loop);
    while (loop.tryExecute([] {})) {
    }
    static_cast<void>(loop.schedule(1h, [] {}));
    end = loop.shutdownGracefully();
  }

  EXPECT_EQ(end.get().timersCancelled, 1U);
}

// C060: in the loop itself
TEST(EventLoopReject, ALoopThatFloodsItselfIsRejectedToo) {
  EventLoopGroup group(LoopOptions().loops(1).maxPendingTasks(16));
  EventLoop& loop = group.next();

  const int taken =
      loop.submit([&] {
            int count = 0;
            while (loop.tryExecute([] {})) ++count;
            EXPECT_THROW(loop.execute([] {}), RejectedExecution);
            EXPECT_THROW(loop.executeAfterEventLoopIteration([] {}), RejectedExecution);
            return count;
          })
          .get();

  EXPECT_EQ(taken, 16);
}

struct TellsWhereItDies {
  std::shared_ptr<std::int64_t> where;
  explicit TellsWhereItDies(std::shared_ptr<std::int64_t> out) : where(std::move(out)) {}
  TellsWhereItDies(TellsWhereItDies&&) noexcept = default;
  ~TellsWhereItDies() {
    if (where) *where = threadId();
  }
};

// C060
TEST(EventLoopReject, ARejectedTaskDiesOnTheCallersThread) {
  EventLoopGroup group(LoopOptions().loops(1).maxPendingTasks(16));
  EventLoop& loop = group.next();
  Held held(loop);
  while (loop.tryExecute([] {})) {
  }
  auto where = std::make_shared<std::int64_t>(0);

  EXPECT_FALSE(loop.tryExecute([guard = TellsWhereItDies(where)] {}));
  EXPECT_EQ(std::exchange(*where, 0), threadId());
  EXPECT_THROW(loop.execute([guard = TellsWhereItDies(where)] {}), RejectedExecution);
  EXPECT_EQ(*where, threadId());
}

// C009 C060
TEST(EventLoopReject, AHandlerOfOnesOwnGetsTheTaskAndTheLoop) {
  std::vector<EventExecutor*> asked;
  std::vector<Task> kept;
  EventLoopGroup group(LoopOptions().loops(2).maxPendingTasks(16).rejection(
      [&](Task&& task, EventExecutor& executor) {
        asked.push_back(&executor);
        kept.push_back(std::move(task));
      }));
  int ran = 0;

  for (EventLoop& loop : group) {
    Held held(loop);
    while (loop.tryExecute([] {})) {
    }
    loop.execute([&] { ++ran; });
  }

  EXPECT_EQ(asked, (std::vector<EventExecutor*>{&*group.begin(), &*std::next(group.begin())}));
  for (Task& task : kept) task();
  EXPECT_EQ(ran, 2);
}

// C060
TEST(EventLoopReject, BackOffWaitsForRoomFromOutside) {
  EventLoopGroup group(
      LoopOptions().loops(1).maxPendingTasks(16).rejection(rejectAfterBackOff(1'000'000, 1us)));
  EventLoop& loop = group.next();
  auto held = std::make_unique<Held>(loop);
  while (loop.tryExecute([] {})) {
  }
  std::atomic<bool> ran{false};

  std::thread poster([&] { loop.execute([&] { ran = true; }); });  // tries until there is room
  held->release();
  poster.join();
  while (!ran.load()) loop.submit([] {}).get();

  const std::string inside = loop.submit([&] {
                                   while (loop.tryExecute([] {})) {
                                   }
                                   return textOf<RejectedExecution>([&] { loop.execute([] {}); });
                                 })
                                 .get();
  EXPECT_THAT(inside, HasSubstr("capacity"));  // at once: waiting there would be for ever
}

// C061, behaviour 3.4: 1 and 2
TEST(EventLoopReject, NothingIsTakenAfterTheEnd) {
  for (const bool started : {false, true}) {
    EventLoopGroup group(1);
    EventLoop& loop = group.next();
    if (started) loop.submit([] {}).get();
    loop.shutdownGracefully().get();
    bool ran = false;

    EXPECT_THAT(textOf<RejectedExecution>([&] { loop.execute([&] { ran = true; }); }),
                AllOf(HasSubstr("execute()"), HasSubstr("shut down"), HasSubstr("tryExecute()")));
    EXPECT_FALSE(loop.tryExecute([&] { ran = true; }));
    EXPECT_THROW(loop.lazyExecute([&] { ran = true; }), RejectedExecution);
    EXPECT_THROW(static_cast<void>(loop.submit([&] { ran = true; })), RejectedExecution);
    EXPECT_THROW(loop.executeAfterEventLoopIteration([&] { ran = true; }), RejectedExecution);
    EXPECT_THAT(textOf<RejectedExecution>(
                    [&] { static_cast<void>(loop.schedule(0s, [&] { ran = true; })); }),
                AllOf(HasSubstr("schedule()"), HasSubstr("shut down")));
    EXPECT_FALSE(loop.beforeShutdown([&] { ran = true; }));
    EXPECT_EQ(loop.addShutdownHook([&] { ran = true; }), 0U);
    EXPECT_FALSE(ran);
    EXPECT_EQ(loop.pendingTasks(), 0U);
  }
}

// C062 I1: each task is run or rejected, whatever the moment
TEST(EventLoopReject, EveryTaskIsEitherRunOrRejectedWhenTheLoopEnds) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 40; ++round) {
    EventLoopGroup group(1, round % 2 == 0 ? io::epoll() : io::parking());
    EventLoop& loop = group.next();
    std::atomic<int> accepted{0};
    int ran = 0;  // of the loop's thread alone
    std::latch started(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        started.count_down();
        while (loop.tryExecute([&ran] { ++ran; })) {
          ++accepted;
          if (loop.pendingTasks() > 100) std::this_thread::yield();
        }
      });
    }
    started.wait();
    loop.shutdownGracefully(0s, 1ms).get();
    for (std::thread& thread : threads) thread.join();

    EXPECT_EQ(ran, accepted.load());
    EXPECT_EQ(loop.pendingTasks(), 0U);
  }
}

// C062 I1, behaviour 3.1: 13: at the last instant, from the end's own callbacks
TEST(EventLoopReject, ATaskOfTheLastInstantIsRunOrRejectedToo) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  int accepted = 0;
  int ran = 0;
  std::function<void()> again = [&] {
    ++ran;
    if (loop.tryExecute([&] { again(); })) ++accepted;
  };
  loop.addShutdownHook([&] {
    if (loop.tryExecute([&] { again(); })) ++accepted;
  });

  loop.shutdownGracefully().get();

  EXPECT_GE(ran, 1);
  EXPECT_EQ(ran, accepted);
}

// behaviour 3.2: waiting on the own loop
TEST(EventLoopReject, WaitingOnTheOwnLoopThrowsAtOnce) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();

  const std::vector<std::string> texts =
      loop.submit([&] {
            Future<int> mine = loop.submit([] { return 1; });
            return std::vector<std::string>{
                textOf<BlockingOperation>([&] { mine.get(); }),
                textOf<BlockingOperation>([&] { mine.sync(); }),
                textOf<BlockingOperation>([&] { mine.await(Deadline::after(1h)); })};
          })
          .get();
  const std::string end =
      loop.submit([&] {
            return textOf<BlockingOperation>([&] { loop.awaitTermination(Deadline::never()); });
          })
          .get();

  for (const std::string& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("own executor"), HasSubstr("addListener()")));
  }
  EXPECT_THAT(end, AllOf(HasSubstr("awaitTermination()"), HasSubstr("terminationFuture()")));
}

}  // namespace
}  // namespace millrace
