// SPDX-License-Identifier: Apache-2.0
// onDescriptor(): does something to the descriptor of a channel, on its loop. Any thread.
#pragma once

#include <millrace/channel/channel.h>
#include <millrace/loop/event_loop.h>

#include <type_traits>
#include <utility>

namespace millrace {

/// `call` takes the descriptor and gives a Result<T>. Fails as it does, or if there is none.
template <class Call, class Outcome = std::invoke_result_t<Call&, int>>
auto onDescriptor(Channel& channel, const char* operation, Call call) {
  using T = typename Outcome::value_type;
  Promise<T> promise(channel.loop());
  Future<T> future = promise.future();
  auto run = [operation](Channel& on, Call& what) -> Outcome {
    if (!on.isOpen()) return Error(Errc::closed, operation, on.describe());
    if (on.descriptor() < 0) return Error(Errc::notSupported, operation, on.describe());
    return what(on.descriptor());
  };
  if (channel.loop().inEventLoop()) {
    promise.tryComplete(run(channel, call));
    return future;
  }
  // Rejected, the promise is dropped, which fails the future.
  channel.loop().executeOwn(
      [self = ChannelPtr(&channel), run, call = std::move(call),
       done = std::move(promise)]() mutable { done.tryComplete(run(*self, call)); });
  return future;
}

}  // namespace millrace
