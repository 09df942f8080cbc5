// SPDX-License-Identifier: Apache-2.0
// StackCapture: the stack of another thread of this process, read by that thread itself in a signal
// handler.
//
// The signal is a real-time one that nobody has a handler for, looked for from SIGRTMAX - 1
// downwards: the low numbers are what programs and timers take first, SIGRTMAX belongs to tools
// such as valgrind, and a signal with a meaning of its own (SIGURG, SIGPROF) may be in use without
// a handler. The handler is installed with the first StackCapture and the old state put back with
// the last one. Signals that did not come from here are ignored meanwhile.
//
// The handler restarts system calls (SA_RESTART); those that the kernel never restarts (poll,
// nanosleep and their kin) fail with EINTR in the captured thread, as they may for any signal.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/clock.h>

#include <array>
#include <cstdint>
#include <vector>

namespace millrace {

/// Counters of a thread, null or alive as long as the thread.
using ThreadCounters = std::array<const Atomic<std::uint64_t>*, 2>;

/// A thread at one moment.
struct CapturedStack {
  /// Where it is and was called from, innermost first: addresses inside of the instructions, as
  /// debug information wants them. Empty if the thread did not answer.
  std::vector<std::uintptr_t> frames;
  /// What its counters said.
  std::array<std::uint64_t, 2> counts{};
};

/// Keeps the handler installed while it lives. Any thread.
class StackCapture {
 public:
  StackCapture();
  StackCapture(const StackCapture&) = delete;
  StackCapture& operator=(const StackCapture&) = delete;
  ~StackCapture();

  /// What captured threads must not block. 0 if no signal was free: then every capture is empty.
  int signal() const noexcept { return signal_; }

  /// The stack of `thread`, without frames if it does not answer until then (it is stuck in the
  /// kernel, or blocks the signal). REQUIRES: the thread lives until this returns.
  CapturedStack of(std::int64_t thread, Deadline until, const ThreadCounters& counters = {});

 private:
  int signal_;
};

}  // namespace millrace
