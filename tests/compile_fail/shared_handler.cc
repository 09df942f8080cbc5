// SPDX-License-Identifier: Apache-2.0
// A handler that several pipelines share without saying that it may be.
// EXPECT: static constexpr bool sharable = true
#include <millrace/channel/channel.h>

#include <memory>

struct Handler : millrace::ChannelHandler {
#ifdef GOOD
  static constexpr bool sharable = true;
#endif
};

void add(millrace::Channel& channel) { channel.pipeline().addLast(std::make_shared<Handler>()); }
