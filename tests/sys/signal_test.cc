// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/signal.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <pthread.h>

namespace millrace {
namespace {

using test::FaultScript;

bool isBlocked(int signal) {
  sigset_t now;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return ::sigismember(&now, signal) == 1;
}

TEST(Signals, AreBlockedAndUnblocked) {
  ASSERT_FALSE(isBlocked(SIGUSR1));

  ASSERT_TRUE(blockSignals({SIGUSR1, SIGUSR2}).ok());
  EXPECT_TRUE(isBlocked(SIGUSR1));
  EXPECT_TRUE(isBlocked(SIGUSR2));
  ASSERT_TRUE(unblockSignals({SIGUSR1}).ok());
  EXPECT_FALSE(isBlocked(SIGUSR1));
  EXPECT_TRUE(isBlocked(SIGUSR2));

  ASSERT_TRUE(unblockSignals({SIGUSR2}).ok());
}

TEST(SignalFd, IsNonblockingAndClosedOnExec) {
  const Fd fd = signalFd({SIGUSR1}).orThrow();

  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

TEST(SignalFd, GivesPendingSignalsOneByOne) {
  ASSERT_TRUE(blockSignals({SIGUSR1, SIGUSR2}).ok());
  const Fd fd = signalFd({SIGUSR1, SIGUSR2}).orThrow();
  EXPECT_EQ(readSignal(fd.get()).value(), std::nullopt);

  ::pthread_kill(::pthread_self(), SIGUSR2);
  ::pthread_kill(::pthread_self(), SIGUSR1);

  EXPECT_EQ(readSignal(fd.get()).value(), SIGUSR1);
  EXPECT_EQ(readSignal(fd.get()).value(), SIGUSR2);
  EXPECT_EQ(readSignal(fd.get()).value(), std::nullopt);
  ASSERT_TRUE(unblockSignals({SIGUSR1, SIGUSR2}).ok());
}

TEST(SignalFd, ReadThatASignalBreaksIsMadeAgain) {
  const Fd fd = signalFd({SIGUSR1}).orThrow();
  FaultScript script;
  script.interruptFirstTries();

  EXPECT_EQ(readSignal(fd.get()).value(), std::nullopt);
  EXPECT_EQ(script.count("read"), 2u);
}

TEST(SignalFd, RefusesNumbersThatAreNoSignals) {
  EXPECT_EQ(signalFd({9999}).error().message(), "signalfd signal 9999: Invalid argument");
  EXPECT_EQ(blockSignals({0}).error().message(),
            "pthread_sigmask(block) signal 0: Invalid argument");
  EXPECT_EQ(unblockSignals({-1}).error().message(),
            "pthread_sigmask(unblock) signal -1: Invalid argument");
}

TEST(SignalFd, FailuresAreReported) {
  FaultScript script;
  script.failAll("signalfd", EMFILE).failAll("pthread_sigmask", EINVAL);

  EXPECT_EQ(signalFd({SIGUSR1}).error().errnoValue(), EMFILE);
  EXPECT_EQ(blockSignals({SIGUSR1}).error().errnoValue(), EINVAL);
  EXPECT_EQ(readSignal(-1).error().message(), "read(signalfd) fd -1: Bad file descriptor");
}

}  // namespace
}  // namespace millrace
