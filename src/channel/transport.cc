// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/channel.h>
#include <millrace/channel/transport.h>

#include <utility>

namespace millrace {

Result<ChannelPtr> Transport::adopt(EventLoop& loop, Fd fd, const SocketAddress& peer) const {
  return adopt(loop, AcceptedSocket{std::move(fd), peer, {}});
}

}  // namespace millrace
