// SPDX-License-Identifier: Apache-2.0
// A model of the loop's wakeup protocol, with switches for the mistakes that must not pass.
//
// Threads: execute, lazyExecute and schedule from any thread; run and shutdown on the loop thread.
// Ownership: the inbox owns its nodes until they ran or were refused.
// The production loop takes the place of WakeupModel in the scenarios of wakeup_scenarios.h once it
// exists.
#pragma once

#include "explorer.h"

#include <millrace/base/atomic.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace millrace::explorer {

enum class Mutation {
  kNone,
  kAnnounceByReleaseStore,  // L1 as a release store
  kNoSecondLook,            // L2 left out
  kWakeIfEmpty,             // "wake if the inbox was empty" instead of P2
  kPlainAwake,              // L3 as a load and a store
  kNeverCountPaid,          // L3 that does not look what it replaced
  kWakeWithoutExchange,     // P2 without the exchange: everyone who sees a sleeper writes
  kRelaxedPush,             // P1 with no release
  kRelaxedTake,             // take with no acquire
  // One of the four that must be sequentially consistent is only acquire and release.
  kWeakP1,
  kWeakP2,
  kWeakL1,
  kWeakL2,
};

/// An eventfd as the loop sees it: a counter that only grows, a sleeper, and an end. The kernel
/// does not weaken orders.
class WakeCounter {
 public:
  WakeCounter() { name(&word_, "eventfd"); }

  /// A write(2). Any thread.
  void write() {
    const uint32_t before = word_.fetch_add(1);
    EXPLORE_CHECK((before & kClosed) == 0, "no write to a closed descriptor");
    futexWake(word_, 1);
  }

  /// Until a write not seen before, `deadline`, an event of the world outside if there are any, or
  /// for no reason.
  void wait(int64_t deadline) {
    if (ioEvents > 0 && choose(2) == 1) {
      --ioEvents;
      return;
    }
    if (deadline > now()) futexWait(word_, seen_, deadline);
    seen_ = word_.load();
  }

  void awaitWrites(uint64_t paid) {
    for (;;) {
      const uint32_t count = word_.load();
      if (count >= paid) return;
      futexWait(word_, count);
    }
  }

  void close() { word_.fetch_or(kClosed); }
  uint32_t writes() const { return word_.load() & ~kClosed; }

  int ioEvents = 0;

 private:
  static constexpr uint32_t kClosed = 1U << 31;
  Atomic<uint32_t> word_{0};
  uint32_t seen_ = 0;  // loop only
};

struct Task {
  int id = 0;
  int64_t deadline = -1;  // negative: run at once, else: arm a timer
};

enum class Pushed { kRefused, kFirst, kBehindOthers };

/// The inbox of the blueprint: a stack taken whole. A node is whole when it becomes visible.
template <Mutation mutation>
class StackInbox {
 public:
  StackInbox() { name(&head_, "head"); }

  Pushed push(Task task) {
    Node* node = new Node{Plain<Task>(task), Plain<Node*>(nullptr)};
    constexpr auto order = mutation == Mutation::kRelaxedPush ? std::memory_order_relaxed
                           : mutation == Mutation::kWeakP1    ? std::memory_order_acq_rel
                                                              : std::memory_order_seq_cst;
    Node* head = head_.load(std::memory_order_relaxed);
    do {
      if (head == closed()) {
        delete node;
        return Pushed::kRefused;
      }
      node->next.write() = head;
    } while (!head_.compare_exchange_weak(head, node, order, std::memory_order_relaxed));  // P1
    return head == nullptr ? Pushed::kFirst : Pushed::kBehindOthers;
  }

  bool empty(MemoryOrder order = std::memory_order_seq_cst) const {
    return head_.load(order) == nullptr;
  }
  std::vector<Task> take() {
    return list(head_.exchange(nullptr, mutation == Mutation::kRelaxedTake
                                            ? std::memory_order_relaxed
                                            : std::memory_order_acq_rel));
  }
  std::vector<Task> close() { return list(head_.exchange(closed(), std::memory_order_acq_rel)); }

 private:
  struct Node {
    Plain<Task> task;
    Plain<Node*> next;
  };

  static Node* closed() { return reinterpret_cast<Node*>(uintptr_t{1}); }
  static std::vector<Task> list(Node* node) {
    std::vector<Task> tasks;
    while (node != nullptr) {
      tasks.push_back(node->task.read());
      delete std::exchange(node, node->next.read());
    }
    std::reverse(tasks.begin(), tasks.end());
    return tasks;
  }

  Atomic<Node*> head_{nullptr};
};

/// A queue whose producers claim their place first and link themselves in later. Right in itself,
/// wrong here.
class ClaimInbox {
 public:
  ClaimInbox() : tail_(new Node), first_(tail_.load()) { name(&tail_, "tail"); }
  ~ClaimInbox() { delete first_; }

  Pushed push(Task task) {
    Node* node = new Node;
    node->task.write() = task;
    Node* before = tail_.exchange(node, std::memory_order_seq_cst);  // claimed
    before->next.store(node, std::memory_order_seq_cst);             // visible
    return Pushed::kBehindOthers;
  }

  bool empty(MemoryOrder order = std::memory_order_seq_cst) const {
    return first_->next.load(order) == nullptr;
  }
  std::vector<Task> take() {
    std::vector<Task> tasks;
    while (Node* next = first_->next.load(std::memory_order_seq_cst)) {
      tasks.push_back(next->task.read());
      delete std::exchange(first_, next);
    }
    return tasks;
  }
  std::vector<Task> close() { return take(); }  // enough for scenarios in which nobody comes late

 private:
  struct Node {
    Atomic<Node*> next{nullptr};
    Plain<Task> task;
  };
  Atomic<Node*> tail_;
  Node* first_;  // loop only
};

/// What the scenarios ask of an implementation is its public part.
template <Mutation mutation = Mutation::kNone, class Inbox = StackInbox<mutation>>
class WakeupModel {
 public:
  WakeupModel() { name(&word_, "word"); }

  // Any thread. False: refused, the loop has shut down.
  bool execute(int id) { return pushAndWake({id}, kNever); }
  bool lazyExecute(int id) { return inbox_.push({id}) != Pushed::kRefused; }
  bool schedule(int id, int64_t deadline) { return pushAndWake({id, deadline}, deadline); }

  // The loop thread, or setup.
  void arm(int id, int64_t deadline) { timers_.push_back({id, deadline}); }
  /// Turns until task `id` has run.
  void runUntil(int id) {
    while (ran(id) == 0) {
      if (inbox_.empty()) sleep();
      run(inbox_.take());
      runTimers();
    }
  }
  void shutdown() {
    run(inbox_.close());
    wake_.awaitWrites(paid_);
    wake_.close();
  }

  // The loop thread, or final checks.
  int ran(int id) const {
    return static_cast<int>(
        std::count_if(log_.begin(), log_.end(), [id](const Task& task) { return task.id == id; }));
  }
  /// When a timer fired.
  int64_t firedAt(int id) const {
    const auto at =
        std::find_if(log_.begin(), log_.end(), [id](const Task& task) { return task.id == id; });
    return at == log_.end() ? -1 : at->deadline;
  }
  uint32_t writes() const { return wake_.writes(); }
  uint32_t sleeps() const { return sleeps_; }
  void allowIoEvents(int count) { wake_.ioEvents = count; }

 private:
  static constexpr int64_t kAwake = -1;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  bool pushAndWake(Task task, int64_t deadline) {
    const Pushed pushed = inbox_.push(task);
    if (pushed == Pushed::kRefused) return false;
    if (mutation == Mutation::kWakeIfEmpty) {
      if (pushed == Pushed::kFirst && word_.exchange(kAwake, std::memory_order_seq_cst) != kAwake)
        wake_.write();
      return true;
    }
    const int64_t word =
        word_.load(mutation == Mutation::kWeakP2 ? std::memory_order_acquire
                                                 : std::memory_order_seq_cst);  // P2
    const bool matters = deadline == kNever ? word != kAwake : deadline < word;
    if (!matters) return true;
    if (mutation == Mutation::kWakeWithoutExchange ||
        word_.exchange(kAwake, std::memory_order_seq_cst) != kAwake) {
      wake_.write();
    }
    return true;
  }

  void sleep() {
    ++sleeps_;
    int64_t until = kNever;
    for (const Task& timer : timers_) until = std::min(until, timer.deadline);
    if (mutation == Mutation::kAnnounceByReleaseStore) {
      word_.store(until, std::memory_order_release);
    } else {
      word_.exchange(until, mutation == Mutation::kWeakL1 ? std::memory_order_acq_rel
                                                          : std::memory_order_seq_cst);  // L1
    }
    const bool empty =
        mutation == Mutation::kNoSecondLook ||
        inbox_.empty(mutation == Mutation::kWeakL2 ? std::memory_order_acquire
                                                   : std::memory_order_seq_cst);  // L2
    wake_.wait(empty ? until : now());
    if (mutation == Mutation::kPlainAwake || mutation == Mutation::kNeverCountPaid) {
      const bool wasAwake =
          mutation == Mutation::kPlainAwake && word_.load(std::memory_order_seq_cst) == kAwake;
      word_.store(kAwake, std::memory_order_release);
      if (wasAwake) ++paid_;
    } else if (word_.exchange(kAwake, std::memory_order_seq_cst) == kAwake) {  // L3
      ++paid_;
    }
  }

  void run(const std::vector<Task>& tasks) {
    for (const Task& task : tasks) {
      if (task.deadline >= 0) {
        timers_.push_back(task);
      } else {
        log_.push_back(task);
      }
    }
  }

  void runTimers() {
    const auto due = std::partition(timers_.begin(), timers_.end(),
                                    [](const Task& t) { return t.deadline > now(); });
    for (auto timer = due; timer != timers_.end(); ++timer) log_.push_back({timer->id, now()});
    timers_.erase(due, timers_.end());
  }

  Inbox inbox_;
  Atomic<int64_t> word_{kAwake};
  WakeCounter wake_;
  // Loop only.
  uint64_t paid_ = 0;
  uint32_t sleeps_ = 0;
  std::vector<Task> timers_;
  std::vector<Task> log_;
};

}  // namespace millrace::explorer
