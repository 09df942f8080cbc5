// SPDX-License-Identifier: Apache-2.0
#include "loop/stack_capture.h"

#include <millrace/base/atomic.h>
#include <millrace/base/log.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/futex.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <execinfo.h>
#include <linux/futex.h>
#include <mutex>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace millrace {

namespace {

constexpr int kMostFrames = 64;

enum Phase : std::uint32_t { idle, requested, capturing, done };

/// What the asking thread and the handler share. Static: a signal may arrive late.
struct CaptureSlot {
  Atomic<std::uint32_t> phase{idle};
  Atomic<std::int64_t> thread{0};
  Atomic<std::uint64_t> sent{0};
  Atomic<std::uint64_t> arrived{0};
  ThreadCounters
      counters{};  // written before a request; the handler runs on the thread they are of
  // Written by the handler while capturing, read once it is done.
  std::array<std::uint64_t, 2> counts{};
  std::array<void*, kMostFrames> frames{};
  int count = 0;
  void* interruptedAt = nullptr;
};
constinit CaptureSlot captureSlot;

constinit std::mutex captureMutex;  // one capture at a time
constinit std::mutex installMutex;
constinit int captureUsers = 0;     // guarded by installMutex
constinit int installedSignal = 0;  // guarded by installMutex; 0: none
struct sigaction replaced;          // guarded by installMutex

void* interruptedAddress(void* context) noexcept {
  [[maybe_unused]] const auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(machine.pc);
#else
  return nullptr;
#endif
}

// Only what is safe in a signal handler: backtrace() is once libgcc is loaded. System calls do not
// go through the replaceable table, whose functions may be anything.
void handle(int, siginfo_t* info, void* context) {
  const int savedErrno = errno;
  const std::int64_t me = ::syscall(SYS_gettid);
  std::uint32_t expected = requested;
  if (captureSlot.thread.load(std::memory_order_relaxed) == me &&
      captureSlot.phase.compare_exchange_strong(expected, capturing, std::memory_order_acquire)) {
    for (std::size_t i = 0; i < captureSlot.counters.size(); ++i) {
      const Atomic<std::uint64_t>* counter = captureSlot.counters[i];
      captureSlot.counts[i] = counter == nullptr ? 0 : counter->load(std::memory_order_relaxed);
    }
    captureSlot.count = ::backtrace(captureSlot.frames.data(), kMostFrames);
    captureSlot.interruptedAt = interruptedAddress(context);
    captureSlot.phase.store(done, std::memory_order_release);
    realCalls().futex(reinterpret_cast<const std::uint32_t*>(&captureSlot.phase),
                      FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, 0);
  }
  if (info->si_code == SI_QUEUE && info->si_value.sival_ptr == &captureSlot) {
    captureSlot.arrived.fetch_add(1, std::memory_order_release);
  }
  errno = savedErrno;
}

bool isOurs(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &handle;
}

// The signal that it found free and took, or 0.
int install() {
  struct sigaction mine {};
  mine.sa_sigaction = &handle;
  mine.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  ::sigfillset(&mine.sa_mask);
  for (int signal = SIGRTMAX - 1; signal > SIGRTMIN; --signal) {
    struct sigaction now {};
    if (calls().sigaction(signal, nullptr, &now) != 0) continue;
    if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) continue;
    if (calls().sigaction(signal, &mine, &replaced) == 0) return signal;
  }
  log(LogLevel::warn, "loop",
      "no real-time signal is free: the watchdog will not name the functions that block");
  return 0;
}

// As tgkill(2), with a value by which the handler knows our signals from others'.
bool send(int thread, int signal) {
  siginfo_t info{};
  info.si_signo = signal;
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = &captureSlot;
  return calls().rt_tgsigqueueinfo(::getpid(), thread, signal, &info) == 0;
}

// The frames from the interrupted function on. All but that one are return addresses; the call is
// before them.
CapturedStack captured() {
  int first = 0;
  for (int i = 0; i < captureSlot.count; ++i) {
    if (captureSlot.frames[static_cast<std::size_t>(i)] == captureSlot.interruptedAt) first = i;
  }
  CapturedStack stack{{}, captureSlot.counts};
  for (int i = first; i < captureSlot.count; ++i) {
    const auto address =
        reinterpret_cast<std::uintptr_t>(captureSlot.frames[static_cast<std::size_t>(i)]);
    stack.frames.push_back(i == first ? address : address - 1);
  }
  return stack;
}

}  // namespace

StackCapture::StackCapture() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads libgcc, which the handler could not
  std::lock_guard lock(installMutex);
  if (captureUsers++ == 0 && installedSignal == 0) installedSignal = install();
  signal_ = installedSignal;
}

StackCapture::~StackCapture() {
  std::lock_guard lock(installMutex);
  if (--captureUsers != 0 || installedSignal == 0) return;
  // A signal still on its way would end the process, and whoever replaced our handler wants theirs.
  if (captureSlot.arrived.load(std::memory_order_acquire) !=
      captureSlot.sent.load(std::memory_order_relaxed)) {
    return;
  }
  struct sigaction now {};
  if (calls().sigaction(installedSignal, nullptr, &now) != 0) return;
  if (isOurs(now)) calls().sigaction(installedSignal, &replaced, nullptr);
  installedSignal = 0;
}

CapturedStack StackCapture::of(std::int64_t thread, Deadline until,
                               const ThreadCounters& counters) {
  std::lock_guard lock(captureMutex);
  if (signal_ == 0 || captureSlot.phase.load(std::memory_order_acquire) == capturing) return {};
  captureSlot.thread.store(thread, std::memory_order_relaxed);
  captureSlot.counters = counters;
  captureSlot.phase.store(requested, std::memory_order_release);
  captureSlot.sent.fetch_add(1, std::memory_order_relaxed);
  std::uint32_t expected = requested;
  if (!send(static_cast<int>(thread), signal_)) {
    captureSlot.sent.fetch_sub(1, std::memory_order_relaxed);
    captureSlot.phase.compare_exchange_strong(expected, idle, std::memory_order_relaxed);
    return {};
  }
  for (;;) {
    const std::uint32_t seen = captureSlot.phase.load(std::memory_order_acquire);
    if (seen == done) return captured();
    if (until.isDue(Clock::real().nanos())) {
      expected = requested;
      // A handler that is at work now will find its result unwanted.
      if (seen == capturing ||
          captureSlot.phase.compare_exchange_strong(expected, idle, std::memory_order_relaxed)) {
        return {};
      }
      continue;
    }
    futexWait(captureSlot.phase, seen, until);
  }
}

}  // namespace millrace
