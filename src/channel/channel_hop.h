// SPDX-License-Identifier: Apache-2.0
// How a call of any thread comes to the channel's loop.
#pragma once

#include <millrace/channel/channel.h>
#include <millrace/loop/event_loop.h>

#include <utility>

namespace millrace {

/// A promise on its way to the loop. If the loop does not take it any more, it fails.
class TravellingPromise {
 public:
  explicit TravellingPromise(Promise<void>&& done) noexcept : done_(std::move(done)) {}
  TravellingPromise(TravellingPromise&&) noexcept = default;
  TravellingPromise& operator=(TravellingPromise&&) = delete;
  ~TravellingPromise() {
    if (done_.valid()) done_.tryFailure(Error(Errc::closed, "channel", "(its loop is shut down)"));
  }
  /// It has arrived.
  Promise<void>&& arrive() noexcept { return std::move(done_); }

 private:
  Promise<void> done_;
};

// On the loop the call happens here and now; before it is registered, the channel belongs to its maker,
// and it happens here, too.
template <class Call>
void Channel::hop(Call&& call) {
  if (pipeline_.mayChangeHere()) {
    const Scope scope(*this);
    call();
    return;
  }
  loop_->executeOwn([self = ChannelPtr(this), call = std::forward<Call>(call)]() mutable {
    const Scope scope(*self);
    call();
  });
}

template <class Call>
Future<void> Channel::hopWithFuture(Call&& call) {
  Promise<void> promise(*loop_);
  Future<void> future = promise.future();
  if (pipeline_.mayChangeHere()) {
    const Scope scope(*this);
    call(std::move(promise));
    return future;
  }
  if (loop_->isShutdown()) {
    promise.tryFailure(Error(Errc::rejected, "channel", loop_->name() + " (it is shut down)"));
    return future;
  }
  hop([call = std::forward<Call>(call), done = TravellingPromise(std::move(promise))]() mutable {
    call(done.arrive());
  });
  return future;
}

}  // namespace millrace
