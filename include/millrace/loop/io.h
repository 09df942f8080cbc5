// SPDX-License-Identifier: Apache-2.0
// The engines by name: EventLoopGroup workers(4, io::epoll());
#pragma once

#include <millrace/base/export.h>
#include <millrace/loop/io_handler.h>

#include <string>
#include <string_view>

namespace millrace {

/// What this machine allows, found by trying.
struct IoSupport {
  bool uring = false;          ///< io::uring() works here
  bool uringDeferred = false;  ///< with the flags of Linux 6.1 and later, which are the fast ones
  std::string why;             ///< if not: the reason, and what to do
};

/// Tries. Any thread; costs another thread for a moment.
MILLRACE_API IoSupport ioSupport();

namespace io {

/// How many events one wait can bring: an array that doubles when it was full, or a fixed one.
struct EventArray {
  int initial = 1024;
  bool grows = true;
};

/// epoll, edge and level. The default. Making a loop opens two descriptors.
MILLRACE_API IoFactory epoll(EventArray events = {});
/// poll(2), level only. For few descriptors, and to compare with.
MILLRACE_API IoFactory poll();
/// One thread for each channel, with blocking calls: the loops of a group are made on demand, and
/// the number given to the group is the most channels it may have (0: no limit).
MILLRACE_API IoFactory blocking();
/// How much a ring takes at once; the kernel rounds up to powers of two.
struct RingSizes {
  int entries = 512;       ///< operations begun in one turn, before a call is needed in between
  int completions = 4096;  ///< more wait in the kernel, and cost more
};

/// io_uring, with what makes it pay: operations that repeat by themselves, buffers taken when bytes
/// have come, one call per turn. Where the kernel, a container or the build does not allow it, epoll
/// takes its place, and one line in the log says why; so it does for a loop that finds no memory for its
/// ring when it starts, and says so itself. EventLoop::ioType() tells what a loop runs on.
MILLRACE_API IoFactory uring(RingSizes sizes = {});
/// No I/O at all: a plain executor with timers that sleeps in a futex. Needs no descriptor.
MILLRACE_API IoFactory parking();
/// What MILLRACE_IO names, else the best that this machine has: epoll today.
MILLRACE_API IoFactory automatic();

/// By name: automatic, epoll, uring, poll, blocking, parking. Throws std::invalid_argument with the list of names.
MILLRACE_API IoFactory byName(std::string_view name);

/// The types that `EventLoop::ioType()` gives.
MILLRACE_API extern const IoType epollType;
MILLRACE_API extern const IoType uringType;
MILLRACE_API extern const IoType pollType;
MILLRACE_API extern const IoType blockingType;
MILLRACE_API extern const IoType parkingType;

}  // namespace io

}  // namespace millrace
