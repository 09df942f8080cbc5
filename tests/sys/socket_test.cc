// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/sys/poll.h>
#include <millrace/sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::FaultScript;
using testing::HasSubstr;

int waitFor(int fd, std::uint32_t events) {
  PollEntry entry{fd, static_cast<std::int16_t>(events), 0};
  return pollWait(&entry, 1, 10'000'000'000);
}

struct Listener {
  explicit Listener(const SocketAddress& address = SocketAddress::loopback4(0))
      : fd(openSocket(address, SocketType::stream).orThrow()) {
    bindSocket(fd.get(), address).orThrow();
    listenSocket(fd.get(), 16).orThrow();
    where = sockName(fd.get()).orThrow();
  }
  Fd fd;
  SocketAddress where;
};

struct Pair {
  Pair() {
    Listener listener;
    client = openSocket(listener.where, SocketType::stream).orThrow();
    if (!connectSocket(client.get(), listener.where).orThrow()) waitFor(client.get(), kWritable);
    waitFor(listener.fd.get(), kReadable);
    Accepted accepted = acceptSocket(listener.fd.get()).orThrow();
    server = std::move(accepted.fd);
    peer = accepted.peer;
  }
  Fd client;
  Fd server;
  SocketAddress peer;
};

std::string receive(int fd) {
  std::array<char, 64> bytes{};
  waitFor(fd, kReadable);
  const auto got = recvSocket(fd, bytes.data(), bytes.size());
  return got < 0 ? "error " + std::to_string(-got)
                 : std::string(bytes.data(), static_cast<std::size_t>(got));
}

TEST(Socket, IsNonblockingAndClosedOnExec) {
  const Fd fd = openSocket(SocketAddress::any4(0), SocketType::datagram).orThrow();

  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  EXPECT_EQ(getOption(fd.get(), SOL_SOCKET, SO_TYPE).value(), SOCK_DGRAM);
}

TEST(Socket, AcceptedOneIsNonblockingAndClosedOnExec) {
  const Pair pair;

  EXPECT_EQ(::fcntl(pair.server.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(::fcntl(pair.server.get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

TEST(Socket, EndsKnowEachOther) {
  const Pair pair;

  EXPECT_EQ(pair.peer, sockName(pair.client.get()).value());
  EXPECT_EQ(peerName(pair.client.get()).value(), sockName(pair.server.get()).value());
  EXPECT_TRUE(pair.peer.isLoopback());
  EXPECT_NE(pair.peer.port(), 0);
  EXPECT_EQ(socketError(pair.client.get()), 0);
}

TEST(Socket, MovesBytesBothWays) {
  const Pair pair;

  EXPECT_EQ(sendSocket(pair.client.get(), "ping", 4), 4);
  EXPECT_EQ(receive(pair.server.get()), "ping");
  EXPECT_EQ(sendSocket(pair.server.get(), "pong", 4), 4);
  EXPECT_EQ(receive(pair.client.get()), "pong");
}

TEST(Socket, SaysWhenThereIsNothingYet) {
  const Pair pair;
  const Listener listener;
  char byte = 0;

  EXPECT_EQ(recvSocket(pair.client.get(), &byte, 1), -EAGAIN);
  EXPECT_EQ(acceptSocket(listener.fd.get()).error().errnoValue(), EAGAIN);
  EXPECT_EQ(acceptNow(listener.fd.get(), nullptr), -EAGAIN);
}

TEST(Socket, ShutdownOfTheWritingSideIsTheEndOfInput) {
  const Pair pair;

  EXPECT_EQ(shutdownSocket(pair.client.get(), ShutdownHow::write), 0);

  EXPECT_EQ(receive(pair.server.get()), "");
  EXPECT_EQ(sendSocket(pair.client.get(), "x", 1), -EPIPE);  // and no signal came
  EXPECT_EQ(shutdownSocket(pair.server.get(), ShutdownHow::read), 0);
  EXPECT_EQ(shutdownSocket(pair.server.get(), ShutdownHow::both), 0);
  EXPECT_EQ(shutdownSocket(-1, ShutdownHow::both), -EBADF);
}

TEST(Socket, GathersAndScattersParts) {
  const auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  char hello[] = "hello ";
  char world[] = "world";
  const std::array<iovec, 2> out{iovec{hello, 6}, {world, 5}};
  std::array<char, 4> first{};
  std::array<char, 16> second{};
  const std::array<iovec, 2> in{iovec{first.data(), first.size()}, {second.data(), second.size()}};

  EXPECT_EQ(sendParts(left.get(), out.data(), 2), 11);
  EXPECT_EQ(readParts(right.get(), in.data(), 2), 11);
  EXPECT_EQ(std::string(first.data(), 4) + second.data(), "hello world");
  EXPECT_EQ(writeParts(left.get(), out.data(), 1), 6);
  EXPECT_EQ(receive(right.get()), "hello ");
}

TEST(Socket, SendsToNobodyWithoutASignal) {
  auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  right.reset();
  char text[] = "x";
  const iovec part{text, 1};

  EXPECT_EQ(sendParts(left.get(), &part, 1), -EPIPE);
}

TEST(Socket, DatagramsCarryTheirSender) {
  const SocketAddress any = SocketAddress::loopback4(0);
  const Fd from = openSocket(any, SocketType::datagram).orThrow();
  const Fd to = openSocket(any, SocketType::datagram).orThrow();
  bindSocket(from.get(), any).orThrow();
  bindSocket(to.get(), any).orThrow();
  connectSocket(from.get(), sockName(to.get()).value()).orThrow();
  char text[] = "datagram";
  iovec part{text, 8};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ASSERT_EQ(sendMessage(from.get(), message), 8);

  std::array<char, 16> bytes{};
  iovec room{bytes.data(), bytes.size()};
  sockaddr_storage raw{};
  msghdr arrived{};
  arrived.msg_name = &raw;
  arrived.msg_namelen = sizeof raw;
  arrived.msg_iov = &room;
  arrived.msg_iovlen = 1;
  ASSERT_EQ(waitFor(to.get(), kReadable), 1);
  ASSERT_EQ(recvMessage(to.get(), arrived), 8);

  EXPECT_STREQ(bytes.data(), "datagram");
  EXPECT_EQ(SocketAddress::fromRaw(&raw, arrived.msg_namelen).value(),
            sockName(from.get()).value());
}

TEST(Socket, UnixPathIsTakenUntilItIsUnlinked) {
  std::string folder = (std::filesystem::temp_directory_path() / "mr-sock-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const SocketAddress address = SocketAddress::unixPath(folder + "/a.sock").value();

  { const Listener first(address); }
  const Fd second = openSocket(address, SocketType::stream).orThrow();
  EXPECT_EQ(bindSocket(second.get(), address).error().message(),
            "bind " + address.toString() + ": Address already in use");
  EXPECT_TRUE(unlinkPath(address).ok());
  EXPECT_TRUE(unlinkPath(address).ok());
  EXPECT_TRUE(bindSocket(second.get(), address).ok());

  FaultScript script;
  script.fail("unlink", 1, EACCES);
  EXPECT_EQ(unlinkPath(address).error().errnoValue(), EACCES);
  EXPECT_TRUE(unlinkPath(SocketAddress::loopback4(1)).ok());
  std::filesystem::remove_all(folder);
}

TEST(Socket, AbstractNameConnectsAtOnce) {
  const std::string name = "millrace-test-" + std::to_string(::getpid());
  const Listener listener(SocketAddress::unixAbstract(name).value());
  const Fd client = openSocket(listener.where, SocketType::stream).orThrow();

  EXPECT_EQ(listener.where.name(), name);
  EXPECT_TRUE(connectSocket(client.get(), listener.where).value());

  const Accepted accepted = acceptSocket(listener.fd.get()).orThrow();
  EXPECT_EQ(accepted.peer.family(), AddressFamily::unixUnnamed);
}

TEST(Socket, RefusedConnectionNamesTheAddress) {
  SocketAddress nobody;
  { nobody = Listener().where; }
  const Fd client = openSocket(nobody, SocketType::stream).orThrow();
  ASSERT_TRUE(setBlocking(client.get(), Blocking::yes).ok());

  EXPECT_EQ(connectSocket(client.get(), nobody).error().message(),
            "connect " + nobody.toString() + ": Connection refused");
}

TEST(Socket, ConnectThatASignalBreaksGoesOn) {
  const Listener listener;
  const Fd client = openSocket(listener.where, SocketType::stream).orThrow();
  FaultScript script;
  script.fail("connect", 1, EINTR).fail("connect", 2, EINPROGRESS);
  EXPECT_FALSE(connectSocket(client.get(), listener.where).ok() &&
               connectSocket(client.get(), listener.where).value());
}

TEST(Socket, OptionsAreSetAndRead) {
  const Pair pair;

  EXPECT_TRUE(setOption(pair.client.get(), IPPROTO_TCP, TCP_NODELAY, 1).ok());
  EXPECT_EQ(getOption(pair.client.get(), IPPROTO_TCP, TCP_NODELAY).value(), 1);
  const linger set{1, 7};
  EXPECT_TRUE(setOptionBytes(pair.client.get(), SOL_SOCKET, SO_LINGER, &set, sizeof set).ok());
  linger got{};
  EXPECT_EQ(getOptionBytes(pair.client.get(), SOL_SOCKET, SO_LINGER, &got, sizeof got).value(),
            sizeof got);
  EXPECT_EQ(got.l_linger, 7);
}

TEST(Socket, OptionThatDoesNotExistIsNamed) {
  const Pair pair;
  const std::string text = "fd " + std::to_string(pair.client.get()) + ", level 1, option 9999";

  EXPECT_EQ(setOption(pair.client.get(), SOL_SOCKET, 9999, 1).error().message(),
            "setsockopt " + text + ": Protocol not available");
  EXPECT_EQ(getOption(pair.client.get(), SOL_SOCKET, 9999).error().message(),
            "getsockopt " + text + ": Protocol not available");
}

TEST(Socket, BlockingModeIsSwitched) {
  const Pair pair;
  const auto flags = [&pair] { return ::fcntl(pair.client.get(), F_GETFL) & O_NONBLOCK; };

  EXPECT_TRUE(setBlocking(pair.client.get(), Blocking::yes).ok());
  EXPECT_EQ(flags(), 0);
  EXPECT_TRUE(setBlocking(pair.client.get(), Blocking::no).ok());
  EXPECT_EQ(flags(), O_NONBLOCK);
  EXPECT_EQ(setBlocking(-1, Blocking::no).error().operation(), "ioctl(FIONBIO)");
  FaultScript script;
  script.fail("ioctl", 1, EPERM);
  EXPECT_EQ(setBlocking(pair.client.get(), Blocking::yes).error().operation(), "ioctl(FIONBIO)");
}

TEST(Socket, HotCallsThatASignalBreaksAreMadeAgain) {
  const Listener listener(
      SocketAddress::unixAbstract("millrace-eintr-" + std::to_string(::getpid())).value());
  const Fd client = openSocket(listener.where, SocketType::stream).orThrow();
  ASSERT_TRUE(connectSocket(client.get(), listener.where).value());
  FaultScript script;
  script.interruptFirstTries();

  SocketAddress peer;
  const Fd server(acceptNow(listener.fd.get(), &peer));
  ASSERT_TRUE(server.valid());
  EXPECT_EQ(sendSocket(client.get(), "abc", 3), 3);
  char bytes[3] = {};
  EXPECT_EQ(recvSocket(server.get(), bytes, 3), 3);
  iovec part{bytes, 3};
  EXPECT_EQ(sendParts(server.get(), &part, 1), 3);
  EXPECT_EQ(readParts(client.get(), &part, 1), 3);
  EXPECT_EQ(writeParts(client.get(), &part, 1), 3);

  for (const char* name : {"accept4", "send", "recv", "sendmsg", "readv", "writev"}) {
    EXPECT_EQ(script.count(name), 2u) << name;
  }
}

TEST(Socket, EveryFailureIsReported) {
  const auto scenario = [](FaultScript& script) {
    const SocketAddress any = SocketAddress::loopback4(0);
    const auto work = [&any]() -> Result<void> {
      Result<Fd> fd = openSocket(any, SocketType::stream);
      if (!fd.ok()) return fd.error();
      if (auto done = setOption(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1); !done.ok()) return done;
      if (auto done = bindSocket(fd->get(), any); !done.ok()) return done;
      if (auto done = listenSocket(fd->get(), 1); !done.ok()) return done;
      const auto name = sockName(fd->get());
      if (!name.ok()) return name.error();
      const auto pair = openSocketPair(SocketType::datagram);
      if (!pair.ok()) return pair.error();
      const auto peer = peerName(pair->first.get());
      if (!peer.ok()) return peer.error();
      return {};
    };
    const Result<void> result = work();

    EXPECT_EQ(result.ok(), script.faults() == 0);
    const std::string_view failed = result.ok() ? "" : result.error().operation();
    EXPECT_EQ(failed, script.lastFault());
  };

  EXPECT_EQ(test::forEachFault(scenario), 7);
}

TEST(Socket, OfDatagramsThatIsDissolvedHearsEverybodyAgain) {
  const SocketAddress any = SocketAddress::loopback4(0);
  const auto open = [&any] {
    Fd made = openSocket(any, SocketType::datagram).orThrow();
    bindSocket(made.get(), any).orThrow();
    return made;
  };
  const Fd socket = open();
  const Fd friendly = open();
  const Fd stranger = open();
  const SocketAddress where = sockName(socket.get()).value();
  connectSocket(socket.get(), sockName(friendly.get()).value()).orThrow();
  connectSocket(stranger.get(), where).orThrow();
  // Loopback delivers within the call, so what has not arrived by now never will.
  ASSERT_EQ(sendSocket(stranger.get(), "unheard", 7), 7);
  char byte = 0;
  ASSERT_EQ(recvSocket(socket.get(), &byte, 1), -EAGAIN);
  socketError(stranger.get());

  ASSERT_TRUE(connectDissolve(socket.get()).ok());

  EXPECT_EQ(peerName(socket.get()).error().errnoValue(), ENOTCONN);
  EXPECT_EQ(sockName(socket.get()).value(), any);  // the kernel had picked the port
  ASSERT_TRUE(bindSocket(socket.get(), where).ok());
  EXPECT_EQ(sendSocket(stranger.get(), "heard", 5), 5);
  EXPECT_EQ(receive(socket.get()), "heard");
  connectSocket(socket.get(), sockName(friendly.get()).value()).orThrow();
  EXPECT_TRUE(connectDissolve(socket.get()).ok());
  EXPECT_EQ(sockName(socket.get()).value(), where);  // that one was asked for
}

TEST(Socket, ThatIsNotConnectedMayBeDissolved) {
  const Fd socket = openSocket(SocketAddress::loopback4(0), SocketType::datagram).orThrow();

  EXPECT_TRUE(connectDissolve(socket.get()).ok());
  EXPECT_EQ(connectDissolve(-1).error().message(), "connect to nobody, fd -1: Bad file descriptor");
}

TEST(Socket, PendingErrorOfNothingIsThatOfTheCall) { EXPECT_EQ(socketError(-1), EBADF); }

}  // namespace
}  // namespace millrace
