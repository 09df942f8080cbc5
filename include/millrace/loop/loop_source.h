// SPDX-License-Identifier: Apache-2.0
// LoopSource: where the loops of a group come from, for those who may outlive the group's handle.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/ref.h>
#include <millrace/base/result.h>
#include <millrace/base/task.h>

#include <cstdint>
#include <vector>

namespace millrace {

class EventLoop;

/// Every call: any thread. Got from EventLoopGroup::source(); keeps the loops' memory alive, but not
/// running.
class MILLRACE_API LoopSource {
 public:
  LoopSource() noexcept;
  virtual ~LoopSource();

  /// True in a child process of the one that made it: its loops' threads stayed in the parent.
  bool isForked() const noexcept;
  /// False where waiting for its loops would be in vain or for ever: inside a loop's turn, in a
  /// forked child, while the program exits.
  bool mayWait() const noexcept;

  /// A loop for a new channel: the next one of a fixed group; of a group on demand an idle one, or a
  /// new one. Fails with Errc::rejected if there are too many, or the group shuts down.
  virtual Result<Ref<EventLoop>> acquire() = 0;
  /// No channel came to an acquired loop after all.
  virtual void giveBack(EventLoop& loop) noexcept = 0;
  /// The loops there are.
  virtual std::vector<Ref<EventLoop>> loops() const = 0;
  /// See EventLoopGroup::addShutdownListener.
  virtual std::uint64_t addShutdownListener(Task listener) = 0;
  virtual bool removeShutdownListener(std::uint64_t id) = 0;

 private:
  const std::uint64_t forkGeneration_;
};

}  // namespace millrace
