// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/channel.h>
#include <millrace/channel/channel_initializer.h>
#include <millrace/channel/context.h>

namespace millrace {

// handlerAdded() of what it adds runs before the handlers behind it hear of anything.
void ChannelInitializer::handlerAdded(Context& ctx) {
  try {
    init_(ctx.channel());
  } catch (...) {
    const Error error = Error::fromCurrentException("initializer of the channel");
    ctx.fireExceptionCaught(error);
    ctx.close();
  }
  if (!ctx.isRemoved()) ctx.pipeline().remove(*this);
}

}  // namespace millrace
