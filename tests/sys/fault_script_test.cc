// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/calls.h>
#include <millrace/sys/epoll.h>
#include <millrace/sys/eventfd.h>
#include <millrace/sys/futex.h>
#include <millrace/sys/socket.h>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>

namespace millrace::test {
namespace {

TEST(FaultScript, CountsCallsByName) {
  FaultScript script;

  { const Fd fd = eventFd().orThrow(); }
  eventWrite(-1, 1);

  EXPECT_EQ(script.count("eventfd"), 1u);
  EXPECT_EQ(script.count("close"), 1u);
  EXPECT_EQ(script.count("write"), 1u);
  EXPECT_EQ(script.count("read"), 0u);
  EXPECT_EQ(script.total(), 3u);
  EXPECT_EQ(script.fallible(), 2u);
  EXPECT_EQ(script.faults(), 0u);
  EXPECT_EQ(script.lastFault(), "");
}

TEST(FaultScript, EndsWithItsScope) {
  { FaultScript script; }

  EXPECT_EQ(&calls(), &realCalls());
}

TEST(FaultScript, FailsTheCallsItIsToldTo) {
  FaultScript script;
  script.fail("eventfd", 2, ENFILE, 2);

  EXPECT_TRUE(eventFd().ok());
  EXPECT_EQ(eventFd().error().errnoValue(), ENFILE);
  EXPECT_EQ(eventFd().error().errnoValue(), ENFILE);
  EXPECT_TRUE(eventFd().ok());
  EXPECT_EQ(script.faults(), 2u);
  EXPECT_EQ(script.lastFault(), "eventfd");
}

TEST(FaultScript, FailsTheKthFallibleCallOfAll) {
  FaultScript script;
  script.failOverall(2);

  const Fd ep = epollCreate().orThrow();
  EXPECT_EQ(eventFd().error().errnoValue(), EMFILE);
  EXPECT_TRUE(eventFd().ok());
}

TEST(FaultScript, DoesNotFailWhatCannotFailUnlessNamed) {
  FaultScript script;
  const Atomic<std::uint32_t> word{0};

  futexWake(word, 1);
  { const Fd fd(::dup(0)); }

  EXPECT_EQ(script.total(), 2u);
  EXPECT_EQ(script.fallible(), 0u);
}

TEST(FaultScript, RefusesNamesItDoesNotKnow) {
  FaultScript script;

  EXPECT_THROW(static_cast<void>(script.count("reboot")), std::invalid_argument);
  EXPECT_THROW(script.fail("reboot", 1, EPERM), std::invalid_argument);
}

TEST(FaultScript, MovesFewBytesAtATimeOnStreams) {
  const auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  FaultScript script;
  script.shortTransfers(2);
  char text[] = "abcdef";
  std::array<char, 8> room{};
  std::array<iovec, 2> parts{iovec{text, 0}, {text, 6}};
  iovec into{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;

  EXPECT_EQ(sendSocket(left.get(), text, 6), 2);
  EXPECT_EQ(sendParts(left.get(), parts.data(), 2), 2);
  EXPECT_EQ(writeParts(left.get(), parts.data(), 2), 2);
  EXPECT_EQ(writeParts(left.get(), parts.data(), 1), 0);
  EXPECT_EQ(recvSocket(right.get(), room.data(), room.size()), 2);
  EXPECT_EQ(recvMessage(right.get(), message), 2);
  EXPECT_EQ(readParts(right.get(), &into, 1), 2);
}

TEST(FaultScript, LeavesMessagesAndCountersWhole) {
  const auto [left, right] = openSocketPair(SocketType::datagram).orThrow();
  const Fd event = eventFd().orThrow();
  FaultScript script;
  script.shortTransfers(1);
  char text[] = "abc";
  iovec part{text, 3};

  EXPECT_EQ(sendSocket(left.get(), "abc", 3), 3);
  EXPECT_EQ(readParts(right.get(), &part, 1), 3);
  EXPECT_EQ(sendParts(left.get(), &part, 1), 3);
  EXPECT_EQ(eventWrite(event.get(), 5), 0);
  EXPECT_EQ(eventRead(event.get()).value(), 5u);
}

TEST(FaultScript, CountsForAllThreads) {
  FaultScript script;
  const auto work = [] {
    for (int i = 0; i < 500; ++i) eventWrite(-1, 1);
  };

  std::thread other(work);
  work();
  other.join();

  EXPECT_EQ(script.count("write"), 1000u);
}

TEST(ForEachFault, MeetsEveryPlaceThatCanFail) {
  std::string failed;

  const int faults = forEachFault([&failed](FaultScript& script) {
    const Result<Fd> ep = epollCreate();
    const Result<Fd> event = eventFd();
    if (ep.ok() && event.ok() && epollAdd(ep->get(), event->get(), kReadable, 1).ok()) {
      EXPECT_TRUE(epollRemove(ep->get(), event->get()).ok());
    }
    failed.append(script.lastFault()).append(" ");
  });

  EXPECT_EQ(faults, 3);
  EXPECT_EQ(failed, "epoll_create1 eventfd epoll_ctl  ");
}

TEST(ForEachFault, CanBeLimitedToSomeCalls) {
  const auto scenario = [](FaultScript&) {
    const Result<Fd> ep = epollCreate();
    const Result<Fd> event = eventFd();
  };

  EXPECT_EQ(forEachFault(scenario, {"eventfd"}), 1);
}

TEST(ForEachFault, SaysWhichRunWentWrong) {
  EXPECT_NONFATAL_FAILURE(forEachFault([](FaultScript&) { EXPECT_TRUE(eventFd().ok()); }),
                          "fallible call number 1 fails in this run");
}

TEST(FaultScriptDeathTest, ThereIsOneAtATime) {
  FaultScript first;

  EXPECT_DEATH(FaultScript second, "there is a FaultScript already");
}

}  // namespace
}  // namespace millrace::test
