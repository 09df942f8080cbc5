// SPDX-License-Identifier: Apache-2.0
// EndExecutor: where the futures of a loop's or a group's end belong. Their callbacks run on the
// global executor, since the loop is gone by then; but waiting for them on a thread of the loop
// would wait for ever, and is refused as it is for every future of the loop.
#pragma once

#include <millrace/base/ref.h>
#include <millrace/concurrent/executor.h>
#include <millrace/concurrent/global_executor.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace millrace {

class EndExecutor final : public Executor, public RefCounted<EndExecutor> {
 public:
  /// Any thread. `loop` is compared, never used.
  void refuseWaitingOn(const Executor& loop) {
    std::lock_guard lock(mutex_);
    loops_.push_back(&loop);
  }

  void execute(Task task) override { globalExecutor().execute(std::move(task)); }
  bool tryExecute(Task task) override { return globalExecutor().tryExecute(std::move(task)); }
  bool inEventLoop() const noexcept override { return globalExecutor().inEventLoop(); }
  bool waitsForItself() const noexcept override {
    const Executor* current = internal::tlsCurrentExecutor;
    if (inEventLoop() || current == nullptr) return inEventLoop();
    std::lock_guard lock(mutex_);
    return std::find(loops_.begin(), loops_.end(), current) != loops_.end();
  }
  void retain() const noexcept override { ref(); }
  void release() const noexcept override { unref(); }

 private:
  mutable std::mutex mutex_;
  std::vector<const Executor*> loops_;  // guarded by mutex_
};

}  // namespace millrace
