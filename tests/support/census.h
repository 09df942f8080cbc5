// SPDX-License-Identifier: Apache-2.0
// The census: what the process holds before and after every test. A test that leaves a descriptor,
// a thread or anything with a gauge behind fails, with the names of what it left.
#pragma once

#include <millrace/base/clock.h>

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::test {

/// What the process holds at one moment. A value.
struct Census {
  std::map<std::int64_t, std::string> descriptors;  ///< number and what it is ("socket:[81]")
  std::map<std::int64_t, std::string> threads;      ///< kernel thread id and name
  std::map<std::string, std::int64_t> gauges;       ///< see addCensusGauge

  static Census take();
};

/// One line for each thing that `after` has and `before` has not.
std::vector<std::string> leaksBetween(const Census& before, const Census& after);

/// Takes censuses until nothing is left over or `limit` (real time) has passed, for threads that
/// are just ending. Returns what is left over then.
std::vector<std::string> leaksSince(const Census& before, Duration limit = std::chrono::seconds(2));

/// Adds a figure that must not be higher after a test than before, such as live channels or bytes
/// of a pool. `read` is called on the main thread.
void addCensusGauge(std::string name, std::function<std::int64_t()> read);

/// Threads whose names begin with `prefix` are not counted: for those of process-wide executors
/// that live on by design.
void ignoreThreadsInCensus(std::string prefix);

/// Compares before and after every test; main() installs it.
class CensusListener : public testing::EmptyTestEventListener {
 public:
  /// `patience`: how long threads that are just ending may take.
  explicit CensusListener(Duration patience = std::chrono::seconds(2)) : patience_(patience) {}

  void OnTestStart(const testing::TestInfo& info) override;
  void OnTestEnd(const testing::TestInfo& info) override;

 private:
  const Duration patience_;
  Census before_;
};

}  // namespace millrace::test
