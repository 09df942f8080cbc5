// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/channel.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/handler/offload_handler.h>
#include <millrace/loop/event_loop.h>

#include <deque>
#include <optional>
#include <utility>

namespace millrace {

/// Loop thread only, but for `function`, which one thread of the pool calls at a time.
struct OffloadHandler::State final : std::enable_shared_from_this<State> {
  State(ThreadPool& threads, Function work, std::size_t most)
      : pool(threads), function(std::move(work)), limit(most) {}

  /// A result, or what the function threw.
  struct Outcome {
    Message msg;
    Error failure;
  };

  void beginNext() {
    if (busy || waiting.empty() || ctx == nullptr) return;
    busy = true;
    auto task = [self = shared_from_this(), alive = ChannelPtr(&ctx->channel()),
                 msg = std::move(waiting.front())]() mutable {
      auto outcome = std::make_shared<Outcome>();
      try {
        outcome->msg = self->function(std::move(msg));
      } catch (...) {
        outcome->failure = Error::fromCurrentException("offload");
      }
      alive->loop().executeOwn([self, alive, outcome] { self->done(*outcome); });
    };
    waiting.pop_front();
    if (pool.tryExecute(std::move(task))) return;
    busy = false;
    // A message cannot be left out: those behind it would come too early.
    const ChannelPtr channel(&ctx->channel());
    ctx->fireExceptionCaught(Error(Errc::rejected, "offload", "the pool of threads is full"));
    channel->close();
  }

  void done(Outcome& outcome) {
    busy = false;
    if (ctx == nullptr) return;
    if (outcome.failure) {
      ctx->fireExceptionCaught(outcome.failure);
    } else if (outcome.msg) {
      ctx->fireChannelRead(std::move(outcome.msg));
    }
    if (ctx == nullptr) return;
    beginNext();
    if (ctx == nullptr) return;
    if (!busy) ctx->fireChannelReadComplete();
    if (ctx != nullptr && paused && waiting.size() <= limit / 2) {
      paused = false;
      ctx->channel().setAutoRead(true);
    }
  }

  ThreadPool& pool;
  const Function function;
  const std::size_t limit;
  Context* ctx = nullptr;  // null once the handler has left
  std::deque<Message> waiting;
  bool busy = false;
  bool paused = false;
};

OffloadHandler::OffloadHandler(ThreadPool& pool, Function function, std::size_t limit)
    : state_(std::make_shared<State>(pool, std::move(function), limit)) {}

OffloadHandler::~OffloadHandler() = default;

void OffloadHandler::handlerAdded(Context& ctx) { state_->ctx = &ctx; }

void OffloadHandler::handlerRemoved(Context& ctx) {
  state_->ctx = nullptr;
  state_->waiting.clear();
  // Nobody else would begin to read again.
  if (std::exchange(state_->paused, false) && ctx.channel().isOpen()) {
    ctx.channel().setAutoRead(true);
  }
}

void OffloadHandler::channelRead(Context& ctx, Message&& msg) {
  if (ByteBuf* bytes = msg.as<ByteBuf>()) bytes->compact();  // it may wait for long
  state_->waiting.push_back(std::move(msg));
  state_->beginNext();
  if (state_->paused || state_->waiting.size() <= state_->limit) return;
  if (!ctx.channel().isAutoRead()) return;  // whoever reads by himself decides himself
  state_->paused = true;
  ctx.channel().setAutoRead(false);
}

// Follows the last result instead.
void OffloadHandler::channelReadComplete(Context& ctx) {
  if (!state_->busy) ctx.fireChannelReadComplete();
}

void OffloadHandler::channelInactive(Context& ctx) { ctx.fireChannelInactive(); }

}  // namespace millrace
