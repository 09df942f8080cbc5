// SPDX-License-Identifier: Apache-2.0
// LoggingHandler: writes every event that passes it to the log.
//
//   pipeline.addFirst(std::make_shared<LoggingHandler>(LogLevel::info));
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/log.h>
#include <millrace/channel/channel_handler.h>

#include <string>

namespace millrace {

/// May be shared by many pipelines. Says nothing, and costs little, where its level is not logged.
class MILLRACE_API LoggingHandler final : public ChannelHandler {
 public:
  static constexpr bool sharable = true;
  enum class Bytes { summary, hexDump };

  /// Messages carry `name` in front; what is read and written is shown as a hex dump, or by its size.
  explicit LoggingHandler(LogLevel level = LogLevel::debug, Bytes bytes = Bytes::hexDump,
                          std::string name = "channel");

  void channelRegistered(Context& ctx) override;
  void channelUnregistered(Context& ctx) override;
  void channelActive(Context& ctx) override;
  void channelInactive(Context& ctx) override;
  void channelRead(Context& ctx, Message&& msg) override;
  void channelReadComplete(Context& ctx) override;
  void userEventTriggered(Context& ctx, Message&& event) override;
  void channelWritabilityChanged(Context& ctx) override;
  void exceptionCaught(Context& ctx, const Error& error) override;
  void bind(Context& ctx, const SocketAddress& local, Promise<void>&& done) override;
  void connect(Context& ctx, const SocketAddress& remote, const SocketAddress& local,
               Promise<void>&& done) override;
  void disconnect(Context& ctx, Promise<void>&& done) override;
  void close(Context& ctx, Promise<void>&& done) override;
  void deregister(Context& ctx, Promise<void>&& done) override;
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override;
  void flush(Context& ctx) override;

 private:
  bool isOn() const noexcept;
  void say(const Context& ctx, const std::string& what) const;
  void say(const Context& ctx, const char* event, const Message& msg) const;

  const LogLevel level_;
  const Bytes bytes_;
  const std::string name_;
};

}  // namespace millrace
