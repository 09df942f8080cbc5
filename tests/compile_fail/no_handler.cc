// SPDX-License-Identifier: Apache-2.0
// Something that is no handler at all.
// EXPECT: a handler derives from ChannelHandler
#include <millrace/channel/channel.h>

#ifdef GOOD
struct Handler : millrace::ChannelHandler {};
#else
struct Handler {};
#endif

void add(millrace::Channel& channel) { channel.pipeline().emplaceLast<Handler>(); }
