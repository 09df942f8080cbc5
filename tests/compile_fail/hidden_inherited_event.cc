// SPDX-License-Identifier: Apache-2.0
// Hidden by a base class.
// EXPECT: it hides the event and is never called
#include <millrace/channel/channel.h>

struct Base : millrace::ChannelHandler {
#ifdef GOOD
  void channelActive(millrace::Context&) override {}
#else
  void channelActive() {}
#endif
};
struct Handler : Base {};

void add(millrace::Channel& channel) { channel.pipeline().emplaceFirst<Handler>(); }
