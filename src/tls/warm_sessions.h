// SPDX-License-Identifier: Apache-2.0
// WarmSessions: the connections of one loop that keep OpenSSL's record buffers, 34 KiB each, because they were used
// lately. Without them, every record of a short message would take and free two of these buffers.
//
//   use() ── a place in a ring of kPlaces; whoever had it gives its buffers back
//
// So idle connections keep none but for the last few, whatever the number of connections. Loop thread only. One per
// loop, in its attributes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace millrace {
class EventLoop;
}

namespace millrace::tls {

class Session;

class WarmSessions final {
 public:
  /// At most so many sessions of a loop keep buffers.
  static constexpr std::size_t kPlaces = 128;

  static std::shared_ptr<WarmSessions> of(EventLoop& loop);

  /// One session's place, given up at the latest when this goes.
  class Place {
   public:
    Place() noexcept = default;
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() { leave(); }
    bool isTaken() const noexcept { return session_ != nullptr; }
    void leave() noexcept;

   private:
    friend class WarmSessions;
    Session* session_ = nullptr;
    std::shared_ptr<WarmSessions> owner_;  // the loop's attributes, and places that are taken
    std::size_t index_ = 0;
  };

  /// `session` is about to be used. REQUIRES: it outlives its place, or leaves it before
  static void use(EventLoop& loop, Session& session, Place& place);

 private:
  std::array<Place*, kPlaces> places_{};
  std::size_t next_ = 0;
};

}  // namespace millrace::tls
