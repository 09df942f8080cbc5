// SPDX-License-Identifier: Apache-2.0
// The transports that come with Millrace.
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/transport.h>

namespace millrace {

/// The one for engines of this type and channels of this kind; null if there is none. Any thread.
/// In-process channels live on every engine.
MILLRACE_API const Transport* transportFor(const IoType& type, ChannelKind kind) noexcept;
/// The one for sockets.
inline const Transport* transportFor(const IoType& type) noexcept {
  return transportFor(type, ChannelKind::tcp4);
}

}  // namespace millrace
