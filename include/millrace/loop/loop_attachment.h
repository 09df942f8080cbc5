// SPDX-License-Identifier: Apache-2.0
// LoopAttachment: what an upper layer keeps on a loop, such as its channels and their buffers.
//
// A fixed place on the loop instead of a thread-local: several loops may share a thread. Loop thread
// only, except where a line says "any thread".
#pragma once

#include <millrace/base/export.h>
#include <millrace/loop/metrics.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct ShutdownReport;

/// How closeAll() treats what is still registered.
enum class CloseMode { linger, force };

/// Counters of an attachment. They live in the loop: any thread may read them, at any time.
using AttachmentFigures = std::array<internal::Counter, 12>;

/// Owned by its loop from EventLoop::attach() until the loop is shut down.
class MILLRACE_API LoopAttachment {
 public:
  LoopAttachment() noexcept = default;
  LoopAttachment(const LoopAttachment&) = delete;
  LoopAttachment& operator=(const LoopAttachment&) = delete;
  virtual ~LoopAttachment();

  /// Called when hasWork() and a callback of the engine, 64 tasks or the last task of a turn have
  /// run.
  virtual void afterCallbacks() noexcept = 0;
  /// Begins to close everything; done when registrations() is 0.
  virtual void closeAll(CloseMode mode) = 0;
  /// While the loop shuts down its timers are closed: what has to happen at a certain time comes from
  /// here. Nanoseconds of the loop's clock; INT64_MAX: nothing waits.
  virtual std::int64_t nextDue() const noexcept { return INT64_MAX; }
  /// Does what is due.
  virtual void runDue(std::int64_t now) noexcept { static_cast<void>(now); }
  /// The loop's last moments come on another thread than its turns did.
  virtual void threadChanged() noexcept {}
  /// Adds what was cut.
  virtual void addTo(ShutdownReport& report) const = 0;
  /// One line for each thing, for dump().
  virtual void describe(std::vector<std::string>& lines) const = 0;

  bool hasWork() const noexcept { return hasWork_; }
  /// What still lives on the loop, and keeps it from ending.
  std::size_t registrations() const noexcept { return count_->load(std::memory_order_relaxed); }

 protected:
  AttachmentFigures& figures() const noexcept { return *figures_; }
  void setHasWork(bool wanted) noexcept { hasWork_ = wanted; }
  void setRegistrations(std::size_t count) noexcept {
    count_->store(count, std::memory_order_relaxed);
  }

 private:
  friend class EventLoop;
  bool hasWork_ = false;
  std::atomic<std::size_t>* count_ = nullptr;  // both are the loop's
  AttachmentFigures* figures_ = nullptr;
};

}  // namespace millrace
