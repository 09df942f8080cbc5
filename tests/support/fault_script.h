// SPDX-License-Identifier: Apache-2.0
// FaultScript: counts the system calls made in its scope and makes those fail that a test names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace millrace::test {

/// Stands between the library and the kernel from construction to destruction, for all threads.
///
/// One at a time (checked). Threads: any may make system calls; the script is written by one
/// thread. Calls carry their kernel names ("epoll_ctl"); an unknown name throws
/// std::invalid_argument. Counting begins at construction and k begins at 1. `close` may be made to
/// fail with `fail` only.
class FaultScript {
 public:
  FaultScript();
  FaultScript(const FaultScript&) = delete;
  FaultScript& operator=(const FaultScript&) = delete;
  ~FaultScript();

  /// The k-th call of this name, and `times - 1` that follow, fail with `error` and never reach the
  /// kernel. One rule per name; a later one replaces it.
  FaultScript& fail(std::string_view name, std::uint64_t k, int error, std::uint64_t times = 1);
  /// Every call of this name fails from now on.
  FaultScript& failAll(std::string_view name, int error);
  /// The k-th fallible call of all fails: those that can fail in the life of a healthy program,
  /// each with an errno that the kernel could give (the table in fault_script.cc).
  FaultScript& failOverall(std::uint64_t k);
  /// Makes `failOverall` and `fallible` see the calls of these names only.
  FaultScript& only(const std::vector<std::string_view>& names);
  /// Reads and writes on files, pipes and stream sockets move at most `most` bytes at a time.
  FaultScript& shortTransfers(std::size_t most = 1);
  /// Each call that a signal can break fails with EINTR at the first try and works at the second,
  /// for each thread and each name.
  FaultScript& interruptFirstTries();

  /// Calls of this name so far, failed ones included.
  std::uint64_t count(std::string_view name) const;
  /// Calls of all names so far.
  std::uint64_t total() const;
  /// Calls so far that failOverall could have failed.
  std::uint64_t fallible() const;
  /// Calls that the script has failed so far.
  std::uint64_t faults() const;
  /// The name of the call that was failed last, "" if none was.
  std::string_view lastFault() const;
};

/// Runs `scenario` again and again, with the first fallible call failing, then the second, and so
/// on, until a run meets no fault. Returns how many runs met one: the number of places where it can
/// fail.
///
/// Failures of assertions say which call was failed. Stops after a run that has a fatal failure.
/// With `names` only calls of these names are failed.
int forEachFault(const std::function<void(FaultScript&)>& scenario,
                 const std::vector<std::string_view>& names = {});

}  // namespace millrace::test
