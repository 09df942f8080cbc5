// SPDX-License-Identifier: Apache-2.0
// The explorer against an independent judge: random small programs, whose outcomes a plain
// breadth-first search over the states of an abstract TSO machine knows too. The two share no code.
#include "explorer.h"
#include "slow_build.h"
#include "tso_machine.h"

#include <millrace/base/atomic.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace millrace::explorer {
namespace {

constexpr int kEffort = kSlowBuild ? 1 : 8;

struct Shared {
  std::array<Atomic<uint32_t>, kWords> words{};
  Mutex mutex;
  std::vector<std::vector<int>> reads;
  std::array<bool, 4> holds{};
};

void runInstruction(Shared& s, size_t thread, const Instruction& i) {
  std::vector<int>& reads = s.reads[thread];
  bool& holds = s.holds[thread];
  Atomic<uint32_t>& word = s.words[static_cast<size_t>(i.word)];
  const auto a = static_cast<uint32_t>(i.a);
  switch (i.code) {
    case Code::kLoad:
      reads.push_back(static_cast<int>(word.load(std::memory_order_acquire)));
      break;
    case Code::kStore:
      word.store(a, std::memory_order_release);
      break;
    case Code::kStoreSeqCst:
      word.store(a);
      break;
    case Code::kAdd:
      reads.push_back(static_cast<int>(word.fetch_add(a)));
      break;
    case Code::kCas: {
      uint32_t expected = a;
      word.compare_exchange_strong(expected, static_cast<uint32_t>(i.b));
      reads.push_back(static_cast<int>(expected));
      break;
    }
    case Code::kFence:
      fence(std::memory_order_seq_cst);
      break;
    case Code::kAwait:
      while (word.load(std::memory_order_acquire) == a) cpuRelax();
      break;
    case Code::kLock:
      s.mutex.lock();
      holds = true;
      break;
    case Code::kTryLock:
      holds = s.mutex.try_lock();
      reads.push_back(holds ? 1 : 0);
      break;
    case Code::kUnlock:
      if (holds) s.mutex.unlock();
      holds = false;
      break;
    case Code::kSleep:
      reads.push_back(static_cast<int>(futexWait(word, a, i.b != 0 ? i.b : kForever)));
      break;
    case Code::kWake:
      futexWake(word, 1);
      break;
  }
}

Result runExplored(const Program& program, const Options& options, std::set<Outcome>& outcomes) {
  return explore(options, [&](Execution& run) {
    auto& s = run.make<Shared>();
    s.reads.resize(program.size());
    static const char* const names[] = {"t0", "t1", "t2", "t3"};
    for (size_t t = 0; t < program.size(); ++t) {
      run.thread(names[t], [&s, &program, t] {
        for (const Instruction& i : program[t]) runInstruction(s, t, i);
      });
    }
    run.finally([&s, &outcomes] {
      Outcome outcome;
      for (const auto& reads : s.reads) outcome.insert(outcome.end(), reads.begin(), reads.end());
      for (const auto& word : s.words) outcome.push_back(static_cast<int>(word.load()));
      outcomes.insert(outcome);
    });
  });
}

Program randomProgram(std::mt19937& random, int threads, int length, bool blocking) {
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  Program program(static_cast<size_t>(threads));
  int value = 1;
  for (auto& thread : program) {
    bool locked = false;
    for (int i = 0; i < length; ++i) {
      const int word = below(kWords);
      const int kind = below(blocking ? 16 : 10);
      if (kind < 3)
        thread.push_back({Code::kLoad, word, 0, 0});
      else if (kind < 6)
        thread.push_back({Code::kStore, word, value++, 0});
      else if (kind < 7)
        thread.push_back({Code::kStoreSeqCst, word, value++, 0});
      else if (kind < 8)
        thread.push_back({Code::kAdd, word, 100, 0});
      else if (kind < 9)
        thread.push_back({Code::kCas, word, below(value), 50 + value++});
      else if (kind < 10)
        thread.push_back({Code::kFence, 0, 0, 0});
      else if (kind < 11)
        thread.push_back({Code::kAwait, word, 0, 0});
      else if (kind < 12 && !locked)
        thread.push_back({Code::kLock, 0, 0, 0}), locked = true;
      else if (kind < 13 && !locked)
        thread.push_back({Code::kTryLock, 0, 0, 0}), locked = true;
      else if (kind < 15)
        thread.push_back({Code::kSleep, word, 0, 10 * below(3)});
      else
        thread.push_back({Code::kWake, word, 0, 0});
    }
    if (locked) thread.push_back({Code::kUnlock, 0, 0, 0});
  }
  return program;
}

struct Totals {
  uint64_t executions = 0, redundant = 0, outcomes = 0, stuck = 0;
};

void compareWithMachine(unsigned seed, int programs, int threads, int length, bool blocking) {
  std::mt19937 random(seed);
  Totals totals;
  for (int n = 0; n < programs; ++n) {
    const Program program = randomProgram(random, threads, length, blocking);
    Machine machine(program);
    machine.search();
    std::set<Outcome> outcomes;

    const Result result = runExplored(program, {}, outcomes);

    if (machine.stuck) {
      ASSERT_EQ(result.failure, Failure::kDeadlock) << toString(program) << result;
    } else {
      ASSERT_TRUE(result.ok()) << toString(program) << result;
      ASSERT_EQ(outcomes, machine.outcomes) << toString(program);
    }
    totals.executions += result.executions;
    totals.redundant += result.redundant;
    totals.outcomes += machine.outcomes.size();
    totals.stuck += machine.stuck ? 1 : 0;
  }
  std::printf(
      "%d programs: %llu executions (%llu redundant) for %llu outcomes, %llu can get stuck\n",
      programs, static_cast<unsigned long long>(totals.executions),
      static_cast<unsigned long long>(totals.redundant),
      static_cast<unsigned long long>(totals.outcomes),
      static_cast<unsigned long long>(totals.stuck));
}

TEST(ExplorerRandom, TwoThreadsHaveExactlyTheOutcomesOfTheMachine) {
  compareWithMachine(1, 250 * kEffort, 2, 4, false);
}

TEST(ExplorerRandom, ThreeThreadsHaveExactlyTheOutcomesOfTheMachine) {
  compareWithMachine(2, 60 * kEffort, 3, 3, false);
}

TEST(ExplorerRandom, FourThreadsHaveExactlyTheOutcomesOfTheMachine) {
  compareWithMachine(3, 20 * kEffort, 4, 2, false);
}

TEST(ExplorerRandom, BlockingProgramsHaveExactlyTheOutcomesOfTheMachine) {
  compareWithMachine(4, 250 * kEffort, 2, 4, true);
  compareWithMachine(5, 60 * kEffort, 3, 3, true);
}

// The machine knows no stale loads: here the full search is the judge.
TEST(ExplorerRandom, TheReductionFindsTheOutcomesOfStaleLoads) {
  std::mt19937 random(7);
  size_t more = 0;
  for (int n = 0; n < 40 * kEffort; ++n) {
    const Program program = randomProgram(random, 2 + n % 2, n % 2 == 0 ? 4 : 2, false);
    Options options;
    options.staleLoads = 1;
    Options full = options;
    full.reduction = false;
    std::set<Outcome> outcomes, all, fresh;

    ASSERT_TRUE(runExplored(program, options, outcomes).ok()) << toString(program);
    ASSERT_TRUE(runExplored(program, full, all).ok()) << toString(program);
    ASSERT_TRUE(runExplored(program, {}, fresh).ok()) << toString(program);

    ASSERT_EQ(outcomes, all) << toString(program);
    ASSERT_TRUE(std::includes(all.begin(), all.end(), fresh.begin(), fresh.end()))
        << toString(program);
    if (all.size() > fresh.size()) ++more;
  }
  EXPECT_GT(more, 0U);
}

// Races depend on more than outcomes: the reduced search must find one exactly when the full search
// does.
TEST(ExplorerRandom, TheReductionFindsARaceExactlyWhenTheFullSearchDoes) {
  std::mt19937 random(6);
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  constexpr MemoryOrder loads[] = {std::memory_order_relaxed, std::memory_order_acquire};
  constexpr MemoryOrder stores[] = {std::memory_order_relaxed, std::memory_order_release,
                                    std::memory_order_seq_cst};
  std::map<bool, int> count;
  for (int n = 0; n < 200 * kEffort; ++n) {
    struct Step {
      int kind, word;
      MemoryOrder order;
    };
    std::vector<std::vector<Step>> program(static_cast<size_t>(2 + below(2)));
    for (auto& thread : program) {
      for (int i = 0; i < 3; ++i) {
        const int kind = below(5);
        thread.push_back({kind, below(2), kind == 0 ? loads[below(2)] : stores[below(3)]});
      }
    }
    const Scenario scenario = [&program](Execution& run) {
      struct State {
        std::array<Atomic<int>, 2> words{};
        std::array<Plain<int>, 2> data{};
      };
      auto& s = run.make<State>();
      for (const auto& thread : program) {
        run.thread("t", [&s, &thread] {
          for (const Step& step : thread) {
            const auto at = static_cast<size_t>(step.word);
            if (step.kind == 0 && s.words[at].load(step.order) == 0)
              return;  // not published yet: keep off the data
            if (step.kind == 1) s.words[at].store(1, step.order);
            if (step.kind == 2) s.words[at].fetch_add(1, step.order);
            if (step.kind == 3) (void)s.data[at].read();
            if (step.kind == 4) s.data[at].write() = 1;
          }
        });
      }
    };
    Options full;
    full.reduction = false;

    const Result reduced = explore({}, scenario);
    const Result everything = explore(full, scenario);

    ASSERT_EQ(reduced.failure, everything.failure) << reduced << everything;
    ++count[reduced.failure == Failure::kRace];
  }
  EXPECT_GT(count[true], 20);
  EXPECT_GT(count[false], 20);
}

}  // namespace
}  // namespace millrace::explorer
