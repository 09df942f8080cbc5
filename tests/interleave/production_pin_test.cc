// SPDX-License-Identifier: Apache-2.0
// Threads that look at a descriptor while its owner closes it: the library's source under the explorer.
#include "base/pin.h"
#include "expect_explored.h"

#include <gtest/gtest.h>

namespace millrace::explorer {
namespace {

constexpr std::uint32_t kOpen = 1;
constexpr std::uint32_t kPinned = 2;

struct PinState {
  Atomic<std::uint32_t> state{kOpen};
  Plain<int> descriptor{7};  // the explorer finds who looks while it is closed
};

int look(PinState& s) {
  return internal::lookWhileOpen(s.state, kOpen, kPinned, [&s] { return s.descriptor.read(); });
}

void close(PinState& s, bool waits) {
  s.state.fetch_and(~kOpen, std::memory_order_seq_cst);
  if (waits) internal::awaitLookers(s.state, kPinned);
  s.descriptor.write() = -1;
}

Scenario closing(bool waits) {
  return [waits](Execution& run) {
    auto& s = run.make<PinState>();
    for (const char* name : {"one", "other"}) {
      run.thread(name, [&s] {
        const int seen = look(s);
        EXPLORE_CHECK(seen == 7 || seen == 0, "open, or nothing");
      });
    }
    run.thread("owner", [&s, waits] { close(s, waits); });
    run.finally([&s] { EXPLORE_CHECK(look(s) == 0, "closed for good"); });
  };
}

TEST(ProductionPin, NobodyLooksAtWhatIsClosed) {
  expectClean("look || look || close", closing(true));
}

// The test can fail: an owner that does not wait is found out.
TEST(ProductionPin, AnOwnerThatDoesNotWaitIsFound) {
  EXPECT_FALSE(explore({}, closing(false)).ok());
}

}  // namespace
}  // namespace millrace::explorer
