// SPDX-License-Identifier: Apache-2.0
// ReadinessIo: what engines that report readiness (epoll, poll) offer to those who own sockets.
//
// Users watch descriptors by EventLoop::watch(); this is the seam for channels, which register once
// per connection and are called once per event. Loop thread only.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/loop/watch.h>

#include <cstdint>
#include <string>

namespace millrace {

struct RingCompletion;

/// Who is told that a descriptor is ready, or an operation over. Not owned by the engine: it must remove itself before it
/// dies.
class MILLRACE_API IoClient {
 public:
  /// The descriptor is ready for `events` (sys/events.h); 0: again() was called, nothing new is
  /// known. May add, change and remove registrations, its own too.
  virtual void ready(std::uint32_t events) noexcept = 0;
  /// An operation that it began (ring_io.h) has come to something. May begin others and leave.
  virtual void completed(const RingCompletion& completion) noexcept;
  /// The engine cannot keep it, and has forgotten it already.
  virtual void lost(const Error& why) noexcept = 0;
  /// The loop shuts down. Channels are told by their own layer.
  virtual void shuttingDown() noexcept {}
  /// One line for dump(); empty for those whom another part describes.
  virtual std::string describeClient() const { return {}; }

 protected:
  ~IoClient() = default;
};

/// The registrations of one engine.
class MILLRACE_API ReadinessIo {
 public:
  /// True if Trigger::edge works.
  virtual bool isEdge() const noexcept = 0;
  /// Registers `fd`; gives the registration's number, never 0. `events` may be 0: then only
  /// failures are reported.
  virtual Result<std::uint64_t> add(int fd, std::uint32_t events, Trigger trigger,
                                    IoClient& client) = 0;
  /// Changes what it waits for. With edges, what is ready at this moment is reported anew.
  virtual Result<void> modify(std::uint64_t id, std::uint32_t events) = 0;
  /// Ends the registration; no event comes after this, not even one found already.
  virtual void remove(std::uint64_t id) noexcept = 0;
  /// The same for a descriptor that is closed right after: spares a system call.
  virtual void removeClosed(std::uint64_t id) noexcept = 0;
  /// The descriptors of registrations that were removed may be closed: nothing keeps their files open any more.
  virtual void letGo() noexcept {}
  /// Calls ready(0) in the next turn, which does not block.
  virtual void again(std::uint64_t id) = 0;

 protected:
  ~ReadinessIo() = default;
};

}  // namespace millrace
