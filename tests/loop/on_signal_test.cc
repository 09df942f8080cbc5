// SPDX-License-Identifier: Apache-2.0
// Signals as callbacks on a loop.
#include "support/census.h"
#include "support/engines.h"
#include "support/fault_script.h"

#include <millrace/base/error.h>
#include <millrace/sys/signal.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <unistd.h>

namespace millrace {
namespace {

// Gives SIGUSR1 and SIGUSR2 a handler that does nothing, so that a signal which nobody blocks does
// no harm, and puts mask and handlers back.
class OnSignal : public test::EngineTest {
 protected:
  void SetUp() override {
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &nothing, &one_);
    ::sigaction(SIGUSR2, &nothing, &two_);
  }
  void TearDown() override {
    static_cast<void>(unblockSignals({SIGUSR1, SIGUSR2}));
    ::sigaction(SIGUSR1, &one_, nullptr);
    ::sigaction(SIGUSR2, &two_, nullptr);
  }

 private:
  struct sigaction one_ {};
  struct sigaction two_ {};
};

// C123
TEST_P(OnSignal, CallsBackOnTheLoopsThread) {
  std::atomic<int> ones{0};
  std::atomic<int> twos{0};
  std::atomic<int> outside{0};
  EventLoopGroup group(options().loops(1));
  expectEngine(group);
  EventLoop& loop = *group.begin();
  const auto count = [&](std::atomic<int>& counter, int expected) {
    return [&, expected](int signal) {
      if (!loop.inEventLoop() || signal != expected) ++outside;
      ++counter;
    };
  };
  loop.onSignal(SIGUSR1, count(ones, SIGUSR1)).sync();
  loop.onSignal(SIGUSR2, count(twos, SIGUSR2)).sync();

  for (int i = 1; i <= 5; ++i) {
    ::kill(::getpid(), SIGUSR1);
    EXPECT_TRUE(test::eventually([&] { return ones == i; }));
  }
  EXPECT_EQ(twos, 0);
  ::kill(::getpid(), SIGUSR2);

  EXPECT_TRUE(test::eventually([&] { return twos == 1; }));
  EXPECT_EQ(outside, 0);
  group.shutdownGracefully().sync();
}

TEST_P(OnSignal, HasOneCallbackForASignal) {
  const Ref<EventLoop> loop = handDriven();
  const Future<Watch> first = loop->onSignal(SIGUSR1, [](int) {});
  loop->runNow();

  EXPECT_THROW(static_cast<void>(loop->onSignal(SIGUSR1, [](int) {})), std::logic_error);

  first.get().unwatch();
  loop->runNow();
  int calls = 0;
  static_cast<void>(loop->onSignal(SIGUSR1, [&](int) { ++calls; }));
  loop->runNow();
  ::raise(SIGUSR1);
  loop->run(Deadline::never());
  EXPECT_EQ(calls, 1);
}

// C123: on the loop that the caller drives, whose thread got the signal
TEST_P(OnSignal, WorksOnAHandDrivenLoop) {
  const Ref<EventLoop> loop = handDriven();
  int calls = 0;
  const Future<Watch> begun = loop->onSignal(SIGUSR1, [&](int) { ++calls; });
  loop->runNow();
  ASSERT_TRUE(begun.isSuccess());

  ::raise(SIGUSR1);
  loop->run(Deadline::never());

  EXPECT_EQ(calls, 1);
}

// C122: the descriptor goes with the watch, also if that ends in its own callback
TEST_P(OnSignal, ClosesItsDescriptorWhenItEnds) {
  const Ref<EventLoop> loop = handDriven();
  loop->runNow();
  const std::size_t before = test::Census::take().descriptors.size();
  int calls = 0;
  Watch watch;
  const Future<Watch> begun = loop->onSignal(SIGUSR1, [&](int) {
    ++calls;
    watch.unwatch();
  });
  loop->runNow();
  watch = begun.get();
  EXPECT_EQ(test::Census::take().descriptors.size(), before + 1);

  ::raise(SIGUSR1);
  for (int i = 0; i < 3; ++i) loop->runNow();

  EXPECT_EQ(calls, 1);
  EXPECT_EQ(test::Census::take().descriptors.size(), before);
}

// C123
TEST_P(OnSignal, RefusesWhatIsNoSignal) {
  const Ref<EventLoop> loop = handDriven();

  EXPECT_THROW(static_cast<void>(loop->onSignal(0, [](int) {})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(loop->onSignal(1000, [](int) {})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(loop->onSignal(SIGUSR1, {})), std::invalid_argument);
}

// C123
TEST_P(OnSignal, FailsWithTheNameOfTheCall) {
  const Ref<EventLoop> loop = handDriven();
  test::FaultScript script;
  script.fail("signalfd", 1, EMFILE);

  try {
    static_cast<void>(loop->onSignal(SIGUSR1, [](int) {}));
    FAIL() << "nothing was thrown";
  } catch (const Exception& e) {
    EXPECT_EQ(e.error().errnoValue(), EMFILE);
    EXPECT_EQ(e.error().operation(), "signalfd");
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, OnSignal, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

}  // namespace
}  // namespace millrace
