// SPDX-License-Identifier: Apache-2.0
// The explorer against an independent judge: random small programs, whose outcomes a plain breadth-first search
// over the states of an abstract TSO machine knows too. The two share no code.
#include "explorer.h"

#include <millrace/base/atomic.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace millrace::explorer {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
constexpr int kEffort = 1;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr int kEffort = 1;
#else
constexpr int kEffort = 8;
#endif
#else
constexpr int kEffort = 8;
#endif

constexpr int kWords = 2;

enum class Code {
  kLoad, kStore, kStoreSeqCst, kAdd, kCas, kFence, kAwait, kLock, kTryLock, kUnlock, kSleep, kWake,
};

/// `word` is what it works on; `a` and `b` are operands: kSleep sleeps while the word is `a`, until time `b` (0: until
/// woken). kUnlock does nothing if the thread does not hold the mutex.
struct Instruction {
  Code code;
  int word, a, b;
};

using Program = std::vector<std::vector<Instruction>>;
using Outcome = std::vector<int>;  // what every thread read, in order, then memory

std::string toString(const Program& program) {
  static const char* const names[] = {"load", "store", "storeSC", "add", "cas", "fence", "await", "lock", "tryLock", "unlock", "sleep", "wake"};
  std::string text;
  for (const auto& thread : program) {
    for (const Instruction& i : thread) {
      text += std::string(names[static_cast<size_t>(i.code)]) + "(" + std::to_string(i.word) + "," +
              std::to_string(i.a) + "," + std::to_string(i.b) + ") ";
    }
    text += "| ";
  }
  return text;
}

// ------------------------------------------------------------------------------------------ the judge

class Machine {
 public:
  explicit Machine(const Program& program) : program_(program) {}

  std::set<Outcome> outcomes;
  bool stuck = false;

  void search() {
    State start;
    start.threads.resize(program_.size());
    std::set<State> seen{start};
    std::vector<State> todo{start};
    while (!todo.empty()) {
      const State state = todo.back();
      todo.pop_back();
      bool moved = false;
      const auto visit = [&](const State& next) {
        moved = true;
        if (seen.insert(next).second) todo.push_back(next);
      };
      for (size_t t = 0; t < program_.size(); ++t) {
        if (!state.threads[t].buffer.empty()) visit(flushed(state, t));
        State next = state;
        if (step(next, t)) visit(next);
      }
      if (!moved && !timeOut(state, visit)) end(state);
    }
  }

 private:
  struct Thread {
    size_t at = 0;
    bool asleep = false;
    int deadline = 0;
    std::vector<int> reads;
    std::vector<std::pair<int, int>> buffer;
    auto operator<=>(const Thread&) const = default;
  };
  struct State {
    std::array<int, kWords> memory{};
    int holder = -1;
    int now = 0;
    std::vector<std::pair<int, size_t>> sleepers;  // word, thread
    std::vector<Thread> threads;
    auto operator<=>(const State&) const = default;
  };

  static State flushed(State state, size_t t) {
    auto& buffer = state.threads[t].buffer;
    state.memory[static_cast<size_t>(buffer.front().first)] = buffer.front().second;
    buffer.erase(buffer.begin());
    return state;
  }

  /// Nobody can move: time passes until the first sleeper gives up.
  template <class Visit>
  bool timeOut(const State& state, const Visit& visit) const {
    int earliest = INT_MAX;
    for (const Thread& thread : state.threads) {
      if (thread.asleep && thread.deadline != 0) earliest = std::min(earliest, thread.deadline);
    }
    for (size_t t = 0; t < state.threads.size(); ++t) {
      if (!state.threads[t].asleep || state.threads[t].deadline != earliest) continue;
      State next = state;
      next.now = std::max(next.now, earliest);
      next.threads[t].asleep = false;
      next.threads[t].reads.push_back(2);
      std::erase_if(next.sleepers, [t](const auto& sleeper) { return sleeper.second == t; });
      visit(next);
    }
    return earliest != INT_MAX;
  }

  /// Makes the next instruction of thread `t`; false if it cannot be made now.
  bool step(State& state, size_t t) const {
    Thread& self = state.threads[t];
    if (self.asleep || self.at == program_[t].size()) return false;
    const Instruction& i = program_[t][self.at];
    int& memory = state.memory[static_cast<size_t>(i.word)];
    int visible = memory;
    for (const auto& [word, value] : self.buffer) {
      if (word == i.word) visible = value;
    }
    const bool needsEmpty = i.code != Code::kLoad && i.code != Code::kStore && i.code != Code::kAwait;
    if (needsEmpty && !self.buffer.empty()) return false;
    switch (i.code) {
      case Code::kLoad: self.reads.push_back(visible); break;
      case Code::kStore: self.buffer.emplace_back(i.word, i.a); break;
      case Code::kStoreSeqCst: memory = i.a; break;
      case Code::kAdd:
        self.reads.push_back(memory);
        memory += i.a;
        break;
      case Code::kCas:
        self.reads.push_back(memory);
        if (memory == i.a) memory = i.b;
        break;
      case Code::kFence: break;
      case Code::kAwait:
        if (visible == i.a) return false;
        break;
      case Code::kLock:
        if (state.holder >= 0) return false;
        state.holder = static_cast<int>(t);
        break;
      case Code::kTryLock:
        self.reads.push_back(state.holder < 0 ? 1 : 0);
        if (state.holder < 0) state.holder = static_cast<int>(t);
        break;
      case Code::kUnlock:
        if (state.holder == static_cast<int>(t)) state.holder = -1;
        break;
      case Code::kSleep:
        if (memory != i.a) {
          self.reads.push_back(1);
        } else if (i.b != 0 && i.b <= state.now) {
          self.reads.push_back(2);
        } else {
          self.asleep = true;
          self.deadline = i.b;
          state.sleepers.emplace_back(i.word, t);
        }
        break;
      case Code::kWake:
        for (size_t k = 0; k < state.sleepers.size(); ++k) {
          if (state.sleepers[k].first != i.word) continue;
          state.threads[state.sleepers[k].second].asleep = false;
          state.threads[state.sleepers[k].second].reads.push_back(0);
          state.sleepers.erase(state.sleepers.begin() + static_cast<ptrdiff_t>(k));
          break;
        }
        break;
    }
    ++self.at;
    return true;
  }

  void end(const State& state) {
    Outcome outcome;
    for (size_t t = 0; t < program_.size(); ++t) {
      const Thread& thread = state.threads[t];
      if (thread.asleep || thread.at != program_[t].size()) {
        stuck = true;
        return;
      }
      outcome.insert(outcome.end(), thread.reads.begin(), thread.reads.end());
    }
    outcome.insert(outcome.end(), state.memory.begin(), state.memory.end());
    outcomes.insert(outcome);
  }

  const Program& program_;
};

// ------------------------------------------------------------------------------------------ the same, explored

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
    case Code::kLoad: reads.push_back(static_cast<int>(word.load(std::memory_order_acquire))); break;
    case Code::kStore: word.store(a, std::memory_order_release); break;
    case Code::kStoreSeqCst: word.store(a); break;
    case Code::kAdd: reads.push_back(static_cast<int>(word.fetch_add(a))); break;
    case Code::kCas: {
      uint32_t expected = a;
      word.compare_exchange_strong(expected, static_cast<uint32_t>(i.b));
      reads.push_back(static_cast<int>(expected));
      break;
    }
    case Code::kFence: fence(std::memory_order_seq_cst); break;
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
    case Code::kWake: futexWake(word, 1); break;
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
  const auto below = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Program program(static_cast<size_t>(threads));
  int value = 1;
  for (auto& thread : program) {
    bool locked = false;
    for (int i = 0; i < length; ++i) {
      const int word = below(kWords);
      const int kind = below(blocking ? 16 : 10);
      if (kind < 3) thread.push_back({Code::kLoad, word, 0, 0});
      else if (kind < 6) thread.push_back({Code::kStore, word, value++, 0});
      else if (kind < 7) thread.push_back({Code::kStoreSeqCst, word, value++, 0});
      else if (kind < 8) thread.push_back({Code::kAdd, word, 100, 0});
      else if (kind < 9) thread.push_back({Code::kCas, word, below(value), 50 + value++});
      else if (kind < 10) thread.push_back({Code::kFence, 0, 0, 0});
      else if (kind < 11) thread.push_back({Code::kAwait, word, 0, 0});
      else if (kind < 12 && !locked) thread.push_back({Code::kLock, 0, 0, 0}), locked = true;
      else if (kind < 13 && !locked) thread.push_back({Code::kTryLock, 0, 0, 0}), locked = true;
      else if (kind < 15) thread.push_back({Code::kSleep, word, 0, 10 * below(3)});
      else thread.push_back({Code::kWake, word, 0, 0});
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
  std::printf("%d programs: %llu executions (%llu redundant) for %llu outcomes, %llu can get stuck\n", programs,
              static_cast<unsigned long long>(totals.executions), static_cast<unsigned long long>(totals.redundant),
              static_cast<unsigned long long>(totals.outcomes), static_cast<unsigned long long>(totals.stuck));
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

// Races depend on more than outcomes: the reduced search must find one exactly when the full search does.
TEST(ExplorerRandom, TheReductionFindsARaceExactlyWhenTheFullSearchDoes) {
  std::mt19937 random(6);
  const auto below = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr MemoryOrder loads[] = {std::memory_order_relaxed, std::memory_order_acquire};
  constexpr MemoryOrder stores[] = {std::memory_order_relaxed, std::memory_order_release, std::memory_order_seq_cst};
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
            if (step.kind == 0 && s.words[at].load(step.order) == 0) return;  // not published yet: keep off the data
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
