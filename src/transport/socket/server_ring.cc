// SPDX-License-Identifier: Apache-2.0
// Servers on an engine with a ring: it accepts by itself while everybody who comes is welcome. Where
// reads are paused or explicit, descriptors are scarce, or more come at once than one turn should bear,
// the server accepts by calls of its own, as on epoll.
#include "channel/channel_fast.h"
#include "transport/socket/server_channel.h"

#include <millrace/channel/message.h>
#include <millrace/channel/transport.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/ring_io.h>
#include <millrace/sys/socket.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace millrace {

namespace {

/// Bursts right after each other, which make a flood.
constexpr int kFloodBursts = 4;

}  // namespace

bool ServerChannel::mayUseRing() const noexcept {
  return ring_ != nullptr && ringId_ == 0 && readsByItself() && early_.empty() && !hasPaused_ &&
         !isFlooded_ && !isLingering();
}

// The socket stays nonblocking. A kernel that minds says so at once, and is not asked again.
bool ServerChannel::goToRing() {
  ringId_ = ring_->enter(socket_.fd(), *this);
  if (!ring_->accept(ringId_)) {
    ring_->leave(std::exchange(ringId_, 0));
    return false;
  }
  socket_.remove();
  readable_ = false;
  ringTaken_ = 0;
  return true;
}

// Nothing is lost: what the ring has taken waits for the next read.
void ServerChannel::leaveRing() {
  if (ringId_ == 0) return;
  for (Fd& each : ring_->stopAccepting(ringId_)) early_.push_back(std::move(each));
  ring_->leave(std::exchange(ringId_, 0));
  if (!std::exchange(inRingBurst_, false) || !isRegistered()) return;
  const Scope scope(*this);
  endBurst(true);
}

void ServerChannel::completed(const RingCompletion& completion) noexcept {
  const Scope scope(*this);
  if (completion.result >= 0) takeFromRing(Fd(completion.result), completion.moreNow);
  if (!completion.last || ringId_ == 0) return;
  leaveRing();
  if (completion.result == -EAGAIN) {
    ring_ = nullptr;
  } else if (completion.result < 0) {
    acceptFailed(-completion.result);
  }
  if (mayReadOn()) doBeginRead();
}

void ServerChannel::takeFromRing(Fd fd, bool moreNow) {
  if (!beginBurst()) {
    early_.push_back(std::move(fd));
    leaveRing();
    return;
  }
  // A handler may stop it: then the burst ends here, and once.
  burst_ = Burst::passing;
  const bool hadOthers = std::exchange(inRingBurst_, false);
  const bool hasRead = passAccepted(std::move(fd)) || hadOthers;
  const int most = settings().maxMessagesPerRead;
  ringTaken_ = moreNow ? ringTaken_ + 1 : 0;
  const bool goesOn = moreNow && ringId_ != 0 && ringTaken_ % most != 0 && mayReadOn();
  if (goesOn) {
    inRingBurst_ = hasRead;
  } else {
    burst_ = Burst::completing;
    endBurst(hasRead);
  }
  burst_ = Burst::none;
  if (goesOn) return;
  if (ringId_ != 0) {
    if (ringTaken_ / kFloodBursts < most) return;
    isFlooded_ = true;
    leaveRing();
  }
  if (mayReadOn()) doBeginRead();
}

// False if it was reset before anybody could look at it: then nobody can tell whose it was.
bool ServerChannel::passAccepted(Fd fd) {
  Result<SocketAddress> peer = peerName(fd.get());
  if (!peer) return false;
  pipeline().fireChannelRead(Message(AcceptedSocket{std::move(fd), std::move(*peer)}));
  return true;
}

}  // namespace millrace
