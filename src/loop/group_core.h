// SPDX-License-Identifier: Apache-2.0
// What an EventLoopGroup is made of; shared with its loops and with those who take loops from it.
//
// A group of a fixed size makes its loops at once. A group on demand (thread per channel) makes one
// when a channel needs it and none is idle, up to a limit.
#pragma once

#include "loop/end_executor.h"
#include "loop/event_loop_parts.h"
#include "loop/watchdog.h"

#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/loop_source.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

/// Loops in the order they were made. Only grows, within a room that is set once, so that any thread
/// may look at it while a loop is added.
class LoopTable {
 public:
  void reserve(std::size_t room) { loops_.reserve(room); }
  /// One thread at a time. REQUIRES: size() is below the room
  void add(Ref<EventLoop> loop) {
    loops_.push_back(std::move(loop));
    count_.store(loops_.size(), std::memory_order_release);
  }
  const Ref<EventLoop>* begin() const noexcept { return loops_.data(); }
  const Ref<EventLoop>* end() const noexcept { return begin() + size(); }
  std::size_t size() const noexcept { return count_.load(std::memory_order_acquire); }

 private:
  std::vector<Ref<EventLoop>> loops_;
  std::atomic<std::size_t> count_{0};
};

struct EventLoopGroup::Core final : LoopSource, std::enable_shared_from_this<Core> {
  /// Loops of a group on demand that has no limit of its own.
  static constexpr std::size_t kMostOnDemand = 65'536;

  explicit Core(const LoopOptions& options);

  /// Makes the next loop. Throws what the engine throws.
  Ref<EventLoop> makeLoop(EventLoopGroup* group);
  void makeAll(EventLoopGroup* group);
  void endLoops();
  void oneEnded(const Result<ShutdownReport>& result);
  void endIfEmpty();
  EventLoop& next();
  void tellListeners();

  // --- LoopSource ---
  Result<Ref<EventLoop>> acquire() override;
  void giveBack(EventLoop& loop) noexcept override;
  std::vector<Ref<EventLoop>> loops() const override {
    return std::vector<Ref<EventLoop>>(children.begin(), children.end());
  }
  std::uint64_t addShutdownListener(Task listener) override;
  bool removeShutdownListener(std::uint64_t id) override;

  const LoopOptions options;
  const std::string name;
  const bool onDemand;
  const std::size_t limit;  // of a group on demand
  LoopTable children;
  std::unique_ptr<Chooser> chooser;    // null on demand
  std::shared_ptr<Watchdog> watchdog;  // shared with the loops; null: none
  Ref<EndExecutor> endExecutor = makeRef<EndExecutor>();
  Promise<ShutdownReport> terminated{*endExecutor};
  Future<ShutdownReport> terminatedFuture = terminated.future();
  std::mutex mutex;
  std::size_t left = 0;   // guarded by mutex: loops that have not ended
  ShutdownReport report;  // guarded by mutex
  Error failure;          // guarded by mutex
  std::vector<std::pair<std::uint64_t, Task>> listeners;  // guarded by mutex
  std::uint64_t nextListener = 1;                         // guarded by mutex
  std::atomic<bool> told{false};                          // written under mutex
  std::vector<EventLoop*> idle;                           // guarded by mutex; on demand
  EventLoopGroup* handle = nullptr;                       // guarded by mutex; null once it is gone
};

}  // namespace millrace
