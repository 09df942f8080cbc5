// SPDX-License-Identifier: Apache-2.0
// What happens at a loop's end: hooks, timers, watches, descriptors, the future.
#include "support/census.h"
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/base/attribute_map.h>
#include <millrace/base/error.h>
#include <millrace/loop/watch.h>
#include <millrace/sys/eventfd.h>
#include <millrace/sys/events.h>
#include <millrace/sys/fd.h>
#include <millrace/sys/thread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EngineProbe;
using test::eventually;
using test::Held;
using test::LogCapture;
using test::textOf;

// C228, behaviour 3.1: (a)
TEST(EventLoopEnd, HooksRunOnceEachInTheirOrderAfterTheTasks) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  std::vector<std::string> order;
  {
    Held held(loop);
    loop.beforeShutdown([&] { order.emplace_back("before"); });
    for (const char* name : {"hook 1", "hook 2", "hook 3"}) {
      EXPECT_NE(loop.addShutdownHook([&order, name] { order.emplace_back(name); }), 0U);
    }
    loop.execute([&] { order.emplace_back("task"); });
    static_cast<void>(loop.shutdownGracefully());
    loop.execute([&] { order.emplace_back("late task"); });
  }
  loop.terminationFuture().get();

  EXPECT_EQ(order, (std::vector<std::string>{"task", "before", "late task", "hook 1", "hook 2",
                                             "hook 3"}));
}

// C228, behaviour 3.1: (a)
TEST(EventLoopEnd, HooksMayAddHooksAndTasks) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  std::vector<std::string> order;
  loop.addShutdownHook([&] {
    order.emplace_back("hook");
    loop.addShutdownHook([&] { order.emplace_back("hook of a hook"); });
    loop.execute([&] { order.emplace_back("task of a hook"); });
    loop.executeAfterEventLoopIteration([&] { order.emplace_back("tail of a hook"); });
  });

  loop.shutdownGracefully().get();

  EXPECT_EQ(order, (std::vector<std::string>{"hook", "task of a hook", "tail of a hook",
                                             "hook of a hook"}));
  EXPECT_EQ(loop.addShutdownHook([] {}), 0U);
}

// I10, behaviour 3.1: (b)
TEST(EventLoopEnd, AHookThatThrowsIsLoggedAndTheOthersRun) {
  LogCapture log;
  EventLoopGroup group(LoopOptions().loops(1).name("hooks"));
  EventLoop& loop = group.next();
  int ran = 0;
  loop.beforeShutdown([] { throw std::runtime_error("bad beginning"); });
  loop.beforeShutdown([&] { ++ran; });
  loop.addShutdownHook([] { throw std::runtime_error("bad hook"); });
  loop.addShutdownHook([&] { ++ran; });
  loop.submit([] {}).get();

  EXPECT_TRUE(loop.shutdownGracefully().await());

  EXPECT_TRUE(loop.terminationFuture().isSuccess());
  EXPECT_EQ(ran, 2);
  EXPECT_TRUE(log.contains("mr-hooks-1: a beforeShutdown task threw: "));
  EXPECT_TRUE(log.contains("bad beginning"));
  EXPECT_TRUE(log.contains("mr-hooks-1: a shutdown hook threw: "));
  EXPECT_TRUE(log.contains("bad hook"));
}

TEST(EventLoopEnd, ARemovedHookDoesNotRun) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  int ran = 0;
  const std::uint64_t one = loop.addShutdownHook([&] { ran += 1; });
  const std::uint64_t ten = loop.addShutdownHook([&] { ran += 10; });

  EXPECT_NE(one, ten);
  EXPECT_TRUE(loop.removeShutdownHook(one));
  EXPECT_FALSE(loop.removeShutdownHook(one));
  EXPECT_FALSE(loop.removeShutdownHook(12345));
  loop.shutdownGracefully().get();

  EXPECT_EQ(ran, 10);
  EXPECT_FALSE(loop.removeShutdownHook(ten));
}

// behaviour 3.1: (g)
TEST(EventLoopEnd, TimersAreCancelledAndCounted) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  bool ran = false;
  std::vector<ScheduledFuture> timers;
  timers.push_back(loop.schedule(1h, [&] { ran = true; }));
  timers.push_back(loop.scheduleAtFixedRate(1h, 1h, [&] { ran = true; }));
  timers.push_back(loop.submit([&] { return loop.schedule(2h, [&] { ran = true; }); }).get());
  Future<void> end = timers[0].future();

  const ShutdownReport report = loop.shutdownGracefully().get();

  EXPECT_EQ(report.timersCancelled, 3U);
  EXPECT_TRUE(end.isCancelled());
  for (const ScheduledFuture& timer : timers) EXPECT_TRUE(timer.isCancelled());
  EXPECT_FALSE(ran);
}

// behaviour 3.1: (g): also those that come while it shuts down
TEST(EventLoopEnd, TimersOfTheQuietPeriodAreCancelledAtOnce) {
  ManualClock clock;
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().clock(clock));
  loop->runNow();
  static_cast<void>(loop->shutdownGracefully(10s, 20s));
  loop->runNow();
  ASSERT_EQ(loop->state(), EventLoop::State::shuttingDown);
  bool ran = false;

  ScheduledFuture late = loop->schedule(1s, [&] { ran = true; });
  loop->runNow();
  EXPECT_TRUE(late.isCancelled());
  clock.advance(20s);
  loop->runNow();

  EXPECT_FALSE(ran);
  EXPECT_TRUE(loop->isTerminated());
}

// C230
TEST(EventLoopEnd, WatchesEndBeforeTheLoopDoesAndAreTold) {
  for (const IoFactory& engine : {io::epoll(), io::poll()}) {
    EventLoopGroup group(1, engine);
    EventLoop& loop = group.next();
    Fd first = eventFd().orThrow();
    Fd second = eventFd().orThrow();
    std::vector<std::string> order;
    const auto onEnd = [&](const Error& why) {
      EXPECT_TRUE(why.is(Errc::closed));
      EXPECT_TRUE(loop.inEventLoop());
      EXPECT_EQ(loop.state(), EventLoop::State::shuttingDown);
      order.emplace_back("end");
    };
    for (const Fd* fd : {&first, &second}) {
      loop.watch(
              fd->get(), kReadable, [](int, std::uint32_t) {}, Trigger::level, onEnd)
          .get();
    }
    loop.addShutdownHook([&] { order.emplace_back("hook"); });

    const ShutdownReport report = loop.shutdownGracefully().get();

    EXPECT_EQ(order, (std::vector<std::string>{"end", "end", "hook"}));
    EXPECT_EQ(report.watchesClosed, 2U);
    EXPECT_EQ(loop.metrics().registrations, 0U);
    EXPECT_TRUE(isOpen(first.get()));  // the user's own
  }
}

// C229, behaviour 3.4: 19
TEST(EventLoopEnd, TheEngineIsPutAwayOnceBeforeTheFutureFires) {
  auto probe = EngineProbe::make();
  EventLoopGroup group(1, probe->factory());
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  loop.terminationFuture().addListener([&] { probe->note("future"); });
  probe->forgetSteps();

  loop.shutdownGracefully().get();
  ASSERT_TRUE(eventually([&] { return probe->count("future") == 1; }));

  std::vector<std::string> steps = probe->steps();
  std::erase_if(steps, [](const std::string& step) { return step == "look" || step == "sleep"; });
  EXPECT_EQ(steps, (std::vector<std::string>{"closeAll", "detach", "awaitWakeups", "future"}));
}

// C229 I8
TEST(EventLoopEnd, DescriptorsAreClosedWhenTheFutureFires) {
  const test::Census before = test::Census::take();
  EventLoopGroup group(3);
  EXPECT_GT(test::Census::take().descriptors.size(), before.descriptors.size());
  for (EventLoop& loop : group) loop.submit([] {}).get();
  std::map<std::int64_t, std::string> left;
  std::atomic<bool> heard{false};
  group.terminationFuture().addListener([&] {
    left = test::Census::take().descriptors;
    heard = true;
  });

  group.shutdownGracefully().get();
  ASSERT_TRUE(eventually([&] { return heard.load(); }));

  EXPECT_EQ(left, before.descriptors);
}

// C234
TEST(EventLoopEnd, IsToldOnTheGlobalExecutor) {
  EventLoopGroup group(LoopOptions().loops(1).name("gone"));
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  std::atomic<int> heard{0};
  std::atomic<bool> right{true};
  const auto listener = [&] {
    right = right && globalExecutor().inEventLoop() && EventLoop::current() == nullptr &&
            test::kernelNameOfThread(threadId()) == "mr-global" && loop.isTerminated();
    ++heard;
  };
  loop.terminationFuture().addListener(listener);
  group.terminationFuture().addListener(listener);

  loop.shutdownGracefully().get();
  loop.terminationFuture().addListener(listener);  // late ones, too
  ASSERT_TRUE(eventually([&] { return heard.load() == 3; }));

  EXPECT_TRUE(right.load());
}

// C234, behaviour 3.4: 13 and 14: nobody's listener is lost with the loop
TEST(EventLoopEnd, ListenersOfPromisesOfADeadLoopRunElsewhere) {
  EventLoopGroup group(1);
  EventLoop& loop = group.next();
  loop.submit([] {}).get();
  Promise<int> promise(loop);
  std::atomic<int> got{0};
  promise.future().addListener([&](const Result<int>& result) { got += result.value(); });
  loop.shutdownGracefully().get();

  promise.setSuccess(4);
  promise.future().addListener([&](const Result<int>& result) { got += result.value(); });
  awaitGlobalExecutor();

  EXPECT_EQ(got.load(), 8);
}

// C226, behaviour 3.1: 16
TEST(EventLoopEnd, ALoopThatCannotRunEndsAndItsFutureSaysWhy) {
  LogCapture log;
  auto probe = EngineProbe::make();
  probe->onAttach = [] { return Result<void>(Error::fromErrno(ENOMEM, "io_uring_setup")); };
  EventLoopGroup group(LoopOptions().loops(1).name("ill").io(probe->factory()));
  EventLoop& loop = group.next();
  int ran = 0;

  loop.execute([&] { ++ran; });
  EXPECT_TRUE(loop.awaitTermination(Deadline::never()));

  EXPECT_EQ(loop.terminationFuture().cause().errnoValue(), ENOMEM);
  EXPECT_TRUE(loop.isShuttingDown());
  EXPECT_TRUE(loop.isTerminated());
  EXPECT_EQ(ran, 1);  // it had been accepted
  EXPECT_EQ(probe->count("detach"), 0U);
  EXPECT_EQ(probe->count("awaitWakeups"), 1U);
  EXPECT_TRUE(log.contains("mr-ill-1: cannot run: io_uring_setup"));
  EXPECT_THROW(loop.execute([] {}), RejectedExecution);
  EXPECT_THROW(group.terminationFuture().get(), Exception);
  EXPECT_EQ(group.terminationFuture().cause().errnoValue(), ENOMEM);
}

// I8: what a task held is gone when its loop has ended
TEST(EventLoopEnd, NothingThatTasksHeldIsLeft) {
  auto token = std::make_shared<int>(0);
  {
    EventLoopGroup group(2);
    for (EventLoop& loop : group) {
      loop.execute([token] {});
      static_cast<void>(loop.schedule(1h, [token] {}));
      loop.executeAfterEventLoopIteration([token] {});
      loop.addShutdownHook([token] {});
      loop.beforeShutdown([token] {});
    }
    group.shutdownGracefully().get();
    EXPECT_EQ(token.use_count(), 1);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(EventLoopEnd, LetsAttributesGoOnItsThread) {
  struct Value {
    std::thread::id* where;
    ~Value() { *where = std::this_thread::get_id(); }
  };
  static const AttributeKey<Value> kValue{"value"};
  std::thread::id where;
  std::thread::id of;
  EventLoopGroup group(1);
  EventLoop& loop = *group.begin();
  loop.attributes().set(kValue, std::shared_ptr<Value>(new Value{&where}));
  EXPECT_TRUE(loop.attributes().has(kValue));
  loop.submit([&of] { of = std::this_thread::get_id(); }).sync();

  group.shutdownGracefully().sync();

  EXPECT_EQ(where, of);
  EXPECT_FALSE(loop.attributes().has(kValue));
}

}  // namespace
}  // namespace millrace
