// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/loop/io_handler.h>

#include <memory>

namespace millrace {

/// An engine without I/O; see io::parking().
std::unique_ptr<IoHandler> makeParkingHandler();

}  // namespace millrace
