// SPDX-License-Identifier: Apache-2.0
#include "loop/readable_name.h"

#include <millrace/channel/channel.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/handler/logging_handler.h>
#include <millrace/sys/socket_address.h>

#include <utility>

namespace millrace {

LoggingHandler::LoggingHandler(LogLevel level, Bytes bytes, std::string name)
    : level_(level), bytes_(bytes), name_(std::move(name)) {}

bool LoggingHandler::isOn() const noexcept { return logEnabled(level_, "handler"); }

void LoggingHandler::say(const Context& ctx, const std::string& what) const {
  if (isOn()) log(level_, "handler", name_, " ", ctx.channel().describe(), " ", what);
}

void LoggingHandler::say(const Context& ctx, const char* event, const Message& msg) const {
  if (!isOn()) return;
  const ByteBuf* bytes = msg.as<ByteBuf>();
  if (bytes == nullptr) {
    say(ctx, std::string(event) + ": " + readableName(msg.type()));
    return;
  }
  std::string text = std::string(event) + ": " + std::to_string(bytes->readableBytes()) + " bytes";
  if (bytes_ == Bytes::hexDump && bytes->isReadable()) text += "\n" + bytes->hexDump();
  say(ctx, text);
}

void LoggingHandler::channelRegistered(Context& ctx) {
  say(ctx, "registered");
  ctx.fireChannelRegistered();
}
void LoggingHandler::channelUnregistered(Context& ctx) {
  say(ctx, "unregistered");
  ctx.fireChannelUnregistered();
}
void LoggingHandler::channelActive(Context& ctx) {
  say(ctx, "active");
  ctx.fireChannelActive();
}
void LoggingHandler::channelInactive(Context& ctx) {
  say(ctx, "inactive");
  ctx.fireChannelInactive();
}
void LoggingHandler::channelRead(Context& ctx, Message&& msg) {
  say(ctx, "read", msg);
  ctx.fireChannelRead(std::move(msg));
}
void LoggingHandler::channelReadComplete(Context& ctx) {
  say(ctx, "read complete");
  ctx.fireChannelReadComplete();
}
void LoggingHandler::userEventTriggered(Context& ctx, Message&& event) {
  say(ctx, "user event", event);
  ctx.fireUserEventTriggered(std::move(event));
}
void LoggingHandler::channelWritabilityChanged(Context& ctx) {
  say(ctx, ctx.channel().isWritable() ? "writable" : "not writable");
  ctx.fireChannelWritabilityChanged();
}
void LoggingHandler::exceptionCaught(Context& ctx, const Error& error) {
  say(ctx, "exception: " + error.message());
  ctx.fireExceptionCaught(error);
}

void LoggingHandler::bind(Context& ctx, const SocketAddress& local, Promise<void>&& done) {
  say(ctx, "bind " + local.toString());
  ctx.bind(local, std::move(done));
}
void LoggingHandler::connect(Context& ctx, const SocketAddress& remote, const SocketAddress& local,
                             Promise<void>&& done) {
  say(ctx, "connect " + remote.toString());
  ctx.connect(remote, local, std::move(done));
}
void LoggingHandler::disconnect(Context& ctx, Promise<void>&& done) {
  say(ctx, "disconnect");
  ctx.disconnect(std::move(done));
}
void LoggingHandler::close(Context& ctx, Promise<void>&& done) {
  say(ctx, "close");
  ctx.close(std::move(done));
}
void LoggingHandler::deregister(Context& ctx, Promise<void>&& done) {
  say(ctx, "deregister");
  ctx.deregister(std::move(done));
}
void LoggingHandler::write(Context& ctx, Message&& msg, Promise<void>&& done) {
  say(ctx, "write", msg);
  ctx.write(std::move(msg), std::move(done));
}
void LoggingHandler::flush(Context& ctx) {
  say(ctx, "flush");
  ctx.flush();
}

}  // namespace millrace
