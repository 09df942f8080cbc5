// SPDX-License-Identifier: Apache-2.0
// What the interleaving tests say about a scenario; prints how many states were seen.
#pragma once

#include "explorer.h"

#include <gtest/gtest.h>

#include <iostream>
#include <string>

namespace millrace::explorer {

/// Every schedule was explored and none fails.
inline void expectClean(const char* what, const Scenario& scenario, const Options& options = {}) {
  const Result result = explore(options, scenario);
  EXPECT_TRUE(result.ok()) << what << ": " << result;
  std::cout << what << ": " << result.summary() << '\n';
}

}  // namespace millrace::explorer
