// SPDX-License-Identifier: Apache-2.0
#include <millrace/concurrent/event_executor.h>
#include <millrace/concurrent/rejection.h>

#include <stdexcept>
#include <string>
#include <thread>

namespace millrace {

ShutdownReport& ShutdownReport::operator+=(const ShutdownReport& other) noexcept {
  timersCancelled += other.timersCancelled;
  watchesClosed += other.watchesClosed;
  channelsCut += other.channelsCut;
  bytesCut += other.bytesCut;
  tasksRunAfterTimeout += other.tasksRunAfterTimeout;
  timedOut = timedOut || other.timedOut;
  return *this;
}

void internal::runSubmitted(bool mayRun, void* work, void (*run)(void*),
                            void (*fail)(void*, Error&&)) {
  if (!mayRun) return;
  try {
    run(work);
  } catch (...) {
    fail(work, Error::fromCurrentException("submitted task"));
  }
}

bool EventExecutor::awaitTermination(Deadline until) const {
  if (inEventLoop()) {
    throw BlockingOperation(
        "awaitTermination() on the executor's own thread would wait for ever: the thread cannot "
        "end while it waits for its end; call it from another thread or use terminationFuture()");
  }
  return terminationFuture().await(until);
}

RejectionHandler rejectByThrowing() {
  return [](Task&&, EventExecutor& executor) {
    if (executor.isShutdown()) {
      throw RejectedExecution(
          "execute(): rejected, the executor is shut down and takes no more tasks; use "
          "tryExecute() "
          "where that may happen");
    }
    throw RejectedExecution(
        "execute(): rejected, the executor has as many pending tasks as its capacity allows; raise "
        "maxPendingTasks or use rejectAfterBackOff()");
  };
}

RejectionHandler rejectAfterBackOff(int retries, Duration pause) {
  if (retries < 0 || pause.count() < 0) {
    throw std::invalid_argument("rejectAfterBackOff(" + std::to_string(retries) + ", " +
                                std::to_string(pause.count()) + "ns): neither may be negative");
  }
  return [retries, pause, fail = rejectByThrowing()](Task&& task, EventExecutor& executor) {
    if (!executor.inEventLoop()) {
      for (int i = 0; i < retries && !executor.isShutdown(); ++i) {
        std::this_thread::sleep_for(pause);
        if (executor.offer(task)) return;
      }
    }
    fail(std::move(task), executor);
  };
}

}  // namespace millrace
