// SPDX-License-Identifier: Apache-2.0
// SocketHandle: the descriptor of a channel and its place in a readiness engine. Loop thread only.
#pragma once

#include <millrace/base/result.h>
#include <millrace/channel/channel_option.h>
#include <millrace/loop/readiness_io.h>
#include <millrace/sys/fd.h>

#include <cstdint>
#include <sys/socket.h>
#include <utility>

namespace millrace {

/// Sets one of the kernel's options. Fails with Errc::notSupported for others.
Result<void> setSocketOption(int fd, const OptionKey& key, const OptionValue& value);
Result<OptionValue> getSocketOption(int fd, const OptionKey& key);

/// True for what the kernel says of a descriptor that somebody closed behind our back, or of the file
/// that got its number.
bool isForeign(int error) noexcept;

/// A member of channels: with edges, interest only grows; with levels it follows what is wanted.
class SocketHandle {
 public:
  explicit SocketHandle(Fd fd) noexcept : fd_(std::move(fd)) {}

  int fd() const noexcept { return fd_.get(); }
  bool isRegistered() const noexcept { return id_ != 0; }
  bool isEdge() const noexcept { return edge_; }

  /// Calls block from now on, for a tenth of a second at the most, then fail with EAGAIN.
  Result<void> makeBlocking();
  bool isBlocking() const noexcept { return (flags_ & MSG_DONTWAIT) == 0; }
  /// For calls that read and write: no signals, and those wait only where makeBlocking() was called.
  int flags() const noexcept { return flags_; }
  /// A ring works on it: the kernel waits until something can be done. Our calls do not, by flags().
  Result<void> letKernelWait();
  /// Before calls that have no flags: they do not wait, either.
  Result<void> neverWait();

  /// Begins with `events`; with levels only what is asked for later.
  Result<void> add(ReadinessIo& io, std::uint32_t events, IoClient& client);
  /// Waits for `events`, too.
  Result<void> want(std::uint32_t events);
  /// Does not wait for `events` any more; with edges nothing needs to be done.
  void unwant(std::uint32_t events) noexcept;
  /// The next turn calls ready(0), once however often this was called.
  void again();
  /// ready(0) has come.
  void againCame() noexcept { listed_ = false; }
  /// Leaves the engine; the descriptor stays open.
  void remove() noexcept;
  /// The same, and it may be closed at any time.
  void leave() noexcept;
  /// The engine has forgotten it already.
  void forget() noexcept { id_ = 0; }
  /// The number belongs to somebody else now: close() leaves it open.
  void disown() noexcept;
  /// Leaves the engine and closes.
  void close() noexcept;

 private:
  Fd fd_;
  std::uint32_t interest_ = 0;
  std::uint64_t id_ = 0;
  ReadinessIo* io_ = nullptr;
  std::uint16_t flags_ = MSG_DONTWAIT | MSG_NOSIGNAL;
  bool edge_ = false;
  bool listed_ = false;
  bool kernelWaits_ = false;
  bool foreign_ = false;
};

}  // namespace millrace
