// SPDX-License-Identifier: Apache-2.0
#include "support/loop_test.h"

#include <algorithm>
#include <fstream>

namespace millrace::test {

const IoType EngineProbe::type{"probe"};

class EngineProbe::Engine final : public IoHandler {
 public:
  explicit Engine(std::shared_ptr<EngineProbe> probe) : probe_(std::move(probe)) {
    probe_->note("make");
  }
  ~Engine() override { probe_->note("destroy"); }

  const IoType& type() const noexcept override { return EngineProbe::type; }
  Result<void> attach(IoLoop&) override {
    probe_->note("attach");
    return probe_->onAttach ? probe_->onAttach() : Result<void>();
  }
  void detach() noexcept override { probe_->note("detach"); }

  Result<WaitOutcome> wait(Deadline until) override {
    const bool looks = until == Deadline::past();
    probe_->note(looks ? "look" : "sleep");
    if (probe_->onWait) return probe_->onWait(until);
    WaitOutcome outcome;
    if (looks) return outcome;
    std::unique_lock lock(probe_->mutex_);
    const auto woken = [this] { return probe_->arrived_ != seen_; };
    if (!woken()) {
      probe_->asleep_ = true;
      probe_->changed_.notify_all();
    }
    if (until.isNever()) {
      probe_->changed_.wait(lock, woken);
    } else {
      probe_->changed_.wait_for(lock, until.left(Clock::real().nanos()), woken);
    }
    probe_->asleep_ = false;
    outcome.woken = woken();
    seen_ = probe_->arrived_;
    return outcome;
  }
  int dispatch() override {
    probe_->note("dispatch");
    return probe_->onDispatch ? probe_->onDispatch() : 0;
  }

  void wakeup() noexcept override {
    const std::lock_guard lock(probe_->mutex_);
    ++probe_->arrived_;
    probe_->asleep_ = false;
    probe_->changed_.notify_all();
  }
  void awaitWakeups(std::uint64_t paid) noexcept override {
    probe_->note("awaitWakeups");
    std::unique_lock lock(probe_->mutex_);
    probe_->changed_.wait(lock, [&] { return probe_->arrived_ >= paid; });
  }
  std::size_t registrations() const noexcept override { return 0; }
  void closeAll(CloseMode mode) override {
    probe_->note(mode == CloseMode::linger ? "closeAll" : "forceAll");
  }
  void interrupt() noexcept override { probe_->note("interrupt"); }
  Result<void> rebuild() override {
    probe_->note("rebuild");
    return probe_->onRebuild ? probe_->onRebuild() : Result<void>();
  }

 private:
  const std::shared_ptr<EngineProbe> probe_;  // shared with the test
  std::uint64_t seen_ = 0;                    // guarded by the probe's mutex
};

IoFactory EngineProbe::factory() {
  return {&type, [self = shared_from_this()] {
            return Result<std::unique_ptr<IoHandler>>(std::make_unique<Engine>(self));
          }};
}

void EngineProbe::awaitAsleep() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return asleep_; });
}

bool EngineProbe::isAsleep() const {
  const std::lock_guard lock(mutex_);
  return asleep_;
}

std::uint64_t EngineProbe::wakeups() const {
  const std::lock_guard lock(mutex_);
  return arrived_;
}

std::vector<std::string> EngineProbe::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

std::size_t EngineProbe::count(std::string_view step) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count(steps_.begin(), steps_.end(), step));
}

void EngineProbe::note(std::string step) {
  const std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
}

void EngineProbe::forgetSteps() {
  const std::lock_guard lock(mutex_);
  steps_.clear();
}

std::string kernelNameOfThread(std::int64_t id) {
  std::ifstream file("/proc/self/task/" + std::to_string(id) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace millrace::test
