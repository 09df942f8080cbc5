// SPDX-License-Identifier: Apache-2.0
// A handler that says it is not to be shared.
// EXPECT: static constexpr bool sharable = true
#include <millrace/channel/channel.h>

#include <memory>

struct Base : millrace::ChannelHandler {
  static constexpr bool sharable = true;
};
struct Handler : Base {
#ifndef GOOD
  static constexpr bool sharable = false;
#endif
};

void add(millrace::Channel& channel) { channel.pipeline().addFirst(std::make_shared<Handler>()); }
