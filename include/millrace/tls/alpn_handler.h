// SPDX-License-Identifier: Apache-2.0
// AlpnHandler: builds the pipeline by the protocol that the handshake chose.
//
//   pipeline.emplaceLast<TlsHandler>(context);
//   pipeline.emplaceLast<AlpnHandler>([](Channel& channel, std::string_view protocol) {
//     if (protocol == "h2") channel.pipeline().emplaceLast<Http2>();
//     else channel.pipeline().emplaceLast<Http1>();           // "" where the client offered nothing
//   });
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/channel_handler.h>

#include <functional>
#include <string_view>

namespace millrace {

class Channel;

/// Calls its function once, when the handshake is done, and leaves. No message comes before. Handlers that it
/// adds do not see channelActive(), which has passed; TlsHandshakeCompletion comes to them next. What the
/// function throws becomes exceptionCaught() and closes the channel; a failed handshake calls nobody.
class MILLRACE_API AlpnHandler final : public ChannelHandler {
 public:
  using Choose = std::function<void(Channel& channel, std::string_view protocol)>;

  explicit AlpnHandler(Choose choose);
  ~AlpnHandler() override;

  void userEventTriggered(Context& ctx, Message&& event) override;

 private:
  Choose choose_;
};

}  // namespace millrace
