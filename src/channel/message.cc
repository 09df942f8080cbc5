// SPDX-License-Identifier: Apache-2.0
#include "loop/readable_name.h"

#include <millrace/channel/message.h>

#include <stdexcept>

namespace millrace {

namespace internal {

constinit const MessageOps kByteBufMessage = MessageType<ByteBuf>::kOwn;

}  // namespace internal

void Message::wrongType(const std::type_info& wanted) const {
  throw std::logic_error("Message::take(): asked for " + readableName(wanted) + ", but it holds " +
                         (ops_ == nullptr ? "nothing" : readableName(type())) +
                         "; is a handler missing before this one?");
}

}  // namespace millrace
