// SPDX-License-Identifier: Apache-2.0
// How much the explorer visits: counts, choices, limits, stale loads.
#include "litmus.h"

#include <set>

namespace millrace::explorer {
namespace {

TEST(ExplorerSearch, TheNumberOfExecutionsIsTheSameEveryTime) {
  const Result first = explore({}, storeBuffering(kSeqCst, kSeqCst));
  const Result second = explore({}, storeBuffering(kSeqCst, kSeqCst));

  EXPECT_EQ(first.executions, second.executions);
  EXPECT_EQ(first.states, second.states);
  // Four steps with a conflict on x and one on y: of the four ways to order them, one is
  // impossible.
  EXPECT_EQ(first.executions - first.redundant, 3U);
  Options all;
  all.reduction = false;
  EXPECT_EQ(explore(all, storeBuffering(kSeqCst, kSeqCst)).executions, 6U);  // 4! / (2! 2!)
  all.preemptionBound = 0;
  EXPECT_EQ(explore(all, storeBuffering(kSeqCst, kSeqCst)).executions, 2U);
}

TEST(ExplorerSearch, StepsThatAllConflictComeInEveryOrder) {
  const Scenario scenario = [](Execution& run) {
    auto& n = run.make<Atomic<int>>(0);
    for (const char* who : {"a", "b", "c"}) {
      run.thread(who, [&n] {
        n.fetch_add(1);
        n.fetch_add(1);
      });
    }
  };
  const Result result = expectClean(scenario);
  EXPECT_EQ(result.executions, 90U);  // 6! / (2! 2! 2!)
  EXPECT_EQ(result.redundant, 0U);
}

TEST(ExplorerSearch, StepsThatNeverConflictComeInOneOrder) {
  const Result result = expectClean([](Execution& run) {
    for (const char* who : {"a", "b", "c", "d"}) {
      run.thread(who, [] {
        Atomic<int> own{0};
        own.fetch_add(1);
        own.store(2);
      });
    }
  });
  EXPECT_EQ(result.executions, 1U);
}

TEST(ExplorerSearch, ChooseVisitsEveryAlternative) {
  std::set<int> seen;
  const Result result = expectClean([&seen](Execution& run) {
    const int a = choose(3);
    run.thread("a", [&seen, a] { seen.insert(a * 10 + choose(4)); });
  });

  EXPECT_EQ(result.executions, 12U);
  EXPECT_EQ(seen.size(), 12U);
}

TEST(ExplorerSearch, SpuriousFailuresComeWhenAskedFor) {
  const Scenario once = [](Execution& run) {
    struct State {
      Atomic<int> x{0};
    };
    auto& s = run.make<State>();
    run.thread("a", [&s] {
      int zero = 0;
      EXPLORE_CHECK(s.x.compare_exchange_weak(zero, 1), "works at the first attempt");
    });
  };
  expectClean(once);
  Options options;
  options.spuriousCasFailures = 1;
  expectFailure(once, Failure::kCheck, options);
}

TEST(ExplorerSearch, AScenarioThatDoesNotRepeatItselfIsReported) {
  int runs = 0;
  const Result result = explore({}, [&runs](Execution& run) {
    struct State {
      Atomic<int> x{0}, y{0};
    };
    auto& s = run.make<State>();
    const bool odd = ++runs % 2 == 1;
    run.thread("a", [&s, odd] { s.x.store(1, odd ? kSeqCst : kRelaxed); });
    run.thread("b", [&s] { s.x.store(2); });
  });
  EXPECT_EQ(result.failure, Failure::kNondeterminism) << result;
}

// ---------------------------------------------------------------------- stale loads

Scenario independentReadsOfIndependentWrites(MemoryOrder load) {
  return [load](Execution& run) {
    struct State {
      Atomic<int> x{0}, y{0};
      int r[4] = {};
    };
    auto& s = run.make<State>();
    run.thread("x", [&s] { s.x.store(1); });
    run.thread("y", [&s] { s.y.store(1); });
    run.thread("xy", [&s, load] {
      s.r[0] = s.x.load(load);
      s.r[1] = s.y.load(load);
    });
    run.thread("yx", [&s, load] {
      s.r[2] = s.y.load(load);
      s.r[3] = s.x.load(load);
    });
    run.finally([&s] {
      EXPLORE_CHECK(s.r[0] == 0 || s.r[1] == 1 || s.r[2] == 0 || s.r[3] == 1,
                    "all agree on the order of the writes");
    });
  };
}

TEST(ExplorerSearch, StaleLoadsShowReadersThatDisagree) {
  Options options;
  options.staleLoads = 2;
  expectClean(
      independentReadsOfIndependentWrites(kAcquire));  // a machine with store buffers cannot
  expectFailure(independentReadsOfIndependentWrites(kAcquire), Failure::kCheck, options);
  expectClean(independentReadsOfIndependentWrites(kSeqCst), options);
}

TEST(ExplorerSearch, StaleLoadsKeepCoherenceAndHappensBefore) {
  Options options;
  options.staleLoads = 3;
  expectClean(
      [](Execution& run) {
        struct State {
          Atomic<int> x{0}, flag{0};
          int last = 0;
        };
        auto& s = run.make<State>();
        run.thread("writer", [&s] {
          s.x.store(1, kRelaxed);
          s.x.store(2, kRelaxed);
        });
        run.thread("reader", [&s] {
          const int first = s.x.load(kRelaxed);
          const int second = s.x.load(kRelaxed);
          EXPLORE_CHECK(second >= first, "values do not go back");
          s.last = second;
          s.flag.store(1, kRelease);
        });
        run.thread("third", [&s] {
          if (s.flag.load(kAcquire) == 1)
            EXPLORE_CHECK(s.x.load(kRelaxed) >= s.last, "nor across threads");
        });
      },
      options);
  expectClean(messagePassing(kRelease, kAcquire), options);
  expectClean(releaseSequence(false), options);
  expectClean(storeBuffering(kSeqCst, kSeqCst), options);
}

TEST(ExplorerSearch, ASpinningThreadIsNotLeftAloneWithAStaleValue) {
  Options options;
  options.staleLoads = 2;
  expectClean(
      [](Execution& run) {
        auto& flag = run.make<Atomic<int>>(0);
        run.thread("setter", [&flag] { flag.store(1); });
        run.thread("spinner", [&flag] {
          while (flag.load(kRelaxed) == 0) cpuRelax();
        });
      },
      options);
}

// ---------------------------------------------------------------------- the search

TEST(ExplorerSearch, ALimitOfExecutionsIsNotSuccess) {
  Options options;
  options.maxExecutions = 1;
  const Result result = explore(options, storeBuffering(kSeqCst, kSeqCst));
  EXPECT_EQ(result.failure, Failure::kNone);
  EXPECT_FALSE(result.ok());
}

}  // namespace
}  // namespace millrace::explorer
