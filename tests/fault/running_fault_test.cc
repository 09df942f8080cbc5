// SPDX-License-Identifier: Apache-2.0
// A life of loops, from construction to the end, in which every system call fails once, one after
// the other. Whatever fails: what was accepted runs, what was refused says why, and nothing is
// left.
#include "support/census.h"
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/log_capture.h"

#include <millrace/base/error.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/sys/signal.h>

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <unistd.h>

namespace millrace {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Census;
using test::FaultScript;
using test::forEachFault;
using test::leaksSince;
using test::Pipe;

// SIGUSR2 does no harm to threads that do not block it.
class RunningFaults : public test::EngineTest {
 protected:
  void SetUp() override {
    awaitGlobalExecutor();
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    ::sigaction(SIGUSR2, &nothing, &before_);
    static_cast<void>(blockSignals({SIGUSR2}));
  }
  void TearDown() override {
    static_cast<void>(unblockSignals({SIGUSR2}));
    ::sigaction(SIGUSR2, &before_, nullptr);
  }
  bool hasDescriptors() const { return GetParam().io.type != &io::parkingType; }

  const test::LogCapture quiet_;

 private:
  struct sigaction before_ {};
};

// One run: counts what was accepted and what ran, and checks that refusals name the failed call.
class Life {
 public:
  explicit Life(FaultScript& script) : script_(script) {}

  // Tries once more if it is refused: one call fails in each run, so that must work.
  template <class F>
  bool attempt(F&& fn) {
    for (int tries = 0; tries < 2; ++tries) {
      try {
        fn();
        return true;
      } catch (const Exception& e) {
        noteRefusal(e.error());
      }
    }
    ADD_FAILURE() << "refused twice";
    return false;
  }
  void noteRefusal(const Error& why) {
    ++refused_;
    EXPECT_EQ(script_.faults(), 1U);
    EXPECT_NE(why.message().find(script_.lastFault()), std::string::npos) << why.message();
  }
  // A task that is counted when it runs; counts itself as accepted if `give` takes it.
  template <class F>
  void accept(F&& give) {
    if (attempt([&] { give([this] { ++ran_; }); })) ++accepted_;
  }
  void expectAllRan() const {
    EXPECT_EQ(ran_, accepted_);
    EXPECT_LE(refused_, 1);
  }

 private:
  FaultScript& script_;
  int refused_ = 0;
  int accepted_ = 0;
  std::atomic<int> ran_{0};
};

// I1 I8
TEST_P(RunningFaults, LoseNoTaskAndNoTimer) {
  const Census before = Census::take();

  const int faults = forEachFault([&](FaultScript& script) {
    Life life(script);
    life.attempt([&] {
      EventLoopGroup group(options().loops(2));
      expectEngine(group);
      for (EventLoop& loop : group) {
        std::vector<Future<void>> timers;
        for (int i = 0; i < 3; ++i) life.accept([&](auto task) { loop.execute(task); });
        life.accept([&](auto task) { loop.lazyExecute(task); });
        life.accept([&](auto task) { loop.executeAfterEventLoopIteration(task); });
        for (int i = 0; i < 3; ++i) {
          life.accept([&](auto task) {
            timers.push_back(loop.schedule(microseconds(100 * i), task).future());
          });
        }
        life.attempt([&] { EXPECT_EQ(loop.submit([] { return 42; }).get(), 42); });
        for (const Future<void>& timer : timers) timer.sync();
      }
      EXPECT_FALSE(group.shutdownGracefully(milliseconds(1), seconds(60)).get().timedOut);
    });
    life.expectAllRan();
    awaitGlobalExecutor();
    EXPECT_EQ(leaksSince(before), std::vector<std::string>{});
  });

  EXPECT_GT(faults, 5);
}

// C123 I8
TEST_P(RunningFaults, LeaveWatchesAndSignalsWorkingOrRefused) {
  if (!hasDescriptors()) return;  // nothing to watch with parking
  const Pipe pipe;
  const Census before = Census::take();

  const int faults = forEachFault([&](FaultScript& script) {
    Life life(script);
    std::atomic<int> read{0};
    std::atomic<int> signals{0};
    life.attempt([&] {
      EventLoopGroup group(options().loops(1));
      EventLoop& loop = *group.begin();
      Watch watch;
      Watch signal;
      const auto begin = [&](Watch& out, auto&& call) {
        life.attempt([&] {
          const Future<Watch> begun = call();
          begun.sync();
          out = begun.get();
        });
      };
      begin(watch, [&] {
        return loop.watch(pipe.readEnd(), kReadable, [&](int fd, std::uint32_t) {
          read += static_cast<int>(test::readAll(fd).size());
        });
      });
      begin(signal, [&] { return loop.onSignal(SIGUSR2, [&](int) { ++signals; }); });
      pipe.put("abc");
      EXPECT_TRUE(test::eventually([&] { return read == 3; }));
      ::kill(::getpid(), SIGUSR2);
      EXPECT_TRUE(test::eventually([&] { return signals == 1; }));
      life.attempt([&] { loop.submit([&] { watch.modify(0); }).sync(); });
      life.attempt([&] { loop.submit([&] { watch.modify(kReadable); }).sync(); });
      pipe.put("de");
      EXPECT_TRUE(test::eventually([&] { return read == 5; }));
      watch.unwatch();
      EXPECT_EQ(group.shutdownGracefully().get().watchesClosed, 1U);
    });
    awaitGlobalExecutor();
    EXPECT_EQ(leaksSince(before), std::vector<std::string>{});
  });

  EXPECT_GT(faults, 8);
}

// C109 C110 I8: the selector is made anew, and each call of that fails once
TEST_P(RunningFaults, OfARebuildEndOneWatchAtMost) {
  if (!hasDescriptors()) return;
  const std::vector<Pipe> pipes(3);
  int faults = 0;

  for (std::uint64_t k = 1;; ++k) {
    std::vector<std::size_t> read(pipes.size(), 0);
    std::vector<Error> ends(pipes.size());
    const Ref<EventLoop> loop = handDriven();
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      test::watchInLoop(
          *loop, pipes[i].readEnd(), kReadable,
          [&, i](int fd, std::uint32_t) { read[i] += test::readAll(fd).size(); }, Trigger::level,
          [&, i](const Error& why) { ends[i] = why; });
    }
    const Census before = Census::take();
    FaultScript script;
    script.only({"epoll_create1", "epoll_ctl", "eventfd"}).failOverall(k);

    loop->execute([&] { loop->rebuildSelector(); });
    loop->runNow();
    for (const Pipe& pipe : pipes) pipe.put();
    for (int i = 0; i < 5; ++i) loop->runNow();

    std::size_t ended = 0;
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      EXPECT_EQ(read[i], ends[i] ? 0U : 1U);
      if (!ends[i]) continue;
      ++ended;
      EXPECT_NE(ends[i].message().find(script.lastFault()), std::string::npos);
      pipes[i].take();
    }
    EXPECT_LE(ended, script.faults());
    EXPECT_EQ(loop->metrics().registrations, pipes.size() - ended);
    EXPECT_EQ(Census::take().descriptors.size(), before.descriptors.size());
    if (script.faults() == 0) break;
    ++faults;
  }

  // A new selector, the wakeup descriptor, three watches; poll asks the kernel for none of it.
  EXPECT_EQ(faults, GetParam().io.type == &io::epollType ? 5 : 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, RunningFaults, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

}  // namespace
}  // namespace millrace
