// SPDX-License-Identifier: Apache-2.0
// LocalLink: two queues of messages between the two ends of an in-process connection.
//
// Threads: any; a lock inside, held for a few instructions. The ends may live on different loops.
// Ownership: shared by the two channels and by whoever carries a connection that nobody has accepted.
#pragma once

#include <millrace/channel/channel.h>
#include <millrace/channel/message.h>
#include <millrace/sys/socket_address.h>

#include <array>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

namespace millrace {

class LocalLink final {
 public:
  enum class Side : std::uint8_t { client, server };
  /// More than this does not wait for a reader: the writer has to.
  static constexpr std::size_t kMostBytes = 64 * 1024;

  LocalLink(const SocketAddress& client, const SocketAddress& server)
      : addresses_{client, server} {}
  LocalLink(const LocalLink&) = delete;
  LocalLink& operator=(const LocalLink&) = delete;
  /// The same link; when the last of these pointers goes, the server's end is gone, too: of a
  /// connection that nobody adopts, the client sees the end.
  static std::shared_ptr<LocalLink> serverEnd(std::shared_ptr<LocalLink> link);

  const SocketAddress& addressOf(Side side) const noexcept { return addresses_[index(side)]; }

  /// `channel` is this end from now on.
  void attach(Side side, ChannelPtr channel);
  /// This end is gone: nobody reads what is queued for it, and no more comes from it.
  void detach(Side side) noexcept;
  /// No more comes from this end.
  void endOutput(Side side) noexcept;

  enum class Push : std::uint8_t { taken, full, gone };
  /// From `side` to the other one; takes the message only if it says so.
  Push push(Side from, Message& msg);
  struct Pulled {
    std::optional<Message> msg;
    bool ended = false;  // nothing is left, and nothing will come
  };
  /// What the other end has sent. Wakes a writer that waited.
  Pulled pull(Side to);
  bool hasInput(Side to) const;

 private:
  static std::size_t index(Side side) noexcept { return static_cast<std::size_t>(side); }
  static Side other(Side side) noexcept {
    return side == Side::client ? Side::server : Side::client;
  }
  struct End {
    ChannelPtr channel;  // null: not attached yet, or gone
    bool gone = false;
    std::deque<Message> input;  // for this end
    std::size_t bytes = 0;
    bool inputEnded = false;
    bool writerWaits = false;  // the other end has more for it
  };
  static std::size_t costOf(const Message& msg) noexcept;
  static void notify(const ChannelPtr& channel);

  const std::array<SocketAddress, 2> addresses_;
  mutable std::mutex mutex_;
  std::array<End, 2> ends_;  // guarded by mutex_
};

}  // namespace millrace
