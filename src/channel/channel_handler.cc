// SPDX-License-Identifier: Apache-2.0
// What events do that a handler does not override. The pipeline does not even ask such a handler,
// unless it knows it only by a base class.
#include <millrace/channel/channel_handler.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/future.h>
#include <millrace/sys/socket_address.h>

#include <utility>

namespace millrace {

ChannelHandler::~ChannelHandler() = default;

void ChannelHandler::handlerAdded(Context&) {}
void ChannelHandler::handlerRemoved(Context&) {}

void ChannelHandler::channelRegistered(Context& ctx) { ctx.fireChannelRegistered(); }
void ChannelHandler::channelUnregistered(Context& ctx) { ctx.fireChannelUnregistered(); }
void ChannelHandler::channelActive(Context& ctx) { ctx.fireChannelActive(); }
void ChannelHandler::channelInactive(Context& ctx) { ctx.fireChannelInactive(); }
void ChannelHandler::channelRead(Context& ctx, Message&& msg) {
  ctx.fireChannelRead(std::move(msg));
}
void ChannelHandler::channelReadComplete(Context& ctx) { ctx.fireChannelReadComplete(); }
void ChannelHandler::userEventTriggered(Context& ctx, Message&& event) {
  ctx.fireUserEventTriggered(std::move(event));
}
void ChannelHandler::channelWritabilityChanged(Context& ctx) {
  ctx.fireChannelWritabilityChanged();
}
void ChannelHandler::exceptionCaught(Context& ctx, const Error& error) {
  ctx.fireExceptionCaught(error);
}

void ChannelHandler::bind(Context& ctx, const SocketAddress& local, Promise<void>&& done) {
  ctx.bind(local, std::move(done));
}
void ChannelHandler::connect(Context& ctx, const SocketAddress& remote, const SocketAddress& local,
                             Promise<void>&& done) {
  ctx.connect(remote, local, std::move(done));
}
void ChannelHandler::disconnect(Context& ctx, Promise<void>&& done) {
  ctx.disconnect(std::move(done));
}
void ChannelHandler::close(Context& ctx, Promise<void>&& done) { ctx.close(std::move(done)); }
void ChannelHandler::deregister(Context& ctx, Promise<void>&& done) {
  ctx.deregister(std::move(done));
}
void ChannelHandler::read(Context& ctx) { ctx.read(); }
void ChannelHandler::write(Context& ctx, Message&& msg, Promise<void>&& done) {
  ctx.write(std::move(msg), std::move(done));
}
void ChannelHandler::flush(Context& ctx) { ctx.flush(); }

}  // namespace millrace
