// SPDX-License-Identifier: Apache-2.0
// The future of a channel's end, asked for while the channel ends: the library's source under the explorer.
#include "channel/end_state.h"
#include "expect_explored.h"

#include <millrace/concurrent/executor.h>

#include <gtest/gtest.h>

namespace millrace::explorer {
namespace {

using internal::ResultState;
constexpr std::uint32_t kOpen = 1;
constexpr std::uint32_t kEnded = 2;

struct EndingState {
  Atomic<std::uint32_t> state{kOpen};
  Atomic<ResultState<void>*> place{nullptr};
  Plain<int> descriptor{7};  // the explorer finds who is told too early
  Plain<int> heard{0};

  ~EndingState() {
    if (ResultState<void>* there = place.load(std::memory_order_relaxed)) there->unref();
  }
  ResultState<void>& ask() { return internal::endState(place, state, kEnded, immediateExecutor()); }
};

/// `early`: the end is told before it has come.
Scenario ending(bool early) {
  return [early](Execution& run) {
    auto& s = run.make<EndingState>();
    for (const char* name : {"one", "other"}) {
      run.thread(name, [&s] {
        ResultState<void>& future = s.ask();
        if (future.isDone())
          EXPLORE_CHECK(s.descriptor.read() == -1, "told of an end that has come");
      });
    }
    run.thread("owner", [&s, early] {
      s.state.fetch_and(~kOpen, std::memory_order_seq_cst);
      if (early) internal::tellEnd(s.place, s.state, kEnded);
      s.descriptor.write() = -1;
      if (!early) internal::tellEnd(s.place, s.state, kEnded);
    });
    run.finally([&s] {
      ResultState<void>* there = s.place.load(std::memory_order_relaxed);
      EXPLORE_CHECK(there != nullptr && there->isDone(), "whoever asked is told");
    });
  };
}

TEST(ProductionEnd, IsToldWhenItHasComeAndToEverybody) {
  expectClean("ask || ask || end", ending(false));
}

// The test can fail.
TEST(ProductionEnd, ThatIsToldTooEarlyIsFound) { EXPECT_FALSE(explore({}, ending(true)).ok()); }

}  // namespace
}  // namespace millrace::explorer
