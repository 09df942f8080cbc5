// SPDX-License-Identifier: Apache-2.0
// Watch: the handle of a watched descriptor.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/ref.h>

#include <cstdint>

namespace millrace {

class EventLoop;

/// A value; copies name the same watch. Dropping it changes nothing: unwatch() ends the watch. Keeps
/// the loop's memory alive. Any thread; from another thread the calls take effect a little later.
class MILLRACE_API Watch {
 public:
  Watch() noexcept = default;
  Watch(const Watch&) noexcept;
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch other) noexcept;
  ~Watch();

  bool valid() const noexcept { return loop_ != nullptr; }
  /// Waits for `events` (sys/events.h) from now on; 0 pauses it.
  void modify(std::uint32_t events) const;
  /// Ends it. On the loop thread no callback comes after this returns, also from within the callback.
  void unwatch() const;

 private:
  friend class EventLoop;
  Watch(EventLoop& loop, std::uint64_t id) noexcept;

  EventLoop* loop_ = nullptr;  // counted
  std::uint64_t id_ = 0;
};

}  // namespace millrace
