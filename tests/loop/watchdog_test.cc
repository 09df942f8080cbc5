// SPDX-License-Identifier: Apache-2.0
#include "loop/watchdog.h"

#include "loop/function_names.h"
#include "support/census.h"
#include "support/fault_script.h"
#include "support/log_capture.h"

#include <millrace/concurrent/global_executor.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_options.h>
#include <millrace/loop/metrics.h>
#include <millrace/sys/eventfd.h>
#include <millrace/sys/events.h>
#include <millrace/sys/fd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>

namespace millrace {
namespace {

/// A latch that waits in pthread_cond_wait, where ThreadSanitizer lets signals through.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    isOpen_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return isOpen_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool isOpen_ = false;
};

}  // namespace
}  // namespace millrace

// What users write is not in our namespace; the watchdog looks for the first function outside of
// it.
namespace quarry {

using millrace::Gate;

// The asm keeps the frames: a call at the end would replace the caller's.
[[gnu::noinline]] void haulGranite(Gate& gate) {
  gate.pass();
  asm volatile("" ::: "memory");
}
[[gnu::noinline]] void splitSlate(Gate& gate) {
  gate.pass();
  asm volatile("" ::: "memory");
}
[[gnu::noinline]] int sleepForAnHour() {
  const timespec hour{3600, 0};
  const int result = ::nanosleep(&hour, nullptr);
  asm volatile("" ::: "memory");
  return result;
}
[[gnu::noinline]] ssize_t readLedger(int fd) {
  char byte = 0;
  const ssize_t got = ::read(fd, &byte, 1);
  asm volatile("" ::: "memory");
  return got;
}

}  // namespace quarry

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::LogCapture;
using testing::HasSubstr;

LoopOptions watched(Duration threshold, int loops = 1) {
  return LoopOptions().loops(loops).name("quarry").watchdog(threshold);
}

std::size_t threadsNamed(const std::string& name) {
  const auto all = test::Census::take().threads;
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const auto& each) { return each.second == name; }));
}

// A thread gets its name a little after it began.
bool awaitThreadNamed(const std::string& name) {
  const Deadline limit = Deadline::after(30s);
  while (threadsNamed(name) == 0) {
    if (limit.isDue(Clock::real().nanos())) return false;
    std::this_thread::yield();
  }
  return true;
}

// The kernel lists a thread that was joined for a moment more.
bool awaitNoThreadNamed(const std::string& name) {
  const Deadline limit = Deadline::after(30s);
  while (threadsNamed(name) != 0) {
    if (limit.isDue(Clock::real().nanos())) return false;
    std::this_thread::yield();
  }
  return true;
}

std::vector<LogCapture::Record> warnings(const LogCapture& log) {
  std::vector<LogCapture::Record> found = log.records();
  std::erase_if(found, [](const auto& each) { return each.level != LogLevel::warn; });
  return found;
}

// The name that a report gives to a function of this program.
std::string inReport(const char* function) {
  return canNameEveryFunction() ? function : "millrace_loop_tests+0x";
}

// C157
TEST(Watchdog, NamesLoopTaskAndFunctionWhileATaskBlocks) {
  LogCapture log;
  Gate gate;
  EventLoopGroup group(watched(20ms));
  struct Shift {
    Gate& gate;
    void operator()() const { quarry::haulGranite(gate); }
  };

  group.execute(Shift{gate});
  const bool told = log.awaitRecord("has been busy with one thing");
  const std::uint64_t stalls = group.metrics().stalls;
  gate.open();

  ASSERT_TRUE(told);
  EXPECT_EQ(stalls, 1U);
  const auto records = warnings(log);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].layer, "loop");
  EXPECT_THAT(records[0].text, HasSubstr("mr-quarry-1"));
  EXPECT_THAT(records[0].text, HasSubstr("in " + inReport("quarry::haulGranite(")));
  EXPECT_THAT(records[0].text, HasSubstr("TestBody()::Shift"));
}

// C157
TEST(Watchdog, NamesACallbackThatBlocks) {
  LogCapture log;
  Gate gate;
  const Fd ready = eventFd().orThrow();
  EventLoopGroup group(watched(20ms));
  struct Foreman {
    Gate* gate;
    void operator()(int, std::uint32_t) const { quarry::splitSlate(*gate); }
  };

  const Watch watch =
      group.next().watch(ready.get(), kReadable, Foreman{&gate}, Trigger::edge).get();
  eventWrite(ready.get(), 1);
  const bool told = log.awaitRecord("has been busy with one thing");
  gate.open();
  group.shutdownGracefully().sync();

  ASSERT_TRUE(told);
  const auto records = warnings(log);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_THAT(records[0].text, HasSubstr("in " + inReport("quarry::splitSlate(")));
  EXPECT_THAT(records[0].text, HasSubstr("TestBody()::Foreman"));
}

// C157
TEST(Watchdog, ListsTheCallersAtDebug) {
  if (!canNameEveryFunction()) GTEST_SKIP() << "built without libdw";
  LogCapture log("debug");
  Gate gate;
  EventLoopGroup group(watched(20ms));

  group.execute([&gate] { quarry::haulGranite(gate); });
  const bool told = log.awaitRecord("runTasks");
  gate.open();

  ASSERT_TRUE(told);
  const auto records = log.records();
  const auto line = [&records](const char* part) {
    return std::find_if(records.begin(), records.end(), [part](const auto& each) {
      return each.level == LogLevel::debug && each.text.find(part) != std::string::npos;
    });
  };
  ASSERT_NE(line("haulGranite"), records.end());
  EXPECT_LT(line("haulGranite"), line("runTasks"));
}

// C157
TEST(Watchdog, ReportsAStallOnceHoweverLongItLasts) {
  LogCapture log;
  Gate first;
  Gate second;
  EventLoopGroup group(watched(20ms, 2));
  auto loop = group.begin();
  EventLoop& one = *loop++;
  EventLoop& two = *loop;

  // The second loop's stall begins after the first one's report, and lasts as long again.
  one.execute([&first] { quarry::haulGranite(first); });
  const bool toldOfOne = log.awaitRecord("mr-quarry-1: has been busy with one thing");
  two.execute([&second] { quarry::splitSlate(second); });
  const bool toldOfTwo = log.awaitRecord("mr-quarry-2: has been busy with one thing");
  const LoopMetrics metrics = one.metrics();
  first.open();
  second.open();

  EXPECT_TRUE(toldOfOne);
  EXPECT_TRUE(toldOfTwo);
  EXPECT_EQ(metrics.stalls, 1U);
  EXPECT_EQ(warnings(log).size(), 2U);
}

// C157
TEST(Watchdog, ReportsTheNextStallOfTheSameLoop) {
  LogCapture log;
  Gate first;
  Gate second;
  EventLoopGroup group(watched(20ms));
  struct EarlyShift {
    Gate& gate;
    void operator()() const { quarry::haulGranite(gate); }
  };
  struct LateShift {
    Gate& gate;
    void operator()() const { quarry::splitSlate(gate); }
  };

  group.execute(EarlyShift{first});
  const bool toldOfOne = log.awaitRecord("EarlyShift");
  group.execute(LateShift{second});
  first.open();
  const bool toldOfTwo = log.awaitRecord("LateShift");
  second.open();
  group.shutdownGracefully().sync();

  EXPECT_TRUE(toldOfOne);
  EXPECT_TRUE(toldOfTwo);
  EXPECT_EQ(group.metrics().stalls, 2U);
}

// C157
TEST(Watchdog, IsSilentAboutALoopThatIsBusyWithShortTasks) {
  LogCapture log;
  Gate gate;
  std::atomic<bool> done{false};
  EventLoopGroup group(watched(400ms, 2));
  auto loop = group.begin();
  EventLoop& busy = *loop++;
  EventLoop& stuck = *loop;

  // Busy for as long as it takes to find the other loop stuck.
  struct Short {
    EventLoop& loop;
    std::atomic<bool>& done;
    void operator()() const {
      if (!done.load()) loop.execute(Short{loop, done});
    }
  };
  busy.execute(Short{busy, done});
  stuck.execute([&gate] { quarry::haulGranite(gate); });
  const bool told = log.awaitRecord("mr-quarry-2: has been busy with one thing");
  done.store(true);
  gate.open();
  group.shutdownGracefully().sync();

  EXPECT_TRUE(told);
  EXPECT_FALSE(log.contains("mr-quarry-1: has been busy with one thing"));
  EXPECT_EQ(busy.metrics().stalls, 0U);
}

// C157
TEST(Watchdog, ReportsShutdownHooksThatBlock) {
  LogCapture log;
  Gate gate;
  EventLoopGroup group(watched(20ms));
  group.submit([] {}).sync();
  group.next().addShutdownHook([&gate] { quarry::haulGranite(gate); });

  auto ended = group.shutdownGracefully();
  const bool told = log.awaitRecord(inReport("haulGranite"));
  gate.open();
  ended.sync();

  EXPECT_TRUE(told);
}

TEST(Watchdog, LetsAnInterruptedSystemCallGoOn) {
  LogCapture log;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd out(ends[0]);
  const Fd in(ends[1]);
  EventLoopGroup group(watched(20ms));

  auto got = group.submit([&out] { return quarry::readLedger(out.get()); });
  const bool told = log.awaitRecord("has been busy with one thing");
  ASSERT_EQ(::write(in.get(), "x", 1), 1);

  EXPECT_EQ(got.get(), 1);  // not -1 with EINTR
  EXPECT_TRUE(told);
}

// C157
TEST(Watchdog, NamesAFunctionThatTheSignalItselfWakesUp) {
  LogCapture log;
  EventLoopGroup group(watched(20ms));

  // The kernel does not restart nanosleep().
  const int slept = group.submit([] { return quarry::sleepForAnHour(); }).get();
  const bool told = log.awaitRecord("has been busy with one thing");

  EXPECT_EQ(slept, -1);
  EXPECT_TRUE(told);
  EXPECT_TRUE(log.contains("in " + inReport("quarry::sleepForAnHour()")));
}

// C157
TEST(Watchdog, HasNoThreadWithoutTheOption) {
  awaitGlobalExecutor();
  const std::size_t before = test::Census::take().threads.size();
  EventLoopGroup group(LoopOptions().loops(1));

  group.submit([] {}).sync();

  EXPECT_EQ(test::Census::take().threads.size(), before + 1);
}

// C157
TEST(Watchdog, HasOneThreadFromTheFirstLoopsStartToTheLastOnesEnd) {
  EventLoopGroup group(watched(1h, 2));
  EXPECT_EQ(threadsNamed("mr-quarry-dog"), 0U);
  auto loop = group.begin();
  EventLoop& one = *loop++;
  EventLoop& two = *loop;

  one.submit([] {}).sync();
  two.submit([] {}).sync();
  EXPECT_TRUE(awaitThreadNamed("mr-quarry-dog"));
  one.shutdownGracefully().sync();
  EXPECT_EQ(threadsNamed("mr-quarry-dog"), 1U);
  two.shutdownGracefully().sync();
  EXPECT_TRUE(awaitNoThreadNamed("mr-quarry-dog"));
}

// C157
TEST(Watchdog, ComesBackWithALoopThatStartsAfterTheOthersHaveEnded) {
  LogCapture log;
  Gate gate;
  EventLoopGroup group(watched(20ms, 2));
  auto loop = group.begin();
  EventLoop& one = *loop++;
  EventLoop& two = *loop;

  one.submit([] {}).sync();
  one.shutdownGracefully().sync();
  two.execute([&gate] { quarry::haulGranite(gate); });
  const bool told = log.awaitRecord("mr-quarry-2: has been busy with one thing");
  gate.open();

  EXPECT_TRUE(told);
}

// C157
TEST(Watchdog, IsGoneAfterTheGroup) {
  {
    EventLoopGroup group(watched(1h));
    group.submit([] {}).sync();
    EXPECT_TRUE(awaitThreadNamed("mr-quarry-dog"));
  }
  EXPECT_TRUE(awaitNoThreadNamed("mr-quarry-dog"));
}

TEST(Watchdog, CanBeStoppedWhileALoopIsStillUnderGuard) {
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::parking()));
  Watchdog dog("quarry", 1h);
  {
    const Watchdog::Guard guard(&dog, *loop);
    EXPECT_TRUE(awaitThreadNamed("mr-quarry-dog"));

    dog.stop();
    EXPECT_TRUE(awaitNoThreadNamed("mr-quarry-dog"));
  }
  const Watchdog::Guard later(&dog, *loop);
  EXPECT_TRUE(awaitNoThreadNamed("mr-quarry-dog"));
}

TEST(Watchdog, ThatGetsNoThreadIsLoggedAndTheLoopRuns) {
  LogCapture log;
  test::FaultScript script;
  script.fail("pthread_create", 2, EAGAIN);
  EventLoopGroup group(watched(20ms));

  EXPECT_EQ(group.submit([] { return 7; }).get(), 7);

  EXPECT_TRUE(log.contains("mr-quarry-dog: no watchdog: pthread_create"));
}

TEST(Watchdog, ThatCannotReadTheStackStillReports) {
  LogCapture log;
  test::FaultScript script;
  script.fail("rt_tgsigqueueinfo", 1, EAGAIN);
  Gate gate;
  EventLoopGroup group(watched(20ms));

  group.execute([&gate] { quarry::haulGranite(gate); });
  const bool told = log.awaitRecord("an unknown function");
  gate.open();

  EXPECT_TRUE(told);
}

TEST(Watchdog, GivesTheThreadOfAnExecutorItsSignalMaskBack) {
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::parking()));
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);

  sigset_t during;
  sigset_t after;
  {
    Watchdog dog("quarry", 1h);
    const Watchdog::Guard guard(&dog, *loop);
    ::pthread_sigmask(SIG_BLOCK, nullptr, &during);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, &after);

  int unblocked = 0;
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) {
    if (::sigismember(&during, signal) == 0) ++unblocked;
    EXPECT_EQ(::sigismember(&after, signal), 1) << signal;
  }
  EXPECT_EQ(unblocked, 1);
}

}  // namespace
}  // namespace millrace
