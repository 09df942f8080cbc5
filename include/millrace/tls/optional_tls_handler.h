// SPDX-License-Identifier: Apache-2.0
// OptionalTlsHandler: TLS or plain on one port; the first bytes decide.
//
//   pipeline.emplaceLast<OptionalTlsHandler>(context, [](Channel& channel, bool isTls) {
//     channel.pipeline().emplaceLast<MyProtocol>(isTls);
//   });
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/channel_handler.h>
#include <millrace/tls/tls_context.h>

#include <functional>
#include <memory>

namespace millrace {

class Channel;

/// Waits for the first three bytes, or for one that cannot begin TLS, calls its function and leaves its place to
/// a TlsHandler, or to nobody. A peer that sends less within the handshake timeout is closed: the protocol
/// must be one in which clients speak first. What the function throws becomes exceptionCaught() and closes.
class MILLRACE_API OptionalTlsHandler final : public ChannelHandler {
 public:
  /// Adds the handlers behind TLS, or behind nothing. They do not see channelActive(), which has passed.
  using Fill = std::function<void(Channel& channel, bool isTls)>;

  OptionalTlsHandler(const TlsContext& context, Fill fill);
  ~OptionalTlsHandler() override;

  void handlerAdded(Context& ctx) override;
  void handlerRemoved(Context& ctx) override;
  void channelRead(Context& ctx, Message&& msg) override;
  void channelReadComplete(Context& ctx) override;

 private:
  struct State;
  void decide(Context& ctx, bool isTls);

  std::unique_ptr<State> state_;
};

}  // namespace millrace
