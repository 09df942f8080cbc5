// SPDX-License-Identifier: Apache-2.0
// CallHooks: functions of a test in the place of a few system calls, for what a FaultScript cannot
// do: to look at arguments, to change results, to act at the moment of a call.
#pragma once

#include <functional>

struct epoll_event;
struct timespec;

namespace millrace::test {

/// In use from construction to destruction, for all threads; one at a time, and no FaultScript
/// beside it. Set the functions before the threads that call them start; an empty one asks the
/// kernel. A function that wants the kernel's answer asks realCalls() itself.
class CallHooks {
 public:
  CallHooks();
  CallHooks(const CallHooks&) = delete;
  CallHooks& operator=(const CallHooks&) = delete;
  ~CallHooks();

  std::function<int(int ep, epoll_event* out, int capacity, const timespec* timeout)> epollPwait2;
  std::function<int(int flags)> epollCreate;
};

}  // namespace millrace::test
