// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/channel/transport.h>

namespace millrace {

/// Sockets on the engines that report readiness.
const Transport& socketTransport() noexcept;

}  // namespace millrace
