// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/message.h>

namespace millrace::internal {

constinit const MessageOps kByteBufMessage = MessageType<ByteBuf>::kOwn;

}  // namespace millrace::internal
