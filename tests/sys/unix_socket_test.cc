// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/socket.h>
#include <millrace/sys/unix_socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using test::FaultScript;

std::size_t openFds() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::vector<Fd> makeFiles(std::size_t count) {
  std::vector<Fd> made;
  for (std::size_t i = 0; i < count; ++i) made.emplace_back(::memfd_create("mr", MFD_CLOEXEC));
  return made;
}

std::vector<int> numbersOf(const std::vector<Fd>& fds) {
  std::vector<int> numbers;
  for (const Fd& fd : fds) numbers.push_back(fd.get());
  return numbers;
}

bool isSameFile(const Fd& a, const Fd& b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a.get(), &first) == 0 && ::fstat(b.get(), &second) == 0 &&
         first.st_ino == second.st_ino && first.st_dev == second.st_dev;
}

std::ptrdiff_t send(const Fd& to, std::string text, const std::vector<int>& fds) {
  const iovec part{text.data(), text.size()};
  return sendWithFds(to.get(), &part, 1, fds);
}

// What arrived, and the descriptors in it.
struct Arrived : FdsReceived {
  std::string text;
  std::vector<Fd> room;
};

Arrived receive(const Fd& from, std::size_t room) {
  Arrived arrived;
  arrived.room.resize(room);
  std::array<char, 64> bytes{};
  const iovec part{bytes.data(), bytes.size()};
  static_cast<FdsReceived&>(arrived) = recvWithFds(from.get(), &part, 1, arrived.room);
  if (arrived.bytes > 0) arrived.text.assign(bytes.data(), static_cast<std::size_t>(arrived.bytes));
  return arrived;
}

class UnixSocket : public testing::TestWithParam<SocketType> {
 protected:
  std::pair<Fd, Fd> pair_ = openSocketPair(GetParam()).orThrow();
  Fd& left_ = pair_.first;
  Fd& right_ = pair_.second;
};

INSTANTIATE_TEST_SUITE_P(Types, UnixSocket,
                         testing::Values(SocketType::stream, SocketType::datagram),
                         [](const auto& one) {
                           return one.param == SocketType::stream ? "stream" : "datagram";
                         });

// F79
TEST_P(UnixSocket, CarriesAnyNumberOfDescriptors) {
  for (const std::size_t count : {0u, 1u, 2u, 253u}) {
    SCOPED_TRACE(count);
    const std::vector<Fd> sent = makeFiles(count);
    const std::size_t before = openFds();

    ASSERT_EQ(send(left_, "with files", numbersOf(sent)), 10);
    {
      const Arrived arrived = receive(right_, kMaxFdsPerMessage);
      EXPECT_EQ(arrived.text, "with files");
      EXPECT_EQ(arrived.fds, count);
      EXPECT_FALSE(arrived.truncated);
      EXPECT_EQ(openFds(), before + count);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(isSameFile(arrived.room[i], sent[i])) << i;
        EXPECT_EQ(::fcntl(arrived.room[i].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC) << i;
      }
    }
    EXPECT_EQ(openFds(), before);
  }
}

// F79
TEST_P(UnixSocket, ClosesDescriptorsThatHaveNoRoom) {
  for (const int passCredentials : {0, 1}) {
    setOption(right_.get(), SOL_SOCKET, SO_PASSCRED, passCredentials).orThrow();
    for (const std::size_t count : {1u, 2u, 3u, 7u, 8u, 9u, 10u, 11u, 12u, 20u, 253u}) {
      const std::vector<Fd> sent = makeFiles(count);
      for (const std::size_t room : {0u, 1u, 2u, 3u, 8u, 252u, 253u, 300u}) {
        SCOPED_TRACE(std::to_string(count) + " for " + std::to_string(room));
        const std::size_t before = openFds();

        ASSERT_EQ(send(left_, "x", numbersOf(sent)), 1);
        const Arrived arrived = receive(right_, room);

        ASSERT_EQ(arrived.bytes, 1);
        ASSERT_EQ(arrived.fds, std::min(count, room));
        EXPECT_EQ(arrived.truncated, count > room);
        EXPECT_EQ(openFds(), before + arrived.fds);
        EXPECT_TRUE(arrived.fds == 0 || isSameFile(arrived.room[0], sent[0]));
      }
    }
  }
}

// F79: the kernel cuts the control data short where the process may not open more.
TEST_P(UnixSocket, SaysThatTheProcessMayNotOpenAll) {
  const std::vector<Fd> sent = makeFiles(5);
  ASSERT_EQ(send(left_, "x", numbersOf(sent)), 1);
  const std::size_t before = openFds();
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlim_t lowestFree = static_cast<rlim_t>(Fd(::dup(left_.get())).get());
  const rlimit tight{lowestFree + 2, old.rlim_max};

  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const Arrived arrived = receive(right_, 5);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);

  EXPECT_EQ(arrived.bytes, 1);
  EXPECT_TRUE(arrived.truncated);
  EXPECT_TRUE(arrived.fds == 1 || arrived.fds == 2) << arrived.fds;
  EXPECT_EQ(openFds(), before + arrived.fds);
}

// F79
TEST_P(UnixSocket, RefusesMoreThanTheKernelCarries) {
  const std::vector<int> tooMany(254, left_.get());
  const std::vector<int> closed{-1};

  EXPECT_EQ(send(left_, "x", tooMany), -EINVAL);
  EXPECT_EQ(send(left_, "x", closed), -EBADF);
  EXPECT_EQ(receive(right_, 1).bytes, -EAGAIN);
}

TEST_P(UnixSocket, LosesNoDescriptorForWantOfBytes) {
  EXPECT_EQ(send(left_, "", {left_.get()}), -EINVAL);
  EXPECT_EQ(sendWithFds(left_.get(), nullptr, 0, std::array{left_.get()}), -EINVAL);
}

TEST_P(UnixSocket, DropsDescriptorsThatNobodyAsksFor) {
  const std::size_t before = openFds();
  ASSERT_EQ(send(left_, "x", {left_.get(), right_.get()}), 1);
  char byte = 0;

  EXPECT_EQ(recvSocket(right_.get(), &byte, 1), 1);
  EXPECT_EQ(openFds(), before);
}

TEST_P(UnixSocket, GivesTheDescriptorsOfOneMessageAtATime) {
  const std::vector<Fd> sent = makeFiles(2);
  ASSERT_EQ(send(left_, "a", {sent[0].get()}), 1);
  ASSERT_EQ(send(left_, "b", {sent[1].get()}), 1);

  const Arrived first = receive(right_, 2);
  const Arrived second = receive(right_, 2);

  EXPECT_EQ(first.text + second.text, "ab");
  ASSERT_EQ(first.fds, 1u);
  ASSERT_EQ(second.fds, 1u);
  EXPECT_TRUE(isSameFile(first.room[0], sent[0]));
  EXPECT_TRUE(isSameFile(second.room[0], sent[1]));
}

TEST_P(UnixSocket, ClosesWhatTheRoomHeld) {
  const std::vector<Fd> sent = makeFiles(1);
  std::vector<Fd> room = makeFiles(2);
  const int kept = room[1].get();
  const std::size_t before = openFds();
  ASSERT_EQ(send(left_, "x", numbersOf(sent)), 1);
  char byte = 0;
  const iovec part{&byte, 1};

  EXPECT_EQ(recvWithFds(right_.get(), &part, 1, room).fds, 1u);

  EXPECT_TRUE(isSameFile(room[0], sent[0]));
  EXPECT_EQ(room[1].get(), kept);
  EXPECT_EQ(openFds(), before);
}

TEST_P(UnixSocket, CallsThatASignalBreaksAreMadeAgain) {
  FaultScript script;
  script.interruptFirstTries();

  EXPECT_EQ(send(left_, "x", {left_.get()}), 1);
  EXPECT_EQ(receive(right_, 1).fds, 1u);
  EXPECT_EQ(script.count("sendmsg"), 2u);
  EXPECT_EQ(script.count("recvmsg"), 2u);
}

TEST_P(UnixSocket, FailuresAreAnsweredAndLeakNothing) {
  FaultScript script;
  script.fail("sendmsg", 1, ETOOMANYREFS).fail("recvmsg", 1, ECONNRESET);

  EXPECT_EQ(send(left_, "x", {left_.get()}), -ETOOMANYREFS);
  const Arrived arrived = receive(right_, 1);
  EXPECT_EQ(arrived.bytes, -ECONNRESET);
  EXPECT_EQ(arrived.fds, 0u);
  EXPECT_FALSE(arrived.truncated);
  EXPECT_FALSE(arrived.room[0].valid());
}

TEST_P(UnixSocket, KnowsItsPeer) {
  const auto peer = peerCredentials(left_.get());

  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::geteuid());
  EXPECT_EQ(peer->gid, ::getegid());
}

TEST(UnixStream, TakesTheDescriptorsWithTheFirstBytes) {
  const auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  std::string large(std::size_t{1} << 22, 'x');

  const std::ptrdiff_t sent = send(left, large, {left.get()});

  EXPECT_GT(sent, 0);
  EXPECT_LT(sent, 1 << 22);
  EXPECT_EQ(receive(right, 1).fds, 1u);
  EXPECT_EQ(receive(right, 1).fds, 0u);
}

TEST(UnixStream, EndsWithoutDescriptors) {
  auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  left.reset();

  const Arrived arrived = receive(right, 1);

  EXPECT_EQ(arrived.bytes, 0);
  EXPECT_EQ(arrived.fds, 0u);
  EXPECT_EQ(send(right, "x", {right.get()}), -EPIPE);  // and no signal came
}

TEST(UnixStream, AcceptedFromAnAbstractNameKnowsItsPeer) {
  const SocketAddress address =
      SocketAddress::unixAbstract("millrace-peer-" + std::to_string(::getpid())).value();
  const Fd listener = openSocket(address, SocketType::stream).orThrow();
  bindSocket(listener.get(), address).orThrow();
  listenSocket(listener.get(), 1).orThrow();
  const Fd client = openSocket(address, SocketType::stream).orThrow();
  ASSERT_TRUE(connectSocket(client.get(), address).value());
  const Accepted accepted = acceptSocket(listener.get()).orThrow();

  EXPECT_EQ(peerCredentials(accepted.fd.get())->pid, ::getpid());
  EXPECT_EQ(peerCredentials(client.get())->uid, ::geteuid());
}

TEST(UnixStream, WithoutAPeerHasNoCredentials) {
  const Fd lonely =
      openSocket(SocketAddress::unixAbstract("x").value(), SocketType::stream).orThrow();
  const Fd inet = openSocket(SocketAddress::any4(0), SocketType::stream).orThrow();
  const std::string text = "getsockopt fd " + std::to_string(lonely.get());

  EXPECT_EQ(peerCredentials(lonely.get()).error().message(),
            text + ", SO_PEERCRED: Transport endpoint is not connected");
  EXPECT_EQ(peerCredentials(inet.get()).error().errnoValue(), ENOTCONN);
  EXPECT_EQ(peerCredentials(-1).error().errnoValue(), EBADF);
  FaultScript script;
  script.fail("getsockopt", 1, ENOBUFS);
  EXPECT_EQ(peerCredentials(lonely.get()).error().errnoValue(), ENOBUFS);
}

}  // namespace
}  // namespace millrace
