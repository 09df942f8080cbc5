// SPDX-License-Identifier: Apache-2.0
// Watch: the handle of a watched descriptor, and what watching is about.
#pragma once

#include <millrace/base/export.h>

#include <cstdint>
#include <functional>

namespace millrace {

class Error;
class EventLoop;

/// When a watched descriptor reports: as long as it is ready, or when it becomes so.
enum class Trigger { level, edge };

/// Told what a watched descriptor is ready for (bits of sys/events.h). Loop thread.
using WatchCallback = std::function<void(int fd, std::uint32_t ready)>;
/// Told once when a watch ends by itself: the loop shuts down, the callback threw, the kernel
/// refused.
using WatchEnd = std::function<void(const Error& why)>;

/// A value; copies name the same watch. Dropping it changes nothing: unwatch() ends the watch.
/// Keeps the loop's memory alive. Any thread; from another thread the calls take effect a little
/// later.
class MILLRACE_API Watch {
 public:
  Watch() noexcept = default;
  Watch(const Watch&) noexcept;
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch other) noexcept;
  ~Watch();

  /// False for a default-constructed handle, on which nothing else may be called.
  bool valid() const noexcept { return loop_ != nullptr; }
  /// Waits for `events` (sys/events.h) from now on; 0 pauses it. Throws std::invalid_argument for
  /// other bits; on the loop thread Exception if the kernel refuses.
  void modify(std::uint32_t events) const;
  /// Ends it. On the loop thread no callback comes after this returns, also from within the
  /// callback.
  void unwatch() const;

 private:
  friend class EventLoop;
  Watch(EventLoop& loop, std::uint64_t id) noexcept;

  EventLoop* loop_ = nullptr;  // counted
  std::uint64_t id_ = 0;
};

}  // namespace millrace
