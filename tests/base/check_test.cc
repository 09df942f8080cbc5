// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Check, ThatHoldsDoesNothingAndIsMadeOnce) {
  int evaluations = 0;

  MR_CHECK(++evaluations == 1, "counted wrongly");

  EXPECT_EQ(evaluations, 1);
}

TEST(CheckDeathTest, ThatFailsSaysWhatAndWhere) {
  const int value = 3;

  EXPECT_DEATH(MR_CHECK(value == 4, "four was expected"),
               "millrace: bug: four was expected \\(value == 4, .*check_test\\.cc:[0-9]+\\)");
}

}  // namespace
}  // namespace millrace
