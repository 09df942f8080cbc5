// SPDX-License-Identifier: Apache-2.0
#include <millrace/sys/calls.h>
#include <millrace/sys/signal.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <string>
#include <sys/signalfd.h>

namespace millrace {

namespace {

Result<sigset_t> setOf(const std::vector<int>& signals, const char* operation) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) {
    if (::sigaddset(&set, signal) != 0) {
      return Error::fromErrno(EINVAL, operation, "signal " + std::to_string(signal));
    }
  }
  return set;
}

Result<void> mask(int how, const std::vector<int>& signals, const char* operation) {
  const Result<sigset_t> set = setOf(signals, operation);
  if (!set.ok()) return set.error();
  const int failure = calls().pthread_sigmask(how, &*set, nullptr);
  if (failure != 0) return Error::fromErrno(failure, operation);
  return {};
}

}  // namespace

Result<Fd> signalFd(const std::vector<int>& signals) {
  const Result<sigset_t> set = setOf(signals, "signalfd");
  if (!set.ok()) return set.error();
  Fd made(calls().signalfd(-1, &*set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!made.valid()) return Error::fromErrno(errno, "signalfd");
  return made;
}

Result<void> blockSignals(const std::vector<int>& signals) {
  return mask(SIG_BLOCK, signals, "pthread_sigmask(block)");
}

Result<void> blockAllSignals() {
  sigset_t set;
  ::sigfillset(&set);
  for (const int keep : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
    ::sigdelset(&set, keep);
  }
  const int result = calls().pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (result != 0) return Error::fromErrno(result, "pthread_sigmask(block)", "all");
  return {};
}

Result<void> unblockSignals(const std::vector<int>& signals) {
  return mask(SIG_UNBLOCK, signals, "pthread_sigmask(unblock)");
}

namespace {

sigset_t sigpipe() noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  return set;
}

}  // namespace

SigpipeGuard::SigpipeGuard() noexcept {
  const sigset_t set = sigpipe();
  sigset_t before;
  ::sigemptyset(&before);
  blockedHere_ = calls().pthread_sigmask(SIG_BLOCK, &set, &before) == 0 &&
                 ::sigismember(&before, SIGPIPE) == 0;
}

SigpipeGuard::~SigpipeGuard() {
  if (!blockedHere_) return;
  const sigset_t set = sigpipe();
  const timespec now{};
  while (calls().sigtimedwait(&set, nullptr, &now) < 0 && errno == EINTR) {
  }
  calls().pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Result<std::optional<int>> readSignal(int fd) {
  for (;;) {
    signalfd_siginfo info{};
    if (calls().read(fd, &info, sizeof info) > 0) {
      return std::optional<int>(static_cast<int>(info.ssi_signo));
    }
    if (errno == EAGAIN) return std::optional<int>();
    if (errno != EINTR) {
      return Error::fromErrno(errno, "read(signalfd)", "fd " + std::to_string(fd));
    }
  }
}

}  // namespace millrace
