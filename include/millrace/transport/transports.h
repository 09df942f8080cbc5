// SPDX-License-Identifier: Apache-2.0
// The transports that come with Millrace.
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/transport.h>

namespace millrace {

/// The one for engines of this type; null if there is none. Any thread.
MILLRACE_API const Transport* transportFor(const IoType& type) noexcept;

}  // namespace millrace
