// SPDX-License-Identifier: Apache-2.0
// Chooser: which of its executors a group gives work to next.
//
//   LoopOptions().chooser(leastLoaded())                            // one of ours
//   LoopOptions().chooser([](auto loops) { return std::make_unique<Mine>(loops); })   // yours
#pragma once

#include <millrace/base/export.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace millrace {

class EventExecutor;

/// Picks one executor after the other. Owned by its group, which owns the executors, too.
class MILLRACE_API Chooser {
 public:
  Chooser() noexcept = default;
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;
  virtual ~Chooser();

  /// The next one, always one of the children. Any thread, several at once.
  virtual EventExecutor& next() = 0;
};

/// Makes the chooser of a group; called once, after all children exist. The span is valid for the
/// length of the call, the children for the life of the chooser. Ours throw std::invalid_argument
/// if there are no children.
using ChooserFactory =
    std::function<std::unique_ptr<Chooser>(std::span<EventExecutor* const> children)>;

/// One after the other, whatever they have to do: 0, 1, … n-1, 0, … The counter has 64 bits and
/// takes centuries to wrap around. The default.
MILLRACE_API ChooserFactory roundRobin();

/// The one with the least load() at the moment, round robin among equals. Looks at every child, so
/// next() takes time in proportion to their number.
MILLRACE_API ChooserFactory leastLoaded();

/// roundRobin() whose counter begins at `start`, to see what happens after so many calls.
MILLRACE_API ChooserFactory roundRobinFromForTest(std::uint64_t start);

}  // namespace millrace
