// SPDX-License-Identifier: Apache-2.0
#include "support/call_hooks.h"

#include <millrace/base/check.h>
#include <millrace/sys/calls.h>

#include <atomic>

namespace millrace::test {

namespace {

std::atomic<CallHooks*> current{nullptr};

int epollPwait2(int ep, epoll_event* out, int capacity, const timespec* timeout) {
  const CallHooks* hooks = current.load();
  return hooks != nullptr && hooks->epollPwait2
             ? hooks->epollPwait2(ep, out, capacity, timeout)
             : realCalls().epoll_pwait2(ep, out, capacity, timeout);
}

int epollCreate(int flags) {
  const CallHooks* hooks = current.load();
  return hooks != nullptr && hooks->epollCreate ? hooks->epollCreate(flags)
                                                : realCalls().epoll_create1(flags);
}

const Calls& hookedCalls() {
  static const Calls table = [] {
    Calls made = realCalls();
    made.epoll_pwait2 = &epollPwait2;
    made.epoll_create1 = &epollCreate;
    return made;
  }();
  return table;
}

}  // namespace

CallHooks::CallHooks() {
  MR_CHECK(current.exchange(this) == nullptr, "there are CallHooks already");
  replaceCalls(&hookedCalls());
}

CallHooks::~CallHooks() {
  replaceCalls(nullptr);
  current.store(nullptr);
}

}  // namespace millrace::test
