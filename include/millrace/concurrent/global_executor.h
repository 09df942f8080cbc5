// SPDX-License-Identifier: Apache-2.0
// The global executor: where work goes that has no loop, or whose loop is gone.
#pragma once

#include <millrace/base/export.h>
#include <millrace/concurrent/executor.h>

namespace millrace {

/// Runs tasks one after the other on one thread, "mr-global", which exists only while there is
/// work: it ends as soon as the queue is empty and is made anew when needed. If the thread cannot
/// be made, the task runs on the caller's thread instead: nothing given here is ever lost. Lives
/// for ever.
MILLRACE_API Executor& globalExecutor() noexcept;

/// Waits until the global executor has neither work nor thread. For tests and clean exits. Throws
/// BlockingOperation in a task of the global executor.
MILLRACE_API void awaitGlobalExecutor();

}  // namespace millrace
