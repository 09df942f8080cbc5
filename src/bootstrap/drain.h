// SPDX-License-Identifier: Apache-2.0
// Drain: closing all connections of a server gracefully, loop by loop, until a deadline.
#pragma once

#include <millrace/bootstrap/server.h>
#include <millrace/channel/channel.h>
#include <millrace/concurrent/future.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/loop/event_loop.h>

#include <memory>
#include <mutex>
#include <vector>

namespace millrace::internal {

/// Shared by the loops that take part.
class Drain final : public std::enable_shared_from_this<Drain> {
 public:
  explicit Drain(EventLoop& loop);

  Future<DrainReport> future() const { return future_; }
  /// The listening channels are closed: now the connections. Once.
  void begin(const std::vector<Ref<EventLoop>>& loops, const std::vector<ChannelPtr>& listeners);
  /// After `timeout` from now the rest is cut. Any thread.
  void limit(Duration timeout);

 private:
  void closeOn(EventLoop& loop, const std::vector<ChannelPtr>& listeners);
  void watchTime(EventLoop& loop);
  void cutOn(EventLoop& loop);
  void oneDone();

  Promise<DrainReport> promise_;
  const Future<DrainReport> future_;
  std::mutex mutex_;
  DrainReport report_;                   // guarded by mutex_
  std::size_t left_ = 0;                 // guarded by mutex_: connections and loops to look at
  std::vector<ChannelPtr> open_;         // guarded by mutex_
  std::vector<Ref<EventLoop>> loops_;    // guarded by mutex_: those that have channels to close
  std::vector<ScheduledFuture> timers_;  // guarded by mutex_
  std::int64_t end_ = INT64_MAX;         // guarded by mutex_: of the loops' clock
};

}  // namespace millrace::internal
