// SPDX-License-Identifier: Apache-2.0
#include "transport/local/local_transport.h"

#include "transport/local/local_channel.h"

#include <utility>

namespace millrace {

namespace {

class LocalTransport final : public Transport {
 public:
  using Transport::adopt;
  Result<ChannelPtr> newServer(EventLoop& loop, ChannelKind) const override {
    return ChannelPtr(new LocalServerChannel(loop));
  }
  Result<ChannelPtr> newClient(EventLoop& loop, ChannelKind) const override {
    return ChannelPtr(new LocalChannel(loop));
  }
  Result<ChannelPtr> adopt(EventLoop& loop, AcceptedSocket&& socket) const override {
    return ChannelPtr(new LocalChannel(loop, std::move(socket.inProcess)));
  }
};

}  // namespace

const Transport& localTransport() noexcept {
  static const LocalTransport local;
  return local;
}

}  // namespace millrace
