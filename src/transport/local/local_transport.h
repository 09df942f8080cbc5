// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/channel/transport.h>

namespace millrace {

/// In-process channels, on any engine.
const Transport& localTransport() noexcept;

}  // namespace millrace
