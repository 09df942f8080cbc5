// SPDX-License-Identifier: Apache-2.0
// The order of a turn, and what becomes of it when something in it fails.
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/log_capture.h"
#include "support/loop_test.h"

#include <millrace/base/error.h>
#include <millrace/loop/watch.h>
#include <millrace/sys/events.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <latch>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::EngineProbe;
using test::LogCapture;
using test::Pipe;

std::size_t linesWith(const LogCapture& log, std::string_view part) {
  std::size_t lines = 0;
  for (const LogCapture::Record& record : log.records()) {
    if (record.text.find(part) != std::string::npos) ++lines;
  }
  return lines;
}

/// Notes each question.
class NotingStrategy final : public SelectStrategy {
 public:
  explicit NotingStrategy(EngineProbe& probe) : probe_(probe) {}
  int decide(const std::function<int()>& selectNow, bool hasTasks) override {
    probe_.note("decide");
    return hasTasks ? selectNow() : kSelect;
  }

 private:
  EngineProbe& probe_;
};

// C070
TEST(EventLoopTurn, DecidesThenLooksThenDispatchesThenRunsTasksThenChecksTheEnd) {
  auto probe = EngineProbe::make();
  probe->onWait = [](Deadline) { return WaitOutcome{1, false}; };
  probe->onDispatch = [] { return 1; };
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(probe->factory()).strategy([&] {
    return std::make_unique<NotingStrategy>(*probe);
  }));
  loop->runNow();
  loop->executeAfterEventLoopIteration([&] { probe->note("tail"); });
  loop->execute([&] { probe->note("task"); });
  probe->forgetSteps();

  loop->runNow();
  EXPECT_EQ(probe->steps(),
            (std::vector<std::string>{"decide", "look", "dispatch", "task", "tail"}));

  probe->forgetSteps();
  static_cast<void>(loop->shutdownGracefully());
  loop->addShutdownHook([&] { probe->note("hook"); });
  loop->execute([&] { probe->note("task"); });
  loop->runNow();
  EXPECT_EQ(probe->steps(), (std::vector<std::string>{"decide", "look", "dispatch", "closeAll",
                                                      "task", "hook", "detach", "awaitWakeups"}));
  EXPECT_TRUE(loop->isTerminated());
}

// C071
TEST(EventLoopFailure, OfTheDispatchDoesNotStarveTheTasksOfThatTurn) {
  LogCapture log;
  auto probe = EngineProbe::make();
  probe->onWait = [](Deadline) { return WaitOutcome{1, false}; };
  probe->onDispatch = []() -> int { throw std::runtime_error("escaped from a callback"); };
  Ref<EventLoop> loop =
      EventLoop::handDriven(LoopOptions().io(probe->factory()).errorPause(0s).name("fails"));
  int ran = 0;
  loop->execute([&] { ++ran; });
  loop->executeAfterEventLoopIteration([&] { ++ran; });

  loop->runNow();

  EXPECT_EQ(ran, 2);
  EXPECT_EQ(loop->metrics().failures, 1U);
  EXPECT_TRUE(log.contains(loop->name() + ": a turn failed"));
  EXPECT_TRUE(log.contains("escaped from a callback"));
}

// C071
TEST(EventLoopFailure, OfTheWaitDoesNotStarveTheTasksOfThatTurn) {
  LogCapture log("off");
  auto probe = EngineProbe::make();
  probe->onWait = [](Deadline) -> Result<WaitOutcome> { return Error::fromErrno(EBADF, "select"); };
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(probe->factory()).errorPause(0s));
  int ran = 0;
  loop->execute([&] { ++ran; });

  loop->runNow();

  EXPECT_EQ(ran, 1);
}

// C072
TEST(EventLoopFailure, InEveryTurnDoesNotKeepALoopFromEnding) {
  LogCapture log("off");
  for (const bool waitFails : {false, true}) {
    auto probe = EngineProbe::make();
    std::latch failed(3);
    const auto fail = [&] {
      if (!failed.try_wait()) failed.count_down();
    };
    probe->onWait = [&, waitFails](Deadline) -> Result<WaitOutcome> {
      if (!waitFails) return WaitOutcome{1, false};
      fail();
      return Error::fromErrno(EINVAL, "select");
    };
    probe->onDispatch = [&]() -> int {
      fail();
      throw std::runtime_error("always");
    };
    EventLoopGroup group(LoopOptions().loops(1).io(probe->factory()).errorPause(0s));
    EventLoop& loop = group.next();
    loop.execute([] {});
    failed.wait();

    loop.shutdownGracefully().get();

    EXPECT_TRUE(loop.isTerminated());
    EXPECT_EQ(probe->count("detach"), 1U);
  }
}

// C072: a strategy that throws is a failed turn, too
TEST(EventLoopFailure, OfTheStrategyInEveryTurnDoesNotKeepALoopFromEnding) {
  struct Throws final : SelectStrategy {
    int decide(const std::function<int()>&, bool) override {
      throw std::runtime_error("no decision");
    }
  };
  LogCapture log;
  EventLoopGroup group(
      LoopOptions().loops(1).errorPause(0s).strategy([] { return std::make_unique<Throws>(); }));
  EventLoop& loop = group.next();

  EXPECT_EQ(loop.submit([] { return 5; }).get(), 5);
  loop.shutdownGracefully().get();

  EXPECT_TRUE(log.contains("no decision"));
  EXPECT_TRUE(loop.isTerminated());
}

// C073
TEST(EventLoopFailure, IsFollowedByAPauseSoThatALoopDoesNotSpin) {
  LogCapture log;
  auto probe = EngineProbe::make();
  std::atomic<bool> healthy{true};
  std::latch failed(1);
  probe->onWait = [&](Deadline until) -> Result<WaitOutcome> {
    if (healthy || until == Deadline::past()) return WaitOutcome{};
    if (!failed.try_wait()) failed.count_down();
    return Error::fromErrno(EIO, "select");
  };
  EventLoopGroup group(LoopOptions().loops(1).name("sick").io(probe->factory()).errorPause(1h));
  EventLoop& loop = group.next();
  loop.execute([&] { healthy = false; });
  failed.wait();
  EventLoopGroup other(1);
  for (int i = 0; i < 1000; ++i) other.next().submit([] {}).get();  // time to spin in, if it did

  EXPECT_EQ(linesWith(log,
                      "mr-sick-1: a turn failed, the loop goes on after a pause: the engine "
                      "failed: select"),
            1U);
  EXPECT_EQ(linesWith(log, "mr-sick-1"), 1U);  // one line for a failure
  EXPECT_EQ(loop.metrics().failures, 1U);
  EXPECT_EQ(loop.state(), EventLoop::State::started);
  loop.shutdownGracefully().get();  // does not wait for the hour
  EXPECT_EQ(LoopOptions().values().errorPause, 1s);
}

// C073: it survives, and goes on with what was posted meanwhile
TEST(EventLoopFailure, IsSurvived) {
  LogCapture log("off");
  auto probe = EngineProbe::make();
  std::atomic<int> failures{10};
  probe->onWait = [&](Deadline) -> Result<WaitOutcome> {
    if (failures.fetch_sub(1) > 0) return Error::fromErrno(EIO, "select");
    return WaitOutcome{};
  };
  EventLoopGroup group(LoopOptions().loops(1).io(probe->factory()).errorPause(1us));
  EventLoop& loop = group.next();

  for (int i = 0; i < 100; ++i) EXPECT_EQ(loop.submit([i] { return i; }).get(), i);

  EXPECT_GE(loop.metrics().failures, 1U);
}

// C074: our policy. What a task throws is the task's failure, whatever its type; memory that a task
// could not get is no reason to end the others.
TEST(EventLoopFailure, OfATaskToGetMemoryIsTheTasksOwn) {
  LogCapture log;
  EventLoopGroup group(1);
  EventLoop& loop = group.next();

  loop.execute([] { throw std::bad_alloc(); });
  Future<int> failed = loop.submit([]() -> int { throw std::bad_alloc(); });

  EXPECT_THROW(failed.get(), std::bad_alloc);
  EXPECT_EQ(loop.submit([] { return 1; }).get(), 1);
  EXPECT_TRUE(log.contains("a task threw"));
}

// C074: what escapes from where nobody can catch it ends the process
TEST(EventLoopFailureDeathTest, OfATasksDestructorEndsTheProcess) {
  struct Bomb {
    bool armed = true;
    Bomb() = default;
    Bomb(Bomb&& other) noexcept : armed(std::exchange(other.armed, false)) {}
    ~Bomb() noexcept(false) {
      if (armed) throw std::runtime_error("from a destructor");
    }
  };
  EXPECT_DEATH(
      {
        EventLoopGroup group(1);
        group.next().execute([bomb = Bomb()] {});
        group.next().submit([] {}).get();
      },
      "");
}

// C075: a descriptor that was closed before unwatch() is no failure of the loop
TEST(EventLoopFailure, IsNotWhatUnwatchOfAClosedDescriptorIs) {
  LogCapture log;
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()));
  Pipe pipe;
  Watch watch;
  loop->execute(
      [&] { watch = loop->watch(pipe.readEnd(), kReadable, [](int, std::uint32_t) {}).get(); });
  loop->runNow();
  pipe.closeRead();

  loop->execute([&] { watch.unwatch(); });
  loop->runNow();

  EXPECT_TRUE(log.contains("unwatch of descriptor"));
  EXPECT_EQ(log.count(LogLevel::warn), 0U);
  EXPECT_EQ(log.count(LogLevel::error), 0U);
  EXPECT_EQ(log.count(LogLevel::debug), 1U);
  EXPECT_EQ(loop->metrics().failures, 0U);  // so no pause, either
}

// C076
TEST(EventLoopFailure, OfTheSelectorGivesAFreshOneWithAllWatchesOnIt) {
  LogCapture log;
  test::FaultScript calls;
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()).errorPause(0s));
  std::array<Pipe, 3> pipes;
  std::vector<int> readable;
  loop->execute([&] {
    for (const Pipe& pipe : pipes) {
      static_cast<void>(loop->watch(
          pipe.readEnd(), kReadable, [&](int fd, std::uint32_t) { readable.push_back(fd); },
          Trigger::edge));
    }
  });
  loop->runNow();
  const std::uint64_t selectors = calls.count("epoll_create1");
  calls.fail("epoll_pwait2", calls.count("epoll_pwait2") + 1, EBADF);
  calls.fail("epoll_wait", calls.count("epoll_wait") + 1, EBADF);  // where that is all there is

  loop->runNow();
  EXPECT_EQ(calls.count("epoll_create1"), selectors + 1);
  EXPECT_EQ(loop->metrics().rebuilds, 1U);
  EXPECT_EQ(loop->metrics().failures, 1U);
  EXPECT_TRUE(log.contains("selector made anew"));
  EXPECT_EQ(loop->metrics().registrations, 3U);
  for (const Pipe& pipe : pipes) pipe.put();
  loop->run(Deadline::after(1min));

  EXPECT_EQ(readable.size(), 3U);
}

// C076: there is not always a fresh one to have
TEST(EventLoopFailure, OfTheSelectorKeepsTheOldOneIfThereIsNoOther) {
  LogCapture log;
  test::FaultScript calls;
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()).errorPause(0s));
  Pipe pipe;
  int events = 0;
  loop->execute([&] {
    static_cast<void>(
        loop->watch(pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++events; }));
  });
  loop->runNow();
  calls.fail("epoll_pwait2", calls.count("epoll_pwait2") + 1, EBADF);
  calls.fail("epoll_wait", calls.count("epoll_wait") + 1, EBADF);
  calls.failAll("epoll_create1", EMFILE);

  loop->runNow();
  EXPECT_TRUE(log.contains("could not be made anew, the old one stays"));
  pipe.put();
  loop->run(Deadline::after(1min));

  EXPECT_EQ(events, 1);
  EXPECT_EQ(loop->metrics().rebuilds, 0U);
}

TEST(EventLoopFailure, DoesNotMakeRunNowWait) {
  test::FaultScript calls;
  Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()).errorPause(1h));
  const Pipe pipe;
  loop->execute([&] {
    static_cast<void>(loop->watch(pipe.readEnd(), kReadable, [](int, std::uint32_t) {}));
  });
  loop->runNow();
  calls.failAll("epoll_pwait2", EBADF);
  calls.failAll("epoll_wait", EBADF);

  loop->runNow();  // returns, or the test takes an hour

  EXPECT_EQ(loop->metrics().failures, 1U);
}

}  // namespace
}  // namespace millrace
