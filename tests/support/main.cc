// SPDX-License-Identifier: Apache-2.0
// main() of every layer's test program.
#include "support/census.h"

#include <gmock/gmock.h>

#include <thread>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);  // initialises googletest as well
  // Death tests start the program anew: forking one that has threads may hang.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // ThreadSanitizer makes a thread of its own when the first one is made; it is no test's leak.
  std::thread([] {}).join();
  testing::UnitTest::GetInstance()->listeners().Append(new millrace::test::CensusListener);
  return RUN_ALL_TESTS();
}
