// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/channel.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/tls/alpn_handler.h>
#include <millrace/tls/tls_events.h>
#include <millrace/tls/tls_handler.h>

#include <stdexcept>
#include <utility>

namespace millrace {

AlpnHandler::AlpnHandler(Choose choose) : choose_(std::move(choose)) {
  if (!choose_) throw std::invalid_argument("AlpnHandler needs a function");
}

AlpnHandler::~AlpnHandler() = default;

void AlpnHandler::userEventTriggered(Context& ctx, Message&& event) {
  const TlsHandshakeCompletion* end = event.as<TlsHandshakeCompletion>();
  if (end == nullptr || !end->isSuccess()) {
    ctx.fireUserEventTriggered(std::move(event));
    return;
  }
  const ChannelPtr channel(&ctx.channel());
  const TlsHandler* tls = channel->pipeline().get<TlsHandler>();
  const std::string protocol = tls == nullptr ? std::string() : tls->applicationProtocol();
  try {
    choose_(*channel, protocol);
  } catch (...) {
    ctx.fireExceptionCaught(
        Error::fromCurrentException("choosing the handlers for \"" + protocol + "\""));
    channel->close();
    return;
  }
  ctx.fireUserEventTriggered(std::move(event));
  channel->pipeline().removeIfExists(*this);
}

}  // namespace millrace
