// SPDX-License-Identifier: Apache-2.0
#include "tls/context_core.h"

#include <millrace/buffer/byte_buf.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/loop/event_loop.h>
#include <millrace/tls/optional_tls_handler.h>
#include <millrace/tls/tls_handler.h>

#include <stdexcept>
#include <utility>

namespace millrace {

namespace {

/// A TLS record with a handshake begins with 22, 3 and a number below 5.
constexpr std::size_t kNeeded = 3;

bool looksLikeTls(const ByteBuf& bytes) {
  const auto data = bytes.data();
  return data[0] == std::byte{22} && data[1] == std::byte{3} && data[2] < std::byte{5};
}

}  // namespace

struct OptionalTlsHandler::State {
  TlsContext context;
  Fill fill;
  ByteBuf begin;  // what came so far
  ScheduledFuture timer;
};

OptionalTlsHandler::OptionalTlsHandler(const TlsContext& context, Fill fill)
    : state_(std::make_unique<State>(State{context, std::move(fill), {}, {}})) {
  if (!context.isServer()) throw std::invalid_argument("OptionalTlsHandler is for servers");
  if (!state_->fill) throw std::invalid_argument("OptionalTlsHandler needs a function");
}

OptionalTlsHandler::~OptionalTlsHandler() = default;

void OptionalTlsHandler::handlerAdded(Context& ctx) {
  if (ctx.loop().isShuttingDown()) return;
  const Duration limit = state_->context.core().snapshot()->settings.handshakeTimeout;
  // Cancelled in handlerRemoved(), on this loop: the context is there when it runs, but perhaps not afterwards.
  state_->timer = ctx.loop().schedule(limit, [where = &ctx] {
    Channel& channel = where->channel();
    channel.inEvent([&] {
      where->fireExceptionCaught(Error(Errc::timedOut, "first bytes",
                                       "the peer has not sent enough to tell TLS from plain"));
      if (channel.isOpen()) channel.close();
    });
  });
}

void OptionalTlsHandler::handlerRemoved(Context& ctx) {
  if (state_->timer.valid()) state_->timer.cancel();
  if (state_->begin && ctx.channel().isOpen())
    ctx.fireChannelRead(Message(std::move(state_->begin)));
}

void OptionalTlsHandler::channelRead(Context& ctx, Message&& msg) {
  if (!msg.is<ByteBuf>()) {
    ctx.fireChannelRead(std::move(msg));
    return;
  }
  if (!state_->begin) {
    state_->begin = msg.take<ByteBuf>();
  } else {
    state_->begin.writeBytes(msg.as<ByteBuf>()->data());
  }
  if (!state_->begin) return;
  // What cannot be TLS need not wait for more.
  const bool isTls = state_->begin.readableBytes() < kNeeded || looksLikeTls(state_->begin);
  const bool mayBeTls = state_->begin && state_->begin.data()[0] == std::byte{22};
  if (state_->begin.readableBytes() >= kNeeded || !mayBeTls) decide(ctx, isTls && mayBeTls);
}

void OptionalTlsHandler::channelReadComplete(Context& ctx) {
  if (!ctx.channel().isAutoRead()) ctx.read();
  ctx.fireChannelReadComplete();
}

// What came so far goes to whoever stands behind us, now that somebody does.
void OptionalTlsHandler::decide(Context& ctx, bool isTls) {
  ChannelPipeline& pipeline = ctx.pipeline();
  if (isTls) pipeline.addAfter(ctx.name(), {}, std::make_unique<TlsHandler>(state_->context));
  const ChannelPtr channel(&ctx.channel());
  try {
    state_->fill(*channel, isTls);
  } catch (...) {
    state_->begin = ByteBuf();
    ctx.fireExceptionCaught(Error::fromCurrentException(isTls ? "adding handlers for TLS"
                                                              : "adding handlers for plain"));
    channel->close();
    return;
  }
  pipeline.removeIfExists(*this);
}

}  // namespace millrace
