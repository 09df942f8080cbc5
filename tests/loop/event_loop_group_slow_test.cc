// SPDX-License-Identifier: Apache-2.0
#include "support/census.h"
#include "support/heap_count.h"
#include "support/loop_test.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

// I8
TEST(EventLoopGroupSlow, TenThousandGroupsComeAndGoWithoutATrace) {
  const test::Census before = test::Census::take();
  std::int64_t heap = 0;
  for (int i = 0; i < 10'000; ++i) {
    {
      EventLoopGroup group(2);
      if (i % 4 == 0) group.submit([] {}).get();  // one loop of two starts
    }
    if (i == 1000) {
      awaitGlobalExecutor();
      heap = test::heapBytes();
    }
  }
  awaitGlobalExecutor();

  EXPECT_LT(test::heapBytes() - heap, 64 * 1024);  // 9000 groups would leave 7 bytes each
  EXPECT_EQ(test::leaksSince(before), std::vector<std::string>{});
}

}  // namespace
}  // namespace millrace
