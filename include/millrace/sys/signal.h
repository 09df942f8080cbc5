// SPDX-License-Identifier: Apache-2.0
// Signals as readable events. A signal comes out of a signalFd only while every thread that could
// get it has it blocked, so block first, before threads are made: they inherit the mask.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/sys/fd.h>

#include <optional>
#include <vector>

namespace millrace {

/// A descriptor, nonblocking and closed on exec, that becomes readable when one of `signals` is
/// pending. Fails with EINVAL for a number that is no signal, EMFILE, ENFILE, ENOMEM.
MILLRACE_API Result<Fd> signalFd(const std::vector<int>& signals);

/// Blocks `signals` for the calling thread and those that it makes from now on. Fails with EINVAL.
MILLRACE_API Result<void> blockSignals(const std::vector<int>& signals);
/// Blocks every signal that may be blocked without harm: all but those that a fault of the thread
/// itself raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS) and SIGPROF.
MILLRACE_API Result<void> blockAllSignals();
/// Unblocks them for the calling thread. Fails with EINVAL.
MILLRACE_API Result<void> unblockSignals(const std::vector<int>& signals);

/// While it lives no SIGPIPE comes to the calling thread: for calls that cannot refuse it, such as
/// sendFile. One that was raised meanwhile is taken back; what was blocked before stays so.
class MILLRACE_API SigpipeGuard {
 public:
  SigpipeGuard() noexcept;
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;
  ~SigpipeGuard();

 private:
  bool blockedHere_;
};

/// The number of the next pending signal, nothing if there is none.
MILLRACE_API Result<std::optional<int>> readSignal(int fd);

}  // namespace millrace
