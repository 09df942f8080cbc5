// SPDX-License-Identifier: Apache-2.0
// The library's own wakeup protocol under every schedule that can matter.
#include "expect_explored.h"
#include "production_loop.h"
#include "wakeup_scenarios.h"

#include <gtest/gtest.h>

namespace millrace::explorer {
namespace {

using Loop = ProductionLoop;

// C094 C096 I3
TEST(ProductionWakeup, NothingIsLost) {
  expectClean("execute", executeOnce<Loop>());
  expectClean("execute with I/O", executeOnce<Loop>(2));
  expectClean("execute twice", executeTwice<Loop>());
  expectClean("execute || execute", executeAndExecute<Loop>());
  expectClean("lazyExecute || execute", lazyAndExecute<Loop>());
}

// C062 I1
TEST(ProductionWakeup, ALateProducerIsRefusedOrServed) {
  expectClean("execute || execute, shutdown", executeAndShutdown<Loop>(0));
  expectClean("execute || execute, shutdown, with I/O", executeAndShutdown<Loop>(1));
}

// C168
TEST(ProductionWakeup, TimersFromOutsideFireInTime) {
  expectClean("earlier timer", earlierTimer<Loop>(false));
  expectClean("earlier timer || execute", earlierTimer<Loop>(true));
  expectClean("later timer", laterTimer<Loop>(false));
  expectClean("later timer || execute", laterTimer<Loop>(true));
}

TEST(ProductionWakeup, SpuriousFailuresAreHarmless) {
  Options options;
  options.spuriousCasFailures = 1;
  options.spuriousWakeups = 1;
  expectClean("lazyExecute || execute, spurious failures", lazyAndExecute<Loop>(), options);
}

// Weaker machines than ours may return older values; sequential consistency rules them out.
TEST(ProductionWakeup, OldValuesAreHarmless) {
  Options options;
  options.staleLoads = 2;
  expectClean("execute, old values", executeOnce<Loop>(), options);
  expectClean("lazyExecute || execute, old values", lazyAndExecute<Loop>(), options);
}

}  // namespace
}  // namespace millrace::explorer
