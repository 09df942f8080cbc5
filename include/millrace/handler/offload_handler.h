// SPDX-License-Identifier: Apache-2.0
// OffloadHandler: slow work on a ThreadPool, without losing the order of messages.
//
//   pipeline.emplaceLast<OffloadHandler>(pool, [](Message&& msg) -> Message { return slow(msg); });
//
// Messages are worked on one at a time per channel; results go on to the next handler on the loop, in
// order. Reading pauses while more than a limit of them wait, so that a fast peer cannot fill the
// memory.
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/channel_handler.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace millrace {

class ThreadPool;

/// Belongs to one pipeline. `pool` must outlive the channels that use it.
class MILLRACE_API OffloadHandler final : public ChannelHandler {
 public:
  /// Runs on a thread of the pool. What it returns goes on; an empty message: nothing does. What it
  /// throws becomes exceptionCaught() of the next handler.
  using Function = std::function<Message(Message&& msg)>;

  /// Reading pauses while more than `limit` messages wait.
  OffloadHandler(ThreadPool& pool, Function function, std::size_t limit = 64);
  ~OffloadHandler() override;

  void handlerAdded(Context& ctx) override;
  void handlerRemoved(Context& ctx) override;
  void channelRead(Context& ctx, Message&& msg) override;
  void channelReadComplete(Context& ctx) override;
  void channelInactive(Context& ctx) override;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the work under way
};

}  // namespace millrace
