// SPDX-License-Identifier: Apache-2.0
// The events that channels themselves send through userEventTriggered().
#pragma once

namespace millrace {

/// The peer has ended its stream, and options::allowHalfClosure lets us go on writing.
struct InputShutdown {};

/// The channel begins to close gracefully: by closeGracefully(), by a drain of its server, or with its
/// loop. What a handler flushes now is still sent; what it flushes later fails. No input follows.
struct ClosingGracefully {};

/// Channel::shutdownOutput() was called: what a handler flushes now is still sent before the end of the
/// stream; what it flushes later fails. Input goes on.
struct EndingOutput {};

}  // namespace millrace
