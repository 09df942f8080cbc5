// SPDX-License-Identifier: Apache-2.0
// The events that channels themselves send through userEventTriggered().
#pragma once

namespace millrace {

/// The peer has ended its stream, and options::allowHalfClosure lets us go on writing.
struct InputShutdown {};

}  // namespace millrace
