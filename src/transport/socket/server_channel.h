// SPDX-License-Identifier: Apache-2.0
// ServerChannel: a listening socket, TCP or Unix, on a readiness engine or on one with a ring
// (server_ring.cc). Loop thread only.
//
// Each connection is a message (AcceptedSocket); it makes no channels. Without descriptors it pauses,
// says so once, and tries again until there are some.
#pragma once

#include "transport/socket/socket_base.h"
#include "transport/socket/unix_path.h"

#include <millrace/channel/channel.h>
#include <millrace/loop/readiness_io.h>
#include <millrace/sys/socket_address.h>

#include <deque>

namespace millrace {

class RingIo;

class ServerChannel final : public Channel, private IoClient {
 public:
  ServerChannel(EventLoop& loop, Fd fd, bool isUnix);

  const char* kind() const noexcept override { return isUnix_ ? "unix server" : "tcp server"; }
  SocketAddress localAddress() const override {
    return mayReadAddresses() ? local_ : SocketAddress();
  }
  int descriptor() const noexcept override { return socket_.fd(); }
  Result<void> applyOption(const OptionKey& key, const OptionValue& value) override;
  Result<OptionValue> lookUpOption(const OptionKey& key) const override;
  /// A ring accepts for it.
  bool isOnRing() const noexcept { return ringId_ != 0; }

 private:
  // --- Channel ---
  Result<void> doRegister() override;
  void doDeregister() noexcept override;
  Result<void> doBind(const SocketAddress& local) override;
  void doClose() noexcept override;
  void doBeginRead() override;
  void doStopRead() override;
  int doWrite(OutboundBuffer& out) override;
  bool isActiveNow() const noexcept override { return listening_; }
  bool canLinger() const noexcept override { return true; }
  Result<void> doShutdownOutput() override { return {}; }
  void doLinger() override;
  void unhandledError(const Error& error) noexcept override;

  // --- IoClient ---
  void ready(std::uint32_t events) noexcept override;
  void completed(const RingCompletion& completion) noexcept override;
  void lost(const Error& why) noexcept override;

  Result<void> enter();
  Result<void> enterReadiness();
  void acceptBurst();
  int acceptOne(int& passed);
  void acceptFailed(int error);
  void pause(int error);
  void resume();
  // On a ring: server_ring.cc.
  bool mayUseRing() const noexcept;
  bool goToRing();
  void leaveRing();
  void takeFromRing(Fd fd, bool moreNow);
  bool passAccepted(Fd fd);

  /// Handlers are in channelRead() or channelReadComplete(): they may ask for more, or close it, and must
  /// not change its way meanwhile.
  enum class Burst : std::uint8_t { none, passing, completing };

  SocketHandle socket_;
  RingIo* ring_ = nullptr;    // the loop's, if it has one
  std::uint64_t ringId_ = 0;  // 0: it accepts by readiness
  std::deque<Fd> early_;      // what the ring had taken when it was stopped
  int ringTaken_ = 0;         // right after each other
  SocketAddress local_;
  BoundPath path_;
  int backlog_ = 4096;
  int pauseMillis_ = 0;  // of the pause under way; 0: it accepts
  int nextPause_ = 0;
  std::int64_t lastSaid_ = 0;  // when a pause was logged last
  bool hasPaused_ = false;     // nothing was accepted since a pause
  bool saysPauses_ = true;     // the last one was logged
  bool telling_ = false;       // the pipeline is being told of a pause
  const bool isUnix_;
  Burst burst_ = Burst::none;
  bool listening_ = false;
  bool readable_ = false;
  bool inRingBurst_ = false;  // channelReadComplete() follows with the ring's next completion
  bool isFlooded_ = false;    // more came at once than the ring should bring
};

}  // namespace millrace
