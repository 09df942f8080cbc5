// SPDX-License-Identifier: Apache-2.0
#include "support/census.h"
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/base/error.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
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

class HandDrivenOn : public test::EngineTest {
 protected:
  Ref<EventLoop> loop = handDriven();
};

INSTANTIATE_TEST_SUITE_P(Engines, HandDrivenOn, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

// behaviour 3.5: ManualIoEventLoop
TEST_P(HandDrivenOn, ReturnsHowMuchItRan) {
  test::FaultScript calls;
  EXPECT_EQ(loop->runNow(), 0U);
  loop->execute([] {});
  EXPECT_EQ(loop->runNow(), 1U);
  for (int i = 0; i < 10; ++i) loop->execute([] {});
  EXPECT_EQ(loop->runNow(), 10U);
  EXPECT_EQ(loop->runNow(), 0U);

  EXPECT_EQ(calls.count("pthread_create"), 0U);
  EXPECT_EQ(loop->metrics().tasks, 11U);
}

// behaviour 3.5: blocks at least that long when idle
TEST_P(HandDrivenOn, WaitsUntilItsDeadlineWhenThereIsNothingToDo) {
  const std::int64_t before = Clock::real().nanos();

  EXPECT_EQ(loop->run(Deadline::after(10ms)), 0U);

  EXPECT_GE(Clock::real().nanos() - before, 10'000'000);
}

// I3, behaviour 3.5: and returns early on work
TEST_P(HandDrivenOn, EndsItsWaitWhenATaskComes) {
  loop->runNow();
  for (int i = 0; i < 100; ++i) {
    std::thread other([&] { loop->execute([] {}); });
    std::size_t ran = 0;
    while (ran == 0) ran = loop->run(Deadline::never());
    other.join();

    EXPECT_EQ(ran, 1U);
  }
}

// behaviour 3.5: shutdown from another thread wakes
TEST_P(HandDrivenOn, EndsItsWaitWhenItIsShutDownFromElsewhere) {
  loop->runNow();
  std::thread other([&] { loop->shutdownGracefully().get(); });
  while (!loop->isTerminated()) loop->run(Deadline::never());
  other.join();

  EXPECT_EQ(loop->runNow(), 0U);
  EXPECT_EQ(loop->run(Deadline::never()), 0U);  // does not wait for anything any more
  EXPECT_THROW(loop->execute([] {}), RejectedExecution);
}

// I6, behaviour 3.5: the wrong thread
TEST(HandDriven, BelongsToTheThreadThatRanItFirst) {
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().name("gui"));
  loop->runNow();
  std::string text;
  std::thread([&] { text = textOf<std::logic_error>([&] { loop->runNow(); }); }).join();

  EXPECT_THAT(text, AllOf(HasSubstr("mr-gui-"), HasSubstr("second thread"),
                          HasSubstr("called run() first")));
  EXPECT_EQ(loop->runNow(), 0U);
}

// I6, behaviour 3.5: set once, by the first of several
TEST(HandDriven, LetsOnlyOneOfManyThreadsDriveIt) {
  Ref<EventLoop> loop = EventLoop::handDriven();
  std::atomic<int> driving{0};
  std::vector<std::thread> threads;
  std::latch start(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      try {
        loop->runNow();
        ++driving;
      } catch (const std::logic_error&) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(driving.load(), 1);
}

TEST(HandDriven, IsWhatALoopWithAThreadIsNot) {
  EventLoopGroup group(1);

  EXPECT_THAT(textOf<std::logic_error>([&] { group.next().runNow(); }),
              AllOf(HasSubstr(group.next().name()), HasSubstr("a thread of its own"),
                    HasSubstr("EventLoop::handDriven()")));
  EXPECT_EQ(group.next().state(), EventLoop::State::notStarted);
}

TEST(HandDriven, IsNotRunFromWithinItsOwnTurn) {
  Ref<EventLoop> loop = EventLoop::handDriven();
  std::string text;
  loop->execute([&] { text = textOf<std::logic_error>([&] { loop->runNow(); }); });

  loop->runNow();

  EXPECT_THAT(text, HasSubstr("from within its own turn"));
}

// C008, behaviour 3.5: ManualIoEventLoop and ThreadExecutorMap
TEST(HandDriven, IsTheCurrentLoopOnlyWhileItRunsAndGivesTheOldOneBack) {
  Ref<EventLoop> outer = EventLoop::handDriven();
  Ref<EventLoop> inner = EventLoop::handDriven();
  std::vector<EventLoop*> seen;
  const auto look = [&] { seen.push_back(EventLoop::current()); };
  inner->execute(look);
  outer->execute([&] {
    look();
    EXPECT_EQ(inner->runNow(), 1U);  // nested, as a GUI's modal loop would be
    EXPECT_FALSE(inner->inEventLoop());
    look();
  });

  EXPECT_EQ(EventLoop::current(), nullptr);
  EXPECT_EQ(outer->runNow(), 1U);

  EXPECT_EQ(seen, (std::vector<EventLoop*>{outer.get(), inner.get(), outer.get()}));
  EXPECT_EQ(EventLoop::current(), nullptr);
  EXPECT_FALSE(outer->inEventLoop());
}

// behaviour 3.5: mock ticker
TEST(HandDriven, FollowsAClockThatIsMovedByHand) {
  ManualClock clock;
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().clock(clock));
  int ran = 0;
  ScheduledFuture timer = loop->schedule(60s, [&] { ++ran; });
  loop->runNow();

  clock.advance(59s);
  loop->runNow();
  EXPECT_EQ(ran, 0);
  clock.advance(11s);
  loop->runNow();

  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(timer.isDone());
}

// C003: named, without a group
TEST(HandDriven, HasANameAndNoGroup) {
  Ref<EventLoop> one = EventLoop::handDriven();
  Ref<EventLoop> two = EventLoop::handDriven();

  EXPECT_EQ(one->name().substr(0, 8), "mr-hand-");
  EXPECT_NE(one->name(), two->name());
  EXPECT_EQ(one->parent(), nullptr);
  EXPECT_EQ(one->threadId(), 0);
  one->runNow();
  EXPECT_EQ(one->threadId(), threadId());
}

// C046: nobody starts a thread for it
TEST(HandDriven, TakesTasksBeforeAnybodyDrivesIt) {
  test::FaultScript calls;
  calls.failAll("pthread_create", EAGAIN);
  Ref<EventLoop> loop = EventLoop::handDriven();
  std::vector<int> order;
  loop->execute([&] { order.push_back(1); });
  loop->lazyExecute([&] { order.push_back(2); });
  static_cast<void>(loop->schedule(0s, [&] { order.push_back(3); }));

  EXPECT_EQ(loop->state(), EventLoop::State::notStarted);
  while (order.size() < 3) loop->run(Deadline::never());

  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(loop->state(), EventLoop::State::started);
}

// C233
TEST(HandDriven, EndsOnTheCallersThreadIfItNeverRan) {
  Ref<EventLoop> loop = EventLoop::handDriven();
  int ran = 0;
  loop->execute([&] { ++ran; });
  loop->addShutdownHook([&] { ++ran; });

  EXPECT_TRUE(loop->shutdownGracefully().isDone());

  EXPECT_EQ(ran, 2);
  EXPECT_EQ(loop->runNow(), 0U);
}

// C228 I1 I8: dropped without a word, at any moment of its life
TEST(HandDriven, EndsProperlyWhenItsLastHandleIsDropped) {
  const test::Census before = test::Census::take();
  for (const bool driven : {false, true}) {
    auto token = std::make_shared<int>(0);
    Ref<EventLoop> loop = EventLoop::handDriven();
    Future<ShutdownReport> end = loop->terminationFuture();
    if (driven) loop->runNow();
    loop->execute([token] { ++*token; });
    loop->addShutdownHook([token] { ++*token; });
    ScheduledFuture timer = loop->schedule(1h, [token] { *token += 100; });

    loop = nullptr;

    EXPECT_TRUE(end.isSuccess());
    EXPECT_EQ(*token, 2);
    EXPECT_TRUE(timer.isCancelled());
    EXPECT_EQ(token.use_count(), 1);
  }
  EXPECT_EQ(test::leaksBetween(before, test::Census::take()), std::vector<std::string>{});
}

TEST(HandDriven, CanBeMovedToTheThreadThatWillDriveIt) {
  Ref<EventLoop> loop = EventLoop::handDriven();
  std::int64_t ranOn = 0;
  std::int64_t driver = 0;
  std::thread([&] {
    driver = threadId();
    loop->execute([&] { ranOn = threadId(); });
    loop->runNow();
    static_cast<void>(loop->shutdownGracefully());
    loop->runNow();
  }).join();

  EXPECT_EQ(ranOn, driver);
  EXPECT_TRUE(loop->isTerminated());
}

TEST(HandDriven, SaysWhyItCannotBeMade) {
  test::FaultScript calls;
  calls.fail("epoll_create1", 1, EMFILE);

  EXPECT_THAT(textOf<Exception>([] { EventLoop::handDriven(LoopOptions().io(io::epoll())); }),
              AllOf(HasSubstr("epoll_create1"), HasSubstr("Too many open files")));
}

// C226
TEST(HandDriven, EndsIfItsEngineCannotRun) {
  test::LogCapture log("off");
  auto probe = EngineProbe::make();
  probe->onAttach = [] { return Result<void>(Error::fromErrno(ENOMEM, "attach")); };
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(probe->factory()));
  int ran = 0;
  loop->execute([&] { ++ran; });

  loop->runNow();

  EXPECT_TRUE(loop->isTerminated());
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(loop->terminationFuture().cause().errnoValue(), ENOMEM);
}

}  // namespace
}  // namespace millrace
