// SPDX-License-Identifier: Apache-2.0
// A member that looks like an event but has other parameters.
// EXPECT: it hides the event and is never called
#include <millrace/channel/channel.h>
#include <millrace/channel/message.h>

struct Handler : millrace::ChannelHandler {
#ifdef GOOD
  void channelRead(millrace::Context&, millrace::Message&&) override {}
#else
  void channelRead(millrace::Context&, millrace::Message&) {}
#endif
};

void add(millrace::Channel& channel) { channel.pipeline().emplaceLast<Handler>(); }
