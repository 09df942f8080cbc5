// SPDX-License-Identifier: Apache-2.0
// Small programs with known answers, and what tests of the explorer say about a result.
#pragma once

#include "explorer.h"

#include <millrace/base/atomic.h>

#include <gtest/gtest.h>

namespace millrace::explorer {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kSeqCst = std::memory_order_seq_cst;

inline Result expectFailure(const Scenario& scenario, Failure kind, const Options& options = {}) {
  Result result = explore(options, scenario);
  EXPECT_EQ(result.failure, kind) << result;
  if (result.failure != Failure::kNone) {
    // The schedule repeats itself exactly.
    const Result again = replay(options, scenario, result.choices);
    EXPECT_EQ(again.failure, result.failure) << again;
    EXPECT_EQ(again.message, result.message);
    EXPECT_EQ(again.schedule, result.schedule);
  }
  return result;
}

inline Result expectClean(const Scenario& scenario, const Options& options = {}) {
  Result result = explore(options, scenario);
  EXPECT_TRUE(result.ok()) << result;
  return result;
}

/// Two threads that store to one word and load the other: at least one sees the store of the other.
inline Scenario storeBuffering(MemoryOrder store, MemoryOrder load) {
  return [=](Execution& run) {
    struct State {
      Atomic<int> x{0}, y{0};
      int r0 = -1, r1 = -1;
    };
    auto& s = run.make<State>();
    name(&s.x, "x");
    name(&s.y, "y");
    run.thread("left", [&s, store, load] {
      s.x.store(1, store);
      s.r0 = s.y.load(load);
    });
    run.thread("right", [&s, store, load] {
      s.y.store(1, store);
      s.r1 = s.x.load(load);
    });
    run.finally([&s] { EXPLORE_CHECK(s.r0 + s.r1 > 0, "one of them sees the other"); });
  };
}

/// Data that is published by a flag.
inline Scenario messagePassing(MemoryOrder store, MemoryOrder load) {
  return [=](Execution& run) {
    struct State {
      Plain<int> data{0};
      Atomic<bool> flag{false};
    };
    auto& s = run.make<State>();
    name(&s.data, "data");
    name(&s.flag, "flag");
    run.thread("producer", [&s, store] {
      s.data.write() = 42;
      s.flag.store(true, store);
    });
    run.thread("consumer", [&s, load] {
      if (s.flag.load(load)) EXPLORE_CHECK(s.data.read() == 42, "the message arrived");
    });
  };
}

/// The flag goes through the hands of a third thread, which goes on with the release sequence or
/// breaks it.
inline Scenario releaseSequence(bool breakIt) {
  return [=](Execution& run) {
    struct State {
      Plain<int> data{0};
      Atomic<int> flag{0};
    };
    auto& s = run.make<State>();
    run.thread("writer", [&s] {
      s.data.write() = 1;
      s.flag.store(1, kRelease);
    });
    run.thread("middle", [&s, breakIt] {
      if (breakIt) {
        if (s.flag.load(kRelaxed) == 1)
          s.flag.store(2, kRelaxed);  // a store of another thread ends the sequence
      } else {
        int one = 1;
        s.flag.compare_exchange_strong(one, 2, kRelaxed);
      }
    });
    run.thread("reader", [&s] {
      if (s.flag.load(kAcquire) == 2) EXPLORE_CHECK(s.data.read() == 1, "data was published");
    });
  };
}

}  // namespace millrace::explorer
