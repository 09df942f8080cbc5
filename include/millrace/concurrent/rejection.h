// SPDX-License-Identifier: Apache-2.0
// What happens to a task that an executor cannot take.
#pragma once

#include <millrace/base/clock.h>
#include <millrace/base/export.h>
#include <millrace/base/task.h>

#include <functional>

namespace millrace {

class EventExecutor;

/// Gets a task that its executor cannot take; runs on the thread that called execute(). Whatever it
/// does not move away is destroyed. Must be callable from several threads at once.
using RejectionHandler = std::function<void(Task&& task, EventExecutor& executor)>;

/// The default: throws RejectedExecution.
MILLRACE_API RejectionHandler rejectByThrowing();
/// Tries again up to `retries` times, `pause` apart, then throws RejectedExecution. On the
/// executor's own thread it throws at once: waiting there would stop the very work that makes room.
MILLRACE_API RejectionHandler rejectAfterBackOff(int retries, Duration pause);

}  // namespace millrace
