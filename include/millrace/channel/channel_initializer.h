// SPDX-License-Identifier: Apache-2.0
// ChannelInitializer: a handler that fills the pipeline of a channel once it is registered, and goes.
//
// Bootstraps take any callable in its place: [](Channel& channel) { ... }.
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/channel_handler.h>

#include <functional>
#include <utility>

namespace millrace {

class Channel;

/// Runs once for each channel, on its loop, before channelRegistered(). If it throws, the channel is
/// closed.
class MILLRACE_API ChannelInitializer final : public ChannelHandler {
 public:
  using Function = std::function<void(Channel& channel)>;

  explicit ChannelInitializer(Function init) : init_(std::move(init)) {}

  void handlerAdded(Context& ctx) override;

 private:
  Function init_;
};

}  // namespace millrace
