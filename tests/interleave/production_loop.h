// SPDX-License-Identifier: Apache-2.0
// The wakeup protocol of the library itself, in the shape that wakeup_scenarios.h asks for: the
// sources of Inbox and WakeupWord, compiled with the explorer's atomics, around a modelled eventfd.
#pragma once

#include "explorer.h"
#include "wakeup_model.h"

#include <millrace/concurrent/inbox.h>
#include <millrace/concurrent/wakeup_word.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace millrace::explorer {

class ProductionLoop {
 public:
  ~ProductionLoop() {
    // Nobody closes the inbox in scenarios that end early.
    auto left = inbox_.take().chain;
    while (TaskNode* node = left.popFront()) delete node;
  }

  bool execute(int id) {
    if (!push(id, -1)) return false;
    if (word_.mustWake()) wake_.write();
    return true;
  }
  bool lazyExecute(int id) { return push(id, -1); }
  bool schedule(int id, int64_t deadline) {
    if (!push(id, deadline)) return false;
    if (word_.mustWakeFor(deadline)) wake_.write();
    return true;
  }

  void arm(int id, int64_t deadline) { timers_.push_back({id, deadline}); }
  void runUntil(int id) {
    while (ran(id) == 0) {
      if (inbox_.isEmpty()) sleep();
      run(inbox_.take().chain);
      runTimers();
    }
  }
  void shutdown() {
    run(inbox_.close().chain);
    wake_.awaitWrites(word_.paid());
    wake_.close();
  }

  int ran(int id) const {
    return static_cast<int>(
        std::count_if(log_.begin(), log_.end(), [id](const Done& done) { return done.id == id; }));
  }
  int64_t firedAt(int id) const {
    const auto at =
        std::find_if(log_.begin(), log_.end(), [id](const Done& done) { return done.id == id; });
    return at == log_.end() ? -1 : at->when;
  }
  uint32_t writes() const { return wake_.writes(); }
  uint32_t sleeps() const { return sleeps_; }
  void allowIoEvents(int count) { wake_.ioEvents = count; }

 private:
  struct Done {
    int id;
    int64_t when;
  };

  bool push(int id, int64_t deadline) {
    auto* node = new TaskNode;
    node->task = [this, id, deadline] {
      if (deadline < 0) {
        log_.push_back({id, now()});
      } else {
        timers_.push_back({id, deadline});
      }
    };
    if (inbox_.push(node, TaskNode::user)) return true;
    delete node;
    return false;
  }
  void sleep() {
    ++sleeps_;
    int64_t until = WakeupWord::kNever;
    for (const Done& timer : timers_) until = std::min(until, timer.when);
    word_.sleep(inbox_, until, [&](bool pending) { wake_.wait(pending ? now() : until); });
  }
  void run(TaskChain chain) {
    while (TaskNode* node = chain.popFront()) {
      node->task();
      delete node;
    }
  }
  void runTimers() {
    const int64_t moment = now();
    std::sort(timers_.begin(), timers_.end(),
              [](const Done& a, const Done& b) { return a.when < b.when; });
    while (!timers_.empty() && timers_.front().when <= moment) {
      log_.push_back({timers_.front().id, moment});
      timers_.erase(timers_.begin());
    }
  }

  ::millrace::Inbox inbox_;
  WakeupWord word_;
  WakeCounter wake_;
  // Loop only.
  std::vector<Done> timers_;
  std::vector<Done> log_;
  uint32_t sleeps_ = 0;
};

}  // namespace millrace::explorer
