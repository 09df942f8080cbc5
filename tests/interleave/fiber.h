// SPDX-License-Identifier: Apache-2.0
// Cooperative stacks for the virtual threads of the explorer.
//
// Threads: every fiber belongs to the one system thread that made it. Ownership: the engine owns
// its fibers. Known to AddressSanitizer and ThreadSanitizer through their fiber calls.
#pragma once

#include <cstddef>

namespace millrace::explorer::detail {

/// A stack of its own on which jobs run one after the other, or (root) the stack of the caller.
class Fiber {
 public:
  using Job = void (*)(void* argument);

  /// Adopts the stack of the calling thread.
  Fiber();
  /// Makes a stack. Nothing runs before the first switchTo().
  explicit Fiber(size_t stackBytes);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// Forgets a job that was left in the middle; nothing on its stack is destroyed. False if the
  /// stack cannot be used again.
  bool reset();

  /// What runs when the job before has returned. The last thing a job does is to switch away; the
  /// switch back to it then returns from that job and begins the next one.
  void setJob(Job job, void* argument);

  /// Leaves `from`, which must be running, and goes on where `to` stopped.
  static void switchTo(Fiber& from, Fiber& to);

 private:
  [[noreturn]] static void entry(Fiber* self);
  [[noreturn]] void loop();
  void prepareFirstSwitch();
  friend struct FiberEntry;

  void* stack_ = nullptr;  // lowest address of the mapping, null for the root
  size_t stackBytes_ = 0;
  void* saved_ = nullptr;  // stack pointer, or the context of the portable switch
  Job job_ = nullptr;
  void* argument_ = nullptr;
  void* caughtExceptions_ =
      nullptr;  // the C++ runtime's per-thread exception state, swapped with the stack
  unsigned uncaughtExceptions_ = 0;
  [[maybe_unused]] void* fakeStack_ = nullptr;  // AddressSanitizer
  [[maybe_unused]] void* rootBottom_ = nullptr;
  [[maybe_unused]] size_t rootBytes_ = 0;
  [[maybe_unused]] void* tsanFiber_ = nullptr;  // ThreadSanitizer
};

}  // namespace millrace::explorer::detail
