// SPDX-License-Identifier: Apache-2.0
// How a handler is called: what it throws stays at its boundary.
#pragma once

#include <millrace/channel/context.h>

namespace millrace {

template <class Call>
[[gnu::always_inline]] inline void Context::invoke(Call&& call) noexcept {
  try {
    call(*handler_);
  } catch (...) {
    failed();
  }
}

template <class Call>
[[gnu::always_inline]] inline void Context::invokeOutbound(Promise<void>& done,
                                                           Call&& call) noexcept {
  try {
    call(*handler_);
  } catch (...) {
    failedOutbound(done);
  }
}

}  // namespace millrace
