// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__has_feature)
#define EXPLORER_HAS_FEATURE(x) __has_feature(x)
#else
#define EXPLORER_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || EXPLORER_HAS_FEATURE(address_sanitizer)
#define EXPLORER_ASAN 1
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__) || EXPLORER_HAS_FEATURE(thread_sanitizer)
#define EXPLORER_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__) && !defined(EXPLORER_PORTABLE_SWITCH)
#define EXPLORER_FAST_SWITCH 1
// Saves what a call must preserve, exchanges the stacks, restores the same.
extern "C" void millraceFiberSwitch(void** saveHere, void* goThere);
asm(R"(
.text
.p2align 4
.globl millraceFiberSwitch
.type millraceFiberSwitch, @function
millraceFiberSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size millraceFiberSwitch, .-millraceFiberSwitch
)");
// The first `ret` of a fiber comes here; rbx holds the fiber. Never returns.
extern "C" void millraceFiberBegin();
asm(R"(
.text
.p2align 4
.globl millraceFiberBegin
.type millraceFiberBegin, @function
millraceFiberBegin:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size millraceFiberBegin, .-millraceFiberBegin
)");
#endif

namespace millrace::explorer::detail {

namespace {

/// The layout that the Itanium C++ ABI gives to __cxa_eh_globals.
struct ExceptionState {
  void* caught;
  unsigned uncaught;
};

ExceptionState* exceptionState() {
  return reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
}

}  // namespace

Fiber::Fiber() {
#if defined(EXPLORER_ASAN)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &rootBottom_, &rootBytes_);
    pthread_attr_destroy(&attributes);
  }
#endif
#if defined(EXPLORER_TSAN)
  tsanFiber_ = __tsan_get_current_fiber();
#endif
#if !defined(EXPLORER_FAST_SWITCH)
  saved_ = new ucontext_t;
#endif
}

Fiber::Fiber(size_t stackBytes) : stackBytes_(stackBytes) {
  stack_ = mmap(nullptr, stackBytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED) {
    std::fputs("explorer: no memory for a fiber\n", stderr);
    std::abort();
  }
  mprotect(stack_, 4096, PROT_NONE);  // an overflow stops here
#if defined(EXPLORER_ASAN)
  // What an abandoned stack still points to is not a leak.
  __lsan_register_root_region(static_cast<char*>(stack_) + 4096, stackBytes - 4096);
#endif
#if defined(EXPLORER_TSAN)
  tsanFiber_ = __tsan_create_fiber(0);
#endif
  prepareFirstSwitch();
}

Fiber::~Fiber() {
#if !defined(EXPLORER_FAST_SWITCH)
  delete static_cast<ucontext_t*>(saved_);
#endif
  if (stack_ == nullptr) return;
#if defined(EXPLORER_ASAN)
  __lsan_unregister_root_region(static_cast<char*>(stack_) + 4096, stackBytes_ - 4096);
#endif
#if defined(EXPLORER_TSAN)
  __tsan_destroy_fiber(tsanFiber_);
#endif
  munmap(stack_, stackBytes_);
}

bool Fiber::reset() {
#if defined(EXPLORER_ASAN)
  return false;  // its shadow memory and what it points to stay as they are
#else
#if defined(EXPLORER_TSAN)
  __tsan_destroy_fiber(tsanFiber_);
  tsanFiber_ = __tsan_create_fiber(0);
#endif
#if !defined(EXPLORER_FAST_SWITCH)
  delete static_cast<ucontext_t*>(saved_);
#endif
  caughtExceptions_ = nullptr;
  uncaughtExceptions_ = 0;
  prepareFirstSwitch();
  return true;
#endif
}

void Fiber::setJob(Job job, void* argument) {
  job_ = job;
  argument_ = argument;
}

/// Gives the first switch a frame to return into.
struct FiberEntry {
  static void run(Fiber* self) { Fiber::entry(self); }
#if !defined(EXPLORER_FAST_SWITCH)
  static void runSplit(unsigned high, unsigned low) {
    run(reinterpret_cast<Fiber*>((static_cast<uintptr_t>(high) << 32) | low));
  }
#endif
};

void Fiber::prepareFirstSwitch() {
#if defined(EXPLORER_FAST_SWITCH)
  void** top = reinterpret_cast<void**>(static_cast<char*>(stack_) + stackBytes_);
  *--top = nullptr;  // end of the chain of frames
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&millraceFiberBegin);
  *--top = nullptr;                                    // rbp
  *--top = this;                                       // rbx
  *--top = reinterpret_cast<void*>(&FiberEntry::run);  // r12
  for (int i = 0; i < 3; ++i) *--top = nullptr;        // r13, r14, r15
  saved_ = top;
#else
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = static_cast<char*>(stack_) + 4096;
  context->uc_stack.ss_size = stackBytes_ - 4096;
  context->uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(context, reinterpret_cast<void (*)()>(&FiberEntry::runSplit), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  saved_ = context;
#endif
}

void Fiber::switchTo(Fiber& from, Fiber& to) {
  if (&from == &to) return;
  ExceptionState* state = exceptionState();
  from.caughtExceptions_ = state->caught;
  from.uncaughtExceptions_ = state->uncaught;
  state->caught = to.caughtExceptions_;
  state->uncaught = to.uncaughtExceptions_;
#if defined(EXPLORER_ASAN)
  if (to.stack_ != nullptr) {
    __sanitizer_start_switch_fiber(&from.fakeStack_, static_cast<char*>(to.stack_) + 4096,
                                   to.stackBytes_ - 4096);
  } else {
    __sanitizer_start_switch_fiber(&from.fakeStack_, to.rootBottom_, to.rootBytes_);
  }
#endif
#if defined(EXPLORER_TSAN)
  __tsan_switch_to_fiber(to.tsanFiber_, 0);
#endif
#if defined(EXPLORER_FAST_SWITCH)
  millraceFiberSwitch(&from.saved_, to.saved_);
#else
  swapcontext(static_cast<ucontext_t*>(from.saved_), static_cast<ucontext_t*>(to.saved_));
#endif
#if defined(EXPLORER_ASAN)
  __sanitizer_finish_switch_fiber(from.fakeStack_, nullptr, nullptr);
#endif
}

void Fiber::entry(Fiber* self) {
#if defined(EXPLORER_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  self->loop();
}

void Fiber::loop() {
  for (;;) job_(argument_);
}

}  // namespace millrace::explorer::detail
