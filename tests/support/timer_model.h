// SPDX-License-Identifier: Apache-2.0
// TimerModel: plays the same script on a TimerQueue and on a simple model, and tells where they
// differ. For the property test and the fuzz target of TimerQueue.
#pragma once

#include "support/executors.h"

#include <millrace/base/manual_clock.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/concurrent/timer_queue.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace millrace::test {

class TimerModel {
 public:
  TimerModel() : queue_(std::in_place, owner_) {}

  /// Interprets `script` as operations. Returns "" or the first difference in words.
  std::string play(std::span<const std::uint8_t> script) {
    const TurnGuard turn(owner_);
    script_ = script;
    while (!script_.empty() && difference_.empty()) step();
    if (difference_.empty()) finish();
    return difference_;
  }

 private:
  using Repeat = TimerNode::Repeat;
  enum class State { armed, running, done, cancelled, failed };
  enum class Action : std::uint8_t { nothing, cancel, fail, schedule, takeTime };
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  static constexpr std::size_t kMostTimers = 512;

  /// What the model knows of a timer, and what its task does when it runs.
  struct Timer {
    std::int64_t deadline;
    Repeat repeat;
    std::int64_t period;
    Action action;
    std::uint8_t argument;
    State state = State::armed;
    std::optional<std::multimap<std::int64_t, std::size_t>::iterator> place = {};
  };
  struct Real {
    ScheduledFuture handle;
    Future<void> end;
  };

  // --- the script ---

  std::uint8_t byte() {
    if (script_.empty()) return 0;
    const std::uint8_t first = script_.front();
    script_ = script_.subspan(1);
    return first;
  }

  void step() {
    const std::uint8_t op = byte();
    const bool away = (op & 8) != 0;  // as if on another thread
    switch (op % 8) {
      case 0:
        return add(Repeat::no, away);
      case 1:
        return add(Repeat::atFixedRate, away);
      case 2:
        return add(Repeat::withFixedDelay, away);
      case 3:
        return cancel(byte(), away);
      case 4:
        return advance(byte());
      case 5:
        return drop(byte(), away);
      case 6:
        return ask(byte(), away);
      default:
        return compare();
    }
  }

  // --- operations, on both ---

  void add(Repeat repeat, bool away) {
    const std::uint8_t delay = byte();
    const std::uint8_t what = byte();
    const std::uint8_t argument = byte();
    if (model_.size() >= kMostTimers) return;
    const std::int64_t wait = delay == 255 ? kNever : delay % 32;
    const auto action = static_cast<Action>(what % 5);
    addModel(saturatingAdd(modelNow_, wait), repeat, 1 + what / 5, action, argument);
    addReal(saturatingAdd(clock_.nanos(), wait), repeat, 1 + what / 5, action, argument, away);
  }

  void cancel(std::uint8_t which, bool away) {
    if (model_.empty()) return;
    const std::size_t at = which % model_.size();
    const bool expected = cancelModel(at);
    if (!real_[at].handle.valid()) {
      // The model cancels, so the queue must: there is one handle that is never dropped.
      expect(keys_[at].cancel() == expected, "the result of cancel()", at);
      return;
    }
    const TurnGuard turn(away ? static_cast<const Executor&>(immediateExecutor()) : owner_);
    expect(real_[at].handle.cancel() == expected, "the result of cancel()", at);
  }

  void advance(std::uint8_t step) {
    modelNow_ += step;
    clock_.advance(Duration(step));
    std::vector<std::size_t> due;
    while (!armed_.empty() && armed_.begin()->first <= modelNow_) {
      due.push_back(armed_.begin()->second);
      model_[due.back()].place.reset();
      armed_.erase(armed_.begin());
    }
    TaskChain chain = queue_->takeDue(clock_.nanos());
    for (const std::size_t at : due) {
      if (model_[at].state == State::armed) runModel(at);
    }
    while (TaskNode* node = chain.popFront()) queue_->run(TimerNode::of(*node), clock_);
    expect(modelRan_ == realRan_, "what ran, and in which order", due.empty() ? 0 : due.front());
    expect(modelNow_ == clock_.nanos(), "the time after the runs", 0);
  }

  void drop(std::uint8_t which, bool away) {
    if (real_.empty()) return;
    const TurnGuard turn(away ? static_cast<const Executor&>(immediateExecutor()) : owner_);
    real_[which % real_.size()].handle = {};
  }

  void ask(std::uint8_t which, bool away) {
    if (real_.empty()) return;
    const std::size_t at = which % real_.size();
    const TurnGuard turn(away ? static_cast<const Executor&>(immediateExecutor()) : owner_);
    if (real_[at].handle.valid()) real_[at].end = real_[at].handle.future();
  }

  void compare() {
    expect(queue_->next() == (armed_.empty() ? kNever : armed_.begin()->first), "next()", 0);
    expect(queue_->size() == armed_.size(), "size()", 0);
    expect(queue_->entries() <= 2 * armed_.size() + 64 + outsideCancels(), "entries()", 0);
    for (std::size_t at = 0; at < model_.size(); ++at) compareTimer(at);
  }

  void compareTimer(std::size_t at) {
    const Timer& timer = model_[at];
    const ScheduledFuture& handle = keys_[at];
    const bool ended = timer.state != State::armed && timer.state != State::running;
    expect(handle.isDone() == ended, "isDone()", at);
    expect(handle.isCancelled() == (timer.state == State::cancelled), "isCancelled()", at);
    expect(handle.deadline().nanos() == timer.deadline, "deadline()", at);
    const Future<void>& end = real_[at].end;
    if (!end.valid()) return;
    expect(end.isDone() == ended, "the future's isDone()", at);
    expect(end.isCancelled() == (timer.state == State::cancelled), "the future's isCancelled()",
           at);
    expect(end.isSuccess() == (timer.state == State::done), "the future's isSuccess()", at);
  }

  void finish() {
    compare();
    const std::size_t open = armed_.size();
    for (const auto& [deadline, at] : armed_) model_[at].state = State::cancelled;
    armed_.clear();
    expect(queue_->cancelAll() == open, "the result of cancelAll()", 0);
    for (std::size_t at = 0; at < model_.size(); ++at) compareTimer(at);
    queue_.reset();  // the handles outlive it
  }

  // --- the model ---

  void addModel(std::int64_t deadline, Repeat repeat, std::int64_t period, Action action,
                std::uint8_t argument) {
    model_.push_back({deadline, repeat, period, action, argument});
    arm(model_.size() - 1);
  }
  void arm(std::size_t at) {
    // Behind its equals: first in, first out.
    model_[at].place = armed_.emplace(model_[at].deadline, at);
  }
  bool cancelModel(std::size_t at) {
    Timer& timer = model_[at];
    const bool mayBe = timer.state == State::armed ||
                       (timer.state == State::running && timer.repeat != Repeat::no);
    if (!mayBe) return false;
    timer.state = State::cancelled;
    if (timer.place) armed_.erase(*timer.place);
    timer.place.reset();
    return true;
  }
  void runModel(std::size_t at) {
    modelRan_.push_back(at);
    model_[at].state = State::running;
    const Action action = model_[at].action;
    const std::uint8_t argument = model_[at].argument;
    if (action == Action::cancel) cancelModel(argument % model_.size());
    if (action == Action::takeTime) modelNow_ += argument;
    if (action == Action::schedule && model_.size() < kMostTimers) {
      addModel(modelNow_ + argument % 8, Repeat::no, 1, Action::nothing, 0);
    }
    Timer& timer = model_[at];
    if (action == Action::fail) {
      if (timer.state == State::running) timer.state = State::failed;
    } else if (timer.repeat == Repeat::no) {
      timer.state = State::done;
    } else {
      const std::int64_t from = timer.repeat == Repeat::atFixedRate ? timer.deadline : modelNow_;
      timer.deadline = from + timer.period;
      if (timer.state != State::running) return;
      timer.state = State::armed;
      arm(at);
    }
  }

  // --- the real one ---

  void addReal(std::int64_t deadline, Repeat repeat, std::int64_t period, Action action,
               std::uint8_t argument, bool away) {
    const std::size_t at = real_.size();
    Ref<TimerNode> timer;
    {
      const TurnGuard turn(away ? static_cast<const Executor&>(immediateExecutor()) : owner_);
      timer = queue_->make(deadline, period, repeat,
                           [this, at, action, argument] { runReal(at, action, argument); });
    }
    queue_->add(*timer);
    keys_.push_back(ScheduledFuture::adopt(*timer.release()));
    real_.push_back({keys_.back(), {}});
  }
  void runReal(std::size_t at, Action action, std::uint8_t argument) {
    realRan_.push_back(at);
    if (action == Action::cancel) keys_[argument % keys_.size()].cancel();
    if (action == Action::takeTime) clock_.advance(Duration(argument));
    if (action == Action::schedule && real_.size() < kMostTimers) {
      addReal(clock_.nanos() + argument % 8, Repeat::no, 1, Action::nothing, 0, false);
    }
    if (action == Action::fail) throw std::runtime_error("as the script says");
  }

  /// Entries that stay until the queue looks: cancels of other threads are not counted at once.
  std::size_t outsideCancels() const noexcept { return model_.size(); }

  void expect(bool holds, const char* what, std::size_t at) {
    if (holds || !difference_.empty()) return;
    difference_ = std::string("differs: ") + what + ", timer " + std::to_string(at) + " of " +
                  std::to_string(model_.size());
  }

  QueueExecutor owner_;
  ManualClock clock_;
  std::optional<TimerQueue> queue_;
  std::vector<ScheduledFuture> keys_;  // never dropped
  std::vector<Real> real_;
  std::vector<std::size_t> realRan_;

  std::int64_t modelNow_ = 0;
  std::vector<Timer> model_;
  std::multimap<std::int64_t, std::size_t> armed_;
  std::vector<std::size_t> modelRan_;

  std::span<const std::uint8_t> script_;
  std::string difference_;
};

}  // namespace millrace::test
