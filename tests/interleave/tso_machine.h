// SPDX-License-Identifier: Apache-2.0
// Small programs and an abstract machine with store buffers that knows all their outcomes.
// Independent of the explorer on purpose.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace millrace::explorer {

constexpr int kWords = 2;

enum class Code {
  kLoad,
  kStore,
  kStoreSeqCst,
  kAdd,
  kCas,
  kFence,
  kAwait,
  kLock,
  kTryLock,
  kUnlock,
  kSleep,
  kWake,
};

/// `word` is what it works on; `a` and `b` are operands: kSleep sleeps while the word is `a`, until
/// time `b` (0: until woken). kUnlock does nothing if the thread does not hold the mutex.
struct Instruction {
  Code code;
  int word, a, b;
};

using Program = std::vector<std::vector<Instruction>>;
using Outcome = std::vector<int>;  // what every thread read, in order, then memory

inline std::string toString(const Program& program) {
  static const char* const names[] = {"load",  "store", "storeSC", "add",    "cas",   "fence",
                                      "await", "lock",  "tryLock", "unlock", "sleep", "wake"};
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

/// The judge: visits every state of the machine once.
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
    const bool needsEmpty =
        i.code != Code::kLoad && i.code != Code::kStore && i.code != Code::kAwait;
    if (needsEmpty && !self.buffer.empty()) return false;
    switch (i.code) {
      case Code::kLoad:
        self.reads.push_back(visible);
        break;
      case Code::kStore:
        self.buffer.emplace_back(i.word, i.a);
        break;
      case Code::kStoreSeqCst:
        memory = i.a;
        break;
      case Code::kAdd:
        self.reads.push_back(memory);
        memory += i.a;
        break;
      case Code::kCas:
        self.reads.push_back(memory);
        if (memory == i.a) memory = i.b;
        break;
      case Code::kFence:
        break;
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

}  // namespace millrace::explorer
