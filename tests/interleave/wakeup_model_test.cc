// SPDX-License-Identifier: Apache-2.0
// The wakeup protocol is right, and every part of it is needed: each mutation is caught.
#include "wakeup_model.h"

#include "slow_build.h"
#include "wakeup_scenarios.h"

#include <gtest/gtest.h>

#include <iostream>
#include <string>

namespace millrace::explorer {
namespace {

using Right = WakeupModel<>;
template <Mutation mutation>
using Wrong = WakeupModel<mutation>;

void expectClean(const char* what, const Scenario& scenario, const Options& options = {}) {
  const Result result = explore(options, scenario);
  EXPECT_TRUE(result.ok()) << what << ": " << result;
  std::cout << what << ": " << result.summary() << '\n';
}

/// The mutation is caught, in the same way every time, and the schedule is shown.
void expectCaught(const char* what, const Scenario& scenario, Failure failure,
                  const std::string& message, const Options& options = {}) {
  const Result result = explore(options, scenario);
  EXPECT_EQ(result.failure, failure) << what << ": " << result;
  EXPECT_NE(result.message.find(message), std::string::npos) << result.message;
  EXPECT_EQ(replay(options, scenario, result.choices).schedule, result.schedule);
  std::cout << what << ": " << result << '\n';
}

TEST(WakeupModel, NothingIsLost) {
  expectClean("execute", executeOnce<Right>());
  expectClean("execute with I/O", executeOnce<Right>(2));
  expectClean("execute twice", executeTwice<Right>());
  expectClean("execute || execute", executeAndExecute<Right>());
  expectClean("lazyExecute || execute", lazyAndExecute<Right>());
}

TEST(WakeupModel, ALateProducerIsRefusedOrServed) {
  expectClean("execute || execute, shutdown", executeAndShutdown<Right>(0));
  if (!kSlowBuild) expectClean("the same with I/O", executeAndShutdown<Right>(1));
}

TEST(WakeupModel, TimersFromOutsideFireInTime) {
  expectClean("earlier timer", earlierTimer<Right>(false));
  if (!kSlowBuild) expectClean("earlier timer || execute", earlierTimer<Right>(true));
  expectClean("later timer", laterTimer<Right>(false));
  expectClean("later timer || execute", laterTimer<Right>(true));
}

// Spurious failures of compare_exchange_weak and of futex waits change nothing.
TEST(WakeupModel, SpuriousFailuresAreHarmless) {
  Options options;
  options.spuriousCasFailures = 1;
  options.spuriousWakeups = 1;
  expectClean("lazyExecute || execute, spurious failures", lazyAndExecute<Right>(), options);
}

// Not only on x86: loads may return whatever C++ allows.
TEST(WakeupModel, TheOrdersAreStrongEnoughForEveryMachine) {
  Options options;
  options.staleLoads = 2;
  expectClean("execute, stale loads", executeOnce<Right>(), options);
  expectClean("execute twice, stale loads", executeTwice<Right>(), options);
  expectClean("lazyExecute || execute, stale loads", lazyAndExecute<Right>(), options);
  options.staleLoads = 1;
  expectClean("execute || execute, stale loads", executeAndExecute<Right>(), options);
}

// ---------------------------------------------------------------------- the listed mutations

TEST(WakeupMutation, AnnouncingTheSleepByAReleaseStoreLosesAWakeup) {
  expectCaught("L1 as a release store", executeOnce<Wrong<Mutation::kAnnounceByReleaseStore>>(),
               Failure::kDeadlock, "loop sleeps on eventfd");
}

TEST(WakeupMutation, NotLookingAgainLosesAWakeup) {
  expectCaught("L2 left out", executeOnce<Wrong<Mutation::kNoSecondLook>>(), Failure::kDeadlock,
               "loop sleeps on eventfd");
}

TEST(WakeupMutation, WakingOnlyAnEmptyInboxLosesAWakeupBehindALazyTask) {
  using Loop = Wrong<Mutation::kWakeIfEmpty>;
  expectCaught("wake if it was empty, with a lazy post", lazyAndExecute<Loop>(), Failure::kDeadlock,
               "loop sleeps on eventfd");
  expectClean("wake if it was empty, without lazy posts", executeAndExecute<Loop>());
}

TEST(WakeupMutation, ClaimingBeforePublishingHidesATaskBehindALazyOne) {
  using Loop = WakeupModel<Mutation::kNone, ClaimInbox>;
  expectCaught("claim, then publish, with a lazy post", lazyAndExecute<Loop>(), Failure::kDeadlock,
               "loop sleeps on eventfd");
  expectClean("claim, then publish, without lazy posts", executeAndExecute<Loop>());
}

TEST(WakeupMutation, AwakeningByAPlainStoreForgetsAPaidWakeup) {
  expectCaught("L3 as load and store", executeOnce<Wrong<Mutation::kPlainAwake>>(), Failure::kCheck,
               "no write to a closed descriptor");
  expectCaught("L3 as a store", executeOnce<Wrong<Mutation::kNeverCountPaid>>(), Failure::kCheck,
               "no write to a closed descriptor");
}

// ---------------------------------------------------------------------- and a
// few more

TEST(WakeupMutation, WakingWithoutTheExchangeWritesTooOften) {
  expectCaught("P2 without exchange", executeAndExecute<Wrong<Mutation::kWakeWithoutExchange>>(),
               Failure::kCheck, "");
}

TEST(WakeupMutation, EachOfTheFourMustBeSequentiallyConsistent) {
  Options options;
  options.staleLoads = 1;
  const char* lost = "loop sleeps on eventfd";
  expectCaught("P1 acq_rel", executeOnce<Wrong<Mutation::kWeakP1>>(), Failure::kDeadlock, lost,
               options);
  expectCaught("P2 acquire", executeOnce<Wrong<Mutation::kWeakP2>>(), Failure::kDeadlock, lost,
               options);
  expectCaught("L1 acq_rel", executeOnce<Wrong<Mutation::kWeakL1>>(), Failure::kDeadlock, lost,
               options);
  expectCaught("L2 acquire", executeOnce<Wrong<Mutation::kWeakL2>>(), Failure::kDeadlock, lost,
               options);
}

TEST(WakeupMutation, WeakOrdersOfTheInboxAreRaces) {
  expectCaught("P1 relaxed", executeOnce<Wrong<Mutation::kRelaxedPush>>(), Failure::kRace,
               "race on");
  expectCaught("take relaxed", executeTwice<Wrong<Mutation::kRelaxedTake>>(), Failure::kRace,
               "race on");
}

}  // namespace
}  // namespace millrace::explorer
