// SPDX-License-Identifier: Apache-2.0
// The same parameters, but const: not an override either.
// EXPECT: it hides the event and is never called
#include <millrace/channel/channel.h>

#include <memory>

struct Handler : millrace::ChannelHandler {
#ifdef GOOD
  void flush(millrace::Context&) override {}
#else
  void flush(millrace::Context&) const {}
#endif
};

void add(millrace::Channel& channel) { channel.pipeline().addLast(std::make_unique<Handler>()); }
