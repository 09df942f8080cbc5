// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/datagram.h>
#include <millrace/sys/poll.h>
#include <millrace/sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <net/if.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using test::FaultScript;
using testing::HasSubstr;

const SocketAddress kLoopback = SocketAddress::loopback4(0);
const SocketAddress kGroup = SocketAddress::inet4({239, 255, 77, 1}, 0);
const SocketAddress kGroup6 =
    SocketAddress::inet6({0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77, 1}, 0);

unsigned loIndex() { return ::if_nametoindex("lo"); }

Fd boundTo(const SocketAddress& address) {
  Fd made = openSocket(address, SocketType::datagram).orThrow();
  bindSocket(made.get(), address).orThrow();
  return made;
}

std::string receive(const Fd& from) {
  PollEntry entry{from.get(), kReadable, 0};
  pollWait(&entry, 1, 10'000'000'000);
  std::array<char, 64> bytes{};
  const auto got = recvSocket(from.get(), bytes.data(), bytes.size());
  return got < 0 ? "error " + std::to_string(-got)
                 : std::string(bytes.data(), static_cast<std::size_t>(got));
}

// Loopback delivers within the send, so what is not there at once never comes.
std::ptrdiff_t receiveNow(const Fd& from) {
  char byte = 0;
  return recvSocket(from.get(), &byte, 1);
}

// A receiver, and a sender to a group on the loopback interface.
class Multicast : public testing::Test {
 protected:
  Multicast() {
    const ip_mreqn via{{}, {}, static_cast<int>(loIndex())};
    setOptionBytes(sender_.get(), IPPROTO_IP, IP_MULTICAST_IF, &via, sizeof via).orThrow();
    // Only groups that this socket has joined, not those of others on this machine.
    setOption(receiver_.get(), IPPROTO_IP, IP_MULTICAST_ALL, 0).orThrow();
    to_ = kGroup.withPort(sockName(receiver_.get())->port());
  }

  void send(std::string text) {
    iovec part{text.data(), text.size()};
    msghdr message{};
    message.msg_name = const_cast<sockaddr*>(to_.raw());
    message.msg_namelen = to_.rawSize();
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    ASSERT_EQ(sendMessage(sender_.get(), message), static_cast<std::ptrdiff_t>(text.size()));
  }

  Fd receiver_ = boundTo(SocketAddress::any4(0));
  Fd sender_ = boundTo(kLoopback);
  SocketAddress to_;
  GroupSource source_{kGroup, kLoopback, loIndex()};
};

TEST(Interface, IsFoundByItsAddress) {
  EXPECT_EQ(interfaceOf(SocketAddress::loopback4(0)).value(), loIndex());
  EXPECT_EQ(interfaceOf(SocketAddress::loopback4(80)).value(), loIndex());
}

TEST(Interface, OfAnAddressThatNoneHasIsNotFound) {
  EXPECT_EQ(interfaceOf(SocketAddress::inet4({192, 0, 2, 1}, 0)).error().message(),
            "interfaceOf 192.0.2.1:0: No such device");
  EXPECT_EQ(interfaceOf(SocketAddress::inet6({0x20, 1, 0x0d, 0xb8}, 0)).error().errnoValue(),
            ENODEV);
  EXPECT_EQ(interfaceOf(SocketAddress()).error().errnoValue(), ENODEV);
  EXPECT_EQ(interfaceOf(SocketAddress::unixPath("/a").value()).error().errnoValue(), ENODEV);
}

TEST_F(Multicast, IsHeardByMembersOnly) {
  send("before");
  EXPECT_EQ(receiveNow(receiver_), -EAGAIN);

  ASSERT_TRUE(joinGroup(receiver_.get(), kGroup, loIndex()).ok());
  send("member");
  EXPECT_EQ(receive(receiver_), "member");

  ASSERT_TRUE(leaveGroup(receiver_.get(), kGroup, loIndex()).ok());
  send("after");
  EXPECT_EQ(receiveNow(receiver_), -EAGAIN);
}

TEST_F(Multicast, InterfaceMayBeNamedByItsAddress) {
  ASSERT_TRUE(joinGroup(receiver_.get(), kGroup, interfaceOf(kLoopback).value()).ok());
  send("member");

  EXPECT_EQ(receive(receiver_), "member");
}

TEST_F(Multicast, OfOneSourceIsHeardFromItOnly) {
  const GroupSource other{kGroup, SocketAddress::inet4({127, 9, 9, 9}, 0), loIndex()};
  ASSERT_TRUE(joinSource(receiver_.get(), other).ok());
  send("other source");
  EXPECT_EQ(receiveNow(receiver_), -EAGAIN);

  ASSERT_TRUE(joinSource(receiver_.get(), source_).ok());
  send("its source");
  EXPECT_EQ(receive(receiver_), "its source");

  ASSERT_TRUE(leaveSource(receiver_.get(), source_).ok());
  send("left");
  EXPECT_EQ(receiveNow(receiver_), -EAGAIN);
  EXPECT_TRUE(leaveGroup(receiver_.get(), kGroup, loIndex()).ok());
}

TEST_F(Multicast, IsNarrowedToASourceLater) {
  const GroupSource other{kGroup, SocketAddress::inet4({127, 9, 9, 9}, 0), loIndex()};
  ASSERT_TRUE(joinGroup(receiver_.get(), kGroup, loIndex()).ok());

  ASSERT_TRUE(joinSource(receiver_.get(), other).ok());
  send("of none of them");

  EXPECT_EQ(receiveNow(receiver_), -EAGAIN);
}

TEST_F(Multicast, OfABlockedSourceIsNotHeard) {
  ASSERT_TRUE(joinGroup(receiver_.get(), kGroup, loIndex()).ok());

  ASSERT_TRUE(blockSource(receiver_.get(), source_).ok());
  send("blocked");
  EXPECT_EQ(receiveNow(receiver_), -EAGAIN);

  ASSERT_TRUE(unblockSource(receiver_.get(), source_).ok());
  send("heard again");
  EXPECT_EQ(receive(receiver_), "heard again");
}

TEST_F(Multicast, RefusalsNameTheGroup) {
  const int fd = receiver_.get();
  const std::string lo = std::to_string(loIndex());

  EXPECT_EQ(leaveGroup(fd, kGroup, loIndex()).error().message(),
            "leaveGroup 239.255.77.1, interface " + lo + ": Cannot assign requested address");
  EXPECT_EQ(leaveSource(fd, source_).error().message(),
            "leaveSource 239.255.77.1 from 127.0.0.1, interface " + lo + ": Invalid argument");
  EXPECT_EQ(joinGroup(fd, kLoopback, loIndex()).error().errnoValue(), EINVAL);
  EXPECT_FALSE(joinGroup(fd, SocketAddress::unixPath("/a").value(), loIndex()).ok());
  EXPECT_FALSE(joinGroup(fd, SocketAddress(), loIndex()).ok());
  EXPECT_EQ(joinGroup(fd, kGroup, 999'999).error().errnoValue(), ENODEV);
  ASSERT_TRUE(joinGroup(fd, kGroup, loIndex()).ok());
  EXPECT_EQ(joinGroup(fd, kGroup, loIndex()).error().errnoValue(), EADDRINUSE);
  EXPECT_EQ(unblockSource(fd, source_).error().errnoValue(), EADDRNOTAVAIL);
  ASSERT_TRUE(blockSource(fd, source_).ok());
  EXPECT_EQ(joinSource(fd, source_).error().errnoValue(), EINVAL);
}

TEST_F(Multicast, EveryFailureIsReported) {
  const auto scenario = [this](FaultScript& script) {
    const Fd socket = boundTo(SocketAddress::any4(0));
    const int fd = socket.get();
    const std::vector<Result<void>> results{
        joinGroup(fd, kGroup, loIndex()), leaveGroup(fd, kGroup, loIndex()),
        joinSource(fd, source_),          leaveSource(fd, source_),
        joinGroup(fd, kGroup, loIndex()), blockSource(fd, source_),
        unblockSource(fd, source_),       enableGro(fd),
    };
    const auto failed = [](const Result<void>& one) { return !one.ok(); };
    const auto first = std::find_if(results.begin(), results.end(), failed);

    // What it leaves undone may fail those that rest on it, so only the first is the script's.
    EXPECT_EQ(first != results.end(), script.faults() == 1);
    if (first != results.end()) {
      EXPECT_EQ(first->error().errnoValue(), ENOBUFS);
    }
  };

  EXPECT_EQ(test::forEachFault(scenario, {"setsockopt"}), 8);
}

TEST(Multicast6, GroupsAreJoinedAndLeft) {
  const SocketAddress any = SocketAddress::any6(0);
  const auto made = openSocket(any, SocketType::datagram);
  // A machine without IPv6 says so, and there is nothing more to see.
  if (!made.ok() || !interfaceOf(SocketAddress::loopback6(0)).ok()) return;
  const int fd = made->get();
  const unsigned lo = interfaceOf(SocketAddress::loopback6(0)).value();
  const GroupSource source{kGroup6, SocketAddress::loopback6(0), lo};

  EXPECT_EQ(lo, loIndex());
  EXPECT_TRUE(joinGroup(fd, kGroup6, lo).ok());
  EXPECT_EQ(joinGroup(fd, kGroup6, lo).error().errnoValue(), EADDRINUSE);
  EXPECT_TRUE(blockSource(fd, source).ok());
  EXPECT_TRUE(unblockSource(fd, source).ok());
  EXPECT_TRUE(leaveGroup(fd, kGroup6, lo).ok());
  EXPECT_THAT(leaveGroup(fd, kGroup6, lo).error().message(), HasSubstr("leaveGroup ff02::7701"));
  EXPECT_TRUE(joinSource(fd, source).ok());
  EXPECT_TRUE(leaveSource(fd, source).ok());
  EXPECT_EQ(joinGroup(fd, SocketAddress::loopback6(0), lo).error().errnoValue(), EINVAL);
}

// One message of `text` from a socket to another that is connected to it.
class Segments : public testing::Test {
 protected:
  Segments() { connectSocket(from_.get(), sockName(to_.get()).value()).orThrow(); }

  std::ptrdiff_t send(std::string text, std::uint16_t size) {
    iovec part{text.data(), text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    SegmentControl control;
    setSegmentSize(message, control, size);
    return sendMessage(from_.get(), message);
  }

  // The text and, if they are several datagrams, how long they are.
  std::pair<std::string, std::size_t> receiveWhole() {
    std::array<char, 64> bytes{};
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    SegmentControl control;
    expectSegmentSize(message, control);
    const auto got = recvMessage(to_.get(), message);
    if (got < 0) return {"error " + std::to_string(-got), 0};
    return {std::string(bytes.data(), static_cast<std::size_t>(got)), segmentSize(message)};
  }

  Fd from_ = boundTo(kLoopback);
  Fd to_ = boundTo(kLoopback);
};

TEST_F(Segments, ArriveAsDatagrams) {
  ASSERT_EQ(send("aaaabbbbcc", 4), 10);

  EXPECT_EQ(receive(to_), "aaaa");
  EXPECT_EQ(receive(to_), "bbbb");
  EXPECT_EQ(receive(to_), "cc");
  EXPECT_EQ(receiveNow(to_), -EAGAIN);
}

TEST_F(Segments, ArriveAsOneWhereThatIsAskedFor) {
  enableGro(to_.get()).orThrow();

  ASSERT_EQ(send("aaaabbbbcc", 4), 10);

  EXPECT_EQ(receiveWhole(), std::pair(std::string("aaaabbbbcc"), std::size_t{4}));
}

TEST_F(Segments, OfOneDatagramHaveNoSize) {
  enableGro(to_.get()).orThrow();

  ASSERT_EQ(sendSocket(from_.get(), "one", 3), 3);

  EXPECT_EQ(receiveWhole(), std::pair(std::string("one"), std::size_t{0}));
}

TEST_F(Segments, ApplyToOneSendOnly) {
  ASSERT_EQ(send("aabb", 2), 4);
  ASSERT_EQ(sendSocket(from_.get(), "whole", 5), 5);

  EXPECT_EQ(receive(to_), "aa");
  EXPECT_EQ(receive(to_), "bb");
  EXPECT_EQ(receive(to_), "whole");
}

TEST_F(Segments, ThatAreTooManyAreRefused) { EXPECT_EQ(send(std::string(1000, 'x'), 1), -EINVAL); }

TEST_F(Segments, FailWithTheErrnoOfTheKernel) {
  FaultScript script;
  script.fail("sendmsg", 1, EIO).fail("setsockopt", 1, ENOPROTOOPT);

  EXPECT_EQ(send("aabb", 2), -EIO);
  EXPECT_EQ(enableGro(to_.get()).error().errnoValue(), ENOPROTOOPT);
}

TEST(SegmentsDeathTest, HaveBytes) {
  msghdr message{};
  SegmentControl control;

  EXPECT_DEATH(setSegmentSize(message, control, 0), "segments without bytes");
}

TEST(SegmentSize, OfAMessageWithoutControlDataIsNone) {
  const msghdr message{};

  EXPECT_EQ(segmentSize(message), 0u);
}

}  // namespace
}  // namespace millrace
