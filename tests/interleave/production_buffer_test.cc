// SPDX-License-Identifier: Apache-2.0
// Buffers that come home from other threads, and a pool that ends meanwhile: the library's sources
// under the explorer. What is freed too early or never shows under AddressSanitizer.
#include "buffer/pool_core.h"
#include "expect_explored.h"

#include <gtest/gtest.h>

namespace millrace::explorer {
namespace {

using ::millrace::internal::Block;
using ::millrace::internal::PoolCore;

struct BufferState {
  PoolCore* core = new PoolCore(kLimit);
  Block* first = core->allocate(64);
  Block* second = core->allocate(64);
  static constexpr std::size_t kLimit = 1024;
};

TEST(ProductionBuffer, ABlockComesHomeOnceAndWhole) {
  expectClean("give back || give back || allocate", [](Execution& run) {
    auto& s = run.make<BufferState>();
    run.thread("first", [&s] {
      s.first->bytes[0] = std::byte{1};
      s.core->giveBack(s.first);
    });
    run.thread("second", [&s] { s.core->giveBack(s.second); });
    run.thread("home", [&s] {
      Block* block = s.core->allocate(64);
      EXPLORE_CHECK(block->owners.load(std::memory_order_relaxed) == 1, "it has one owner");
      s.core->takeHome(block);
    });
    run.finally([&s] {
      EXPLORE_CHECK(s.core->live() == 0, "all are back");
      s.core->close();
    });
  });
}

TEST(ProductionBuffer, ThePoolEndsWithItsLastBlock) {
  expectClean("give back || give back || close", [](Execution& run) {
    auto& s = run.make<BufferState>();
    run.thread("first", [&s] { s.core->giveBack(s.first); });
    run.thread("second", [&s] { s.core->giveBack(s.second); });
    run.thread("home", [&s] { s.core->close(); });
  });
}

TEST(ProductionBuffer, BlocksAboveTheLimitAreFreedWhereTheyAreDropped) {
  expectClean("give back || give back || close, with room for one", [](Execution& run) {
    struct Small {
      PoolCore* core = new PoolCore(100);
      Block* first = core->allocate(64);
      Block* second = core->allocate(64);
    };
    auto& s = run.make<Small>();
    run.thread("first", [&s] { s.core->giveBack(s.first); });
    run.thread("second", [&s] { s.core->giveBack(s.second); });
    run.thread("home", [&s] { s.core->close(); });
  });
}

}  // namespace
}  // namespace millrace::explorer
