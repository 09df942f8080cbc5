// SPDX-License-Identifier: Apache-2.0
// ScriptedEngine: an engine whose waits a test plays. With it the order of a post and a sleep is no
// matter of luck: what happens "while the loop sleeps" happens inside the wait.
#pragma once

#include <millrace/loop/event_loop.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/loop_options.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace millrace::test {

inline constexpr IoType kScriptedType{"scripted"};

/// What the engine does, and what was asked of it. Functions and plain members: loop thread only.
struct EngineScript {
  std::function<Result<WaitOutcome>(Deadline)> onWait;  ///< empty: returns at once with nothing
  std::function<int()> onDispatch;                      ///< empty: delivers nothing
  std::function<Result<void>()> onRebuild;
  int culprit = -1;

  std::vector<Deadline> waits;  ///< until when, one entry for each wait
  int dispatches = 0;
  int rebuilds = 0;
  std::uint64_t awaited = 0;  ///< what awaitWakeups() was given
  std::atomic<int> wakeups{0};
  std::atomic<std::size_t> registrations{0};

  std::size_t blockingWaits() const {
    std::size_t count = 0;
    for (const Deadline& until : waits) count += until == Deadline::past() ? 0 : 1;
    return count;
  }
};

class ScriptedEngine final : public IoHandler {
 public:
  explicit ScriptedEngine(std::shared_ptr<EngineScript> script) : script_(std::move(script)) {}

  static IoFactory factory(std::shared_ptr<EngineScript> script) {
    return {&kScriptedType, [script = std::move(script)] {
              return Result<std::unique_ptr<IoHandler>>(std::make_unique<ScriptedEngine>(script));
            }};
  }

  const IoType& type() const noexcept override { return kScriptedType; }
  Result<void> attach(IoLoop&) override { return {}; }
  void detach() noexcept override {}
  Result<WaitOutcome> wait(Deadline until) override {
    script_->waits.push_back(until);
    return script_->onWait ? script_->onWait(until) : WaitOutcome{};
  }
  int dispatch() override {
    ++script_->dispatches;
    return script_->onDispatch ? script_->onDispatch() : 0;
  }
  void wakeup() noexcept override { script_->wakeups.fetch_add(1); }
  void awaitWakeups(std::uint64_t paid) noexcept override { script_->awaited = paid; }
  std::size_t registrations() const noexcept override { return script_->registrations.load(); }
  void closeAll(CloseMode) override { script_->registrations.store(0); }
  Result<void> rebuild() override {
    ++script_->rebuilds;
    return script_->onRebuild ? script_->onRebuild() : Result<void>();
  }
  int culprit() noexcept override { return std::exchange(script_->culprit, -1); }

 private:
  std::shared_ptr<EngineScript> script_;  // shared with the test
};

/// A hand-driven loop on a scripted engine.
struct ScriptedLoop {
  explicit ScriptedLoop(LoopOptions options = {})
      : script(std::make_shared<EngineScript>()),
        loop(EventLoop::handDriven(options.io(ScriptedEngine::factory(script)))) {}

  EventLoop* operator->() const noexcept { return loop.get(); }
  EventLoop& operator*() const noexcept { return *loop; }
  /// One turn that may block.
  std::size_t turn() const { return loop->run(Deadline::never()); }

  std::shared_ptr<EngineScript> script;  // shared with the engine
  Ref<EventLoop> loop;
};

/// Runs `fn` on another thread, and waits for it.
template <class F>
void fromOutside(F&& fn) {
  std::thread(std::forward<F>(fn)).join();
}

}  // namespace millrace::test
