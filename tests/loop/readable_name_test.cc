// SPDX-License-Identifier: Apache-2.0
#include "loop/readable_name.h"

#include <millrace/concurrent/event_executor.h>

#include <gtest/gtest.h>

#include <map>

namespace quarry {

struct Haul {
  std::map<int, int> operator()() const { return {}; }
};

}  // namespace quarry

namespace millrace {
namespace {

TEST(ReadableName, IsDemangled) {
  EXPECT_EQ(readableName("_ZN6quarry9loadStoneEv"), "quarry::loadStone()");
  EXPECT_EQ(readableName("main"), "main");
  EXPECT_EQ(readableName(typeid(quarry::Haul)), "quarry::Haul");
}

TEST(ReadableName, OfSubmittedWorkIsItsOwn) {
  const auto task = internal::completing(Promise<std::map<int, int>>(), quarry::Haul());

  EXPECT_EQ(readableName(typeid(task)), "quarry::Haul");
}

}  // namespace
}  // namespace millrace
