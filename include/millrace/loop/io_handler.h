// SPDX-License-Identifier: Apache-2.0
// IoHandler: the seam between an event loop and the way it waits. One engine implements it per
// kind.
//
// An engine knows descriptors and operations, no channel, no buffer, no policy. Loop thread only,
// except where a line says "any thread". docs/design/loop-turn.md shows when each call comes.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/loop/loop_attachment.h>
#include <millrace/loop/watch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace millrace {

class ReadinessIo;
class RingIo;

/// Identifies an engine by the address of this object.
struct IoType {
  const char* name;
};

/// What an engine may ask of the loop that drives it.
class IoLoop {
 public:
  /// The loop's name, for messages.
  virtual std::string_view name() const noexcept = 0;
  /// The loop's clock, which need not be real.
  virtual const Clock& clock() const noexcept = 0;
  /// Tasks wait: they run between dispatch() and the next wait().
  virtual bool hasTasks() const noexcept = 0;
  /// Before each callback of a user, for the watchdog.
  void callbackBegins(const std::type_info& what) noexcept {
    running.store(&what, std::memory_order_relaxed);
    callbacks.store(callbacks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// In the catch block around one: logs and counts it.
  virtual void callbackFailed(const std::type_info& what) noexcept = 0;
  /// After each callback.
  void callbackEnded() noexcept {
    if (attached != nullptr && attached->hasWork()) attached->afterCallbacks();
  }

  Atomic<const std::type_info*> running{nullptr};  ///< the task or callback that runs; any thread
  Atomic<std::uint64_t> callbacks{0};              ///< of descriptors, begun so far; any thread

  LoopAttachment* attached = nullptr;  ///< what the layer above keeps on this loop

 protected:
  ~IoLoop() = default;
};

/// What to watch, and how.
struct WatchRequest {
  int fd;
  std::uint32_t events;
  Trigger trigger;
  WatchCallback callback;
  WatchEnd onEnd;
};

/// Raw descriptors with callbacks, where an engine can. Loop thread only.
class FdWatch {
 public:
  /// Begins to watch; gives the watch's number, never 0.
  virtual Result<std::uint64_t> watch(WatchRequest request) = 0;
  /// Changes what it waits for. False if the watch has ended.
  virtual Result<bool> modifyWatch(std::uint64_t id, std::uint32_t events) = 0;
  /// Ends it: no callback comes after this, not even for events found already. False if it had
  /// ended.
  virtual bool unwatch(std::uint64_t id) noexcept = 0;
  /// How many there are.
  virtual std::size_t watches() const noexcept = 0;
  /// One line per watch, for dump().
  virtual void describe(std::vector<std::string>& lines) const = 0;

 protected:
  ~FdWatch() = default;
};

/// What one wait() found.
struct WaitOutcome {
  int events = 0;      ///< waiting to be dispatched; may count a wakeup among them
  bool woken = false;  ///< a wakeup arrived, and is not among the events
};

/// One per loop, made by an IoFactory and owned by the loop; see the top of this file.
class MILLRACE_API IoHandler {
 public:
  IoHandler() noexcept = default;
  IoHandler(const IoHandler&) = delete;
  IoHandler& operator=(const IoHandler&) = delete;
  virtual ~IoHandler();

  /// Any thread.
  virtual const IoType& type() const noexcept = 0;
  /// A thread begins to drive the loop.
  virtual Result<void> attach(IoLoop& loop) = 0;
  /// That thread leaves; nothing is in flight when it returns.
  virtual void detach() noexcept = 0;
  /// Submits what is queued and waits for an event, a wakeup or `until`, a moment of the real
  /// clock; Deadline::past() only looks. Signals do not end a wait.
  virtual Result<WaitOutcome> wait(Deadline until) = 0;
  /// Runs the callbacks of the events found; returns how many there were.
  virtual int dispatch() = 0;
  /// Ends the current wait, or the next one. Any thread, from construction until awaitWakeups.
  virtual void wakeup() noexcept = 0;
  /// Waits until `paid` wakeups have arrived since construction: no call of wakeup() is under way
  /// any more. Then closes the engine's descriptors; only type() and registrations() may follow.
  virtual void awaitWakeups(std::uint64_t paid) noexcept = 0;
  /// Any thread.
  virtual std::size_t registrations() const noexcept = 0;
  /// Ends what belongs to the engine alone, such as raw watches; done when registrations() is 0.
  virtual void closeAll(CloseMode mode) = 0;
  /// Breaks a call that blocks the loop thread. Any thread.
  virtual void interrupt() noexcept {}
  /// Makes the engine's kernel object anew and moves everything over. Readiness engines only.
  virtual Result<void> rebuild() { return {}; }
  /// The descriptor that reported events which nobody could take since the last call, or -1.
  virtual int culprit() noexcept { return -1; }
  /// The engine's registrations for channels, or null if it does not work by readiness.
  virtual ReadinessIo* readiness() noexcept { return nullptr; }
  /// The operations that the engine completes, or null if it only reports readiness.
  virtual RingIo* ring() noexcept { return nullptr; }
  /// Raw descriptors, or null if the engine has none.
  virtual FdWatch* fdWatch() noexcept { return nullptr; }
};

/// Makes engines; given to groups. `type` is the kind it makes. May be called from any thread.
struct IoFactory {
  const IoType* type = nullptr;
  std::function<Result<std::unique_ptr<IoHandler>>()> make;
  bool onDemand = false;  ///< groups have a loop for each channel, made when it comes
};

}  // namespace millrace
