// SPDX-License-Identifier: Apache-2.0
// Every system call that making and destroying loops takes fails once, one after the other.
#include "support/census.h"
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/log_capture.h"

#include <millrace/base/error.h>
#include <millrace/concurrent/global_executor.h>

#include <gtest/gtest.h>

namespace millrace {
namespace {

using test::Census;
using test::FaultScript;
using test::forEachFault;
using test::leaksSince;

// Calls that open something, for one loop.
int callsToOpen(const IoType* type) {
  if (type == &io::epollType) return 3;  // epoll_create1, eventfd, epoll_ctl
  return type == &io::pollType || type == &io::uringType ? 1 : 0;  // eventfd
}

class ConstructionFaults : public test::EngineTest {
 protected:
  // The calls that construction consists of. What the end of a loop does is fallible, too: it may
  // be interrupted, which nobody notices.
  const std::vector<std::string_view> kOpening{"epoll_create1", "eventfd", "epoll_ctl"};
  const test::LogCapture quiet_;
};

// C025 C120b
TEST_P(ConstructionFaults, EachFailsTheGroupWithTheNameOfTheCall) {
  constexpr int kLoops = 3;
  const Census before = Census::take();

  const int faults = forEachFault(
      [&](FaultScript& script) {
        std::string text;
        try {
          EventLoopGroup group(options().loops(kLoops).name("made"));
          expectEngine(group);
        } catch (const Exception& e) {
          text = e.what();
          EXPECT_NE(e.error().errnoValue(), 0);
        }
        EXPECT_EQ(text.empty(), script.faults() == 0);
        EXPECT_NE(text.find(script.lastFault()), std::string::npos) << text;
        EXPECT_EQ(leaksSince(before), std::vector<std::string>{});
      },
      kOpening);

  EXPECT_EQ(faults, kLoops * callsToOpen(GetParam().io.type));
}

// C120b
TEST_P(ConstructionFaults, EachFailsTheHandDrivenLoopWithTheNameOfTheCall) {
  const Census before = Census::take();

  const int faults = forEachFault(
      [&](FaultScript& script) {
        try {
          const Ref<EventLoop> loop = handDriven();
          EXPECT_EQ(script.faults(), 0U);
        } catch (const Exception& e) {
          EXPECT_EQ(script.faults(), 1U);
          EXPECT_NE(std::string(e.what()).find(script.lastFault()), std::string::npos) << e.what();
        }
        EXPECT_EQ(leaksSince(before), std::vector<std::string>{});
      },
      kOpening);

  EXPECT_EQ(faults, callsToOpen(GetParam().io.type));
}

// C025: whatever call it is, and whatever the end of the loops made before it takes
TEST_P(ConstructionFaults, OfAllKindsLeaveNothingBehind) {
  const Census before = Census::take();

  const int faults = forEachFault([&](FaultScript& script) {
    bool made = false;
    try {
      EventLoopGroup group(options().loops(2));
      made = true;
    } catch (const Exception& e) {
      EXPECT_NE(std::string(e.what()).find(script.lastFault()), std::string::npos) << e.what();
    }
    awaitGlobalExecutor();
    EXPECT_TRUE(made || script.faults() == 1);
    EXPECT_EQ(leaksSince(before), std::vector<std::string>{});
  });

  EXPECT_GE(faults, 2 * callsToOpen(GetParam().io.type));
}

INSTANTIATE_TEST_SUITE_P(Engines, ConstructionFaults, testing::ValuesIn(test::everyEngine()),
                         test::engineName);

}  // namespace
}  // namespace millrace
