// SPDX-License-Identifier: Apache-2.0
// What a loop must know about its process: whether it forked, and whether it exits.
#include "loop/event_loop_parts.h"

#include <atomic>
#include <cstdlib>
#include <pthread.h>

namespace millrace {

namespace {

std::atomic<bool> exiting{false};

}  // namespace

constinit std::atomic<std::uint64_t> forkGenerations{0};

void watchForForks() noexcept {
  static const int registered = ::pthread_atfork(
      nullptr, nullptr, [] { forkGenerations.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
}

bool isExiting() noexcept { return exiting.load(std::memory_order_relaxed); }

void watchForExit() noexcept {
  // Registered when the first thread starts, so after static groups were constructed: exit() then
  // calls this before their destructors.
  static const int registered = std::atexit([] { exiting.store(true, std::memory_order_relaxed); });
  static_cast<void>(registered);
}

}  // namespace millrace
