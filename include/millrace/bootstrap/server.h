// SPDX-License-Identifier: Apache-2.0
// Server: the handle of listening channels and the connections they brought.
//
// Threads: every call from any thread. Ownership: copies share one server. The last one to go drains
// it and waits, unless the calling thread is inside a loop's turn: then it is drained without
// waiting.
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/base/ref.h>
#include <millrace/concurrent/future.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace millrace {

class Channel;
class SocketAddress;
using ChannelPtr = Ref<Channel>;

/// What drain() did.
struct DrainReport {
  std::size_t connections = 0;  ///< that were open when it began
  std::size_t cut = 0;          ///< of those, closed by force at the deadline
  std::size_t bytesCut = 0;     ///< what those had not yet written
};

namespace internal {
class ServerCore;
class ServerHandle;
}  // namespace internal

/// See the top of this file. May be empty: valid().
class MILLRACE_API Server {
 public:
  Server() noexcept = default;

  /// False for a default-constructed handle, on which nothing else may be called.
  bool valid() const noexcept { return handle_ != nullptr; }
  /// The first listening channel.
  Channel& channel() const;
  /// All of them: one per address, or per loop with options::reusePort.
  const std::vector<ChannelPtr>& channels() const;
  /// Where it listens; with port 0 the one that the kernel chose.
  SocketAddress address() const;
  /// Done when all listening channels are closed.
  Future<void> closeFuture() const;
  /// Stops listening. Connections stay.
  Future<void> close() const;
  /// Stops listening, then closes every connection gracefully: what was flushed is sent, and the
  /// peer sees the end of the stream instead of a reset. What is not done after `timeout` is cut.
  /// A second call joins the first, with the shorter of the two deadlines.
  Future<DrainReport> drain(Duration timeout = std::chrono::seconds(15)) const;

 private:
  friend class internal::ServerCore;
  explicit Server(std::shared_ptr<internal::ServerHandle> handle) noexcept
      : handle_(std::move(handle)) {}
  internal::ServerCore& core() const;

  std::shared_ptr<internal::ServerHandle> handle_;  // shared by the copies
};

}  // namespace millrace
