// SPDX-License-Identifier: Apache-2.0
// What tests of loops share: an engine that a test sees through, a way to hold a loop in a task,
// exact exceptions.
#pragma once

#include <millrace/base/manual_clock.h>
#include <millrace/concurrent/executor.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/loop_options.h>
#include <millrace/loop/metrics.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace millrace::test {

/// Steers and records the engines that its factory makes: they sleep until somebody wakes them, and
/// find what the hooks say. Set the hooks before the loop runs. Any thread may ask.
class EngineProbe : public std::enable_shared_from_this<EngineProbe> {
 public:
  static std::shared_ptr<EngineProbe> make() { return std::make_shared<EngineProbe>(); }

  /// Makes engines of the type `EngineProbe::type`.
  IoFactory factory();
  static const IoType type;

  /// Called instead of the engine's own step, on the loop's thread.
  std::function<Result<void>()> onAttach;
  std::function<Result<WaitOutcome>(Deadline until)> onWait;
  std::function<int()> onDispatch;
  std::function<Result<void>()> onRebuild;

  /// Waits until the loop sleeps in its engine: it has seen all that was posted before, and does
  /// nothing until somebody wakes it.
  void awaitAsleep();
  bool isAsleep() const;
  /// Calls of wakeup() so far.
  std::uint64_t wakeups() const;
  /// The steps so far: make, attach, look, sleep, dispatch, closeAll, interrupt, rebuild, detach,
  /// awaitWakeups, destroy, and what note() added.
  std::vector<std::string> steps() const;
  std::size_t count(std::string_view step) const;
  void note(std::string step);
  void forgetSteps();

 private:
  class Engine;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t arrived_ = 0;
  bool asleep_ = false;
  std::vector<std::string> steps_;
};

/// Holds an executor in a task until release() or the end of the scope.
class Held {
 public:
  explicit Held(Executor& executor) : latches_(std::make_shared<Latches>()) {
    executor.execute([latches = latches_] {
      latches->held.count_down();
      latches->go.wait();
    });
    latches_->held.wait();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { release(); }

  void release() {
    if (!std::exchange(released_, true)) latches_->go.count_down();
  }

 private:
  struct Latches {
    std::latch held{1};
    std::latch go{1};
  };
  std::shared_ptr<Latches> latches_;  // shared with the task
  bool released_ = false;
};

/// The text of the exception of exactly type E that `fn` throws, else a text that says what came.
template <class E, class F>
std::string textOf(F&& fn) {
  try {
    fn();
  } catch (const E& e) {
    if (typeid(e) == typeid(E)) return e.what();
    return std::string("a derived type was thrown: ") + typeid(e).name();
  } catch (const std::exception& e) {
    return std::string("another type was thrown: ") + typeid(e).name() + ", " + e.what();
  }
  return "nothing was thrown";
}

/// What the kernel calls a thread of this process.
std::string kernelNameOfThread(std::int64_t id);

}  // namespace millrace::test
