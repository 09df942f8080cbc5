// SPDX-License-Identifier: Apache-2.0
// Many messages at once, and bytes of files and pipes.
#include "support/fault_script.h"

#include <millrace/sys/socket.h>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::FaultScript;

std::string received(int fd) {
  std::array<char, 64> bytes{};
  const auto got = recvSocket(fd, bytes.data(), bytes.size());
  return got < 0 ? "error " + std::to_string(-got)
                 : std::string(bytes.data(), static_cast<std::size_t>(got));
}

// A file of its own that holds `text` and has no name.
Fd fileWith(const std::string& text) {
  Fd file(::memfd_create("millrace-test", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}

struct Pipe {
  Pipe() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    out = Fd(fds[0]);
    in = Fd(fds[1]);
  }
  Fd out;
  Fd in;
};

mmsghdr messageOf(iovec& part) {
  mmsghdr made{};
  made.msg_hdr.msg_iov = &part;
  made.msg_hdr.msg_iovlen = 1;
  return made;
}

TEST(SocketTransfer, MovesManyMessagesAtOnce) {
  const auto [left, right] = openSocketPair(SocketType::datagram).orThrow();
  std::array<std::string, 3> texts{"a", "", "ccc"};
  std::array<iovec, 3> parts{};
  std::array<mmsghdr, 3> out{};
  std::array<std::array<char, 8>, 4> bytes{};
  std::array<iovec, 4> rooms{};
  std::array<mmsghdr, 4> in{};
  for (std::size_t i = 0; i < 3; ++i) {
    parts[i] = {texts[i].data(), texts[i].size()};
    out[i] = messageOf(parts[i]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    rooms[i] = {bytes[i].data(), bytes[i].size()};
    in[i] = messageOf(rooms[i]);
  }

  EXPECT_EQ(sendMessages(left.get(), out.data(), 3), 3);
  EXPECT_EQ(out[2].msg_len, 3u);
  EXPECT_EQ(recvMessages(right.get(), in.data(), 2), 2);
  EXPECT_EQ(recvMessages(right.get(), in.data() + 2, 2), 1);
  EXPECT_EQ(recvMessages(right.get(), in.data(), 4), -EAGAIN);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::string(bytes[i].data(), in[i].msg_len), texts[i]);
  }
}

TEST(SocketTransfer, WaitsForTheFirstMessageOnly) {
  const auto [left, right] = openSocketPair(SocketType::datagram).orThrow();
  setBlocking(right.get(), Blocking::yes).orThrow();
  std::array<char, 8> bytes{};
  iovec room{bytes.data(), bytes.size()};
  std::array<mmsghdr, 2> in{messageOf(room), messageOf(room)};
  ASSERT_EQ(sendSocket(left.get(), "one", 3), 3);

  EXPECT_EQ(recvMessages(right.get(), in.data(), 2), 1);
}

TEST(SocketTransfer, SendsTheMessagesBeforeTheOneThatFails) {
  const auto [left, right] = openSocketPair(SocketType::datagram).orThrow();
  char text[] = "x";
  iovec good{text, 1};
  std::string large(std::size_t{1} << 22, 'x');
  iovec tooLarge{large.data(), large.size()};
  std::array<mmsghdr, 2> out{messageOf(good), messageOf(tooLarge)};

  EXPECT_EQ(sendMessages(left.get(), out.data(), 2), 1);
  EXPECT_EQ(sendMessages(left.get(), out.data() + 1, 1), -EMSGSIZE);
}

TEST(SocketTransfer, SendsAFileFromWhereItIsTold) {
  const auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  const Fd file = fileWith("0123456789");
  std::int64_t offset = 3;

  EXPECT_EQ(sendFile(left.get(), file.get(), offset, 4), 4);
  EXPECT_EQ(offset, 7);
  EXPECT_EQ(received(right.get()), "3456");
  EXPECT_EQ(sendFile(left.get(), file.get(), offset, 100), 3);
  EXPECT_EQ(sendFile(left.get(), file.get(), offset, 100), 0);
  EXPECT_EQ(offset, 10);
}

TEST(SocketTransfer, SendsNothingOfAFileThatBecameShorter) {
  const auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  const Fd file = fileWith("0123456789");
  std::int64_t offset = 6;
  ASSERT_EQ(::ftruncate(file.get(), 2), 0);

  EXPECT_EQ(sendFile(left.get(), file.get(), offset, 4), 0);
  EXPECT_EQ(offset, 6);
  EXPECT_EQ(fileStatus(file.get())->size, 2);
}

TEST(SocketTransfer, SendsAFileUntilTheSocketIsFull) {
  const auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  const Fd file = fileWith(std::string(std::size_t{1} << 22, 'x'));
  std::int64_t offset = 0;

  std::ptrdiff_t sent = 0;
  while ((sent = sendFile(left.get(), file.get(), offset, std::size_t{1} << 22)) > 0) continue;

  EXPECT_EQ(sent, -EAGAIN);
  EXPECT_GT(offset, 0);
  EXPECT_LT(offset, 1 << 22);
}

TEST(SocketTransfer, OfWhatIsNoFileIsRefused) {
  const auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  std::int64_t offset = 0;

  EXPECT_LT(sendFile(left.get(), right.get(), offset, 1), 0);
  EXPECT_EQ(sendFile(left.get(), -1, offset, 1), -EBADF);
}

// Blocks SIGPIPE for the thread and takes what came of it.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, &pipe_, &old_), 0);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;
  ~NoPipeSignal() {
    const timespec atOnce{};
    while (::sigtimedwait(&pipe_, nullptr, &atOnce) > 0) continue;
    EXPECT_EQ(::pthread_sigmask(SIG_SETMASK, &old_, nullptr), 0);
  }

 private:
  sigset_t pipe_{};
  sigset_t old_{};
};

TEST(SocketTransfer, ToAPeerThatIsGoneFails) {
  auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  const Fd file = fileWith("abc");
  const Pipe pipe;
  ASSERT_EQ(::write(pipe.in.get(), "abc", 3), 3);
  right.reset();
  std::int64_t offset = 0;
  const NoPipeSignal blocked;

  EXPECT_EQ(sendFile(left.get(), file.get(), offset, 3), -EPIPE);
  EXPECT_EQ(offset, 0);
  EXPECT_EQ(spliceBytes(left.get(), pipe.out.get(), 3), -EPIPE);
}

TEST(SocketTransfer, SplicesThroughAPipe) {
  const auto [left, right] = openSocketPair(SocketType::stream).orThrow();
  const auto [onward, end] = openSocketPair(SocketType::stream).orThrow();
  const Pipe pipe;
  ASSERT_EQ(sendSocket(left.get(), "through", 7), 7);

  EXPECT_EQ(spliceBytes(pipe.in.get(), right.get(), 64), 7);
  EXPECT_EQ(spliceBytes(onward.get(), pipe.out.get(), 4), 4);
  EXPECT_EQ(spliceBytes(onward.get(), pipe.out.get(), 64), 3);
  EXPECT_EQ(received(end.get()), "through");
  EXPECT_EQ(spliceBytes(onward.get(), pipe.out.get(), 64), -EAGAIN);
  EXPECT_EQ(spliceBytes(pipe.in.get(), right.get(), 64), -EAGAIN);
  shutdownSocket(left.get(), ShutdownHow::write);
  EXPECT_EQ(spliceBytes(pipe.in.get(), right.get(), 64), 0);
  EXPECT_EQ(spliceBytes(left.get(), right.get(), 64), -EINVAL);
}

TEST(SocketTransfer, ReadsFilesAtAnyPlace) {
  const Fd file = fileWith("0123456789");
  std::array<char, 8> bytes{};

  EXPECT_EQ(preadBytes(file.get(), bytes.data(), 4, 2), 4);
  EXPECT_STREQ(bytes.data(), "2345");
  EXPECT_EQ(preadBytes(file.get(), bytes.data(), 8, 9), 1);
  EXPECT_EQ(preadBytes(file.get(), bytes.data(), 8, 10), 0);
  EXPECT_EQ(preadBytes(file.get(), bytes.data(), 8, -1), -EINVAL);
  EXPECT_EQ(preadBytes(Pipe().out.get(), bytes.data(), 8, 0), -ESPIPE);
}

TEST(SocketTransfer, KnowsFilesFromOtherDescriptors) {
  const Fd file = fileWith("0123456789");

  EXPECT_EQ(fileStatus(file.get())->size, 10);
  EXPECT_TRUE(fileStatus(file.get())->isRegular);
  EXPECT_FALSE(fileStatus(Pipe().out.get())->isRegular);
  EXPECT_EQ(fileStatus(-1).error().message(), "fstat fd -1: Bad file descriptor");
  FaultScript script;
  script.fail("fstat", 1, EIO);
  EXPECT_EQ(fileStatus(file.get()).error().errnoValue(), EIO);
}

TEST(SocketTransfer, ThatASignalBreaksIsMadeAgain) {
  const auto [left, right] = openSocketPair(SocketType::datagram).orThrow();
  const auto [from, to] = openSocketPair(SocketType::stream).orThrow();
  const Fd file = fileWith("abc");
  const Pipe pipe;
  char bytes[8] = {};
  iovec part{bytes, 3};
  mmsghdr message = messageOf(part);
  std::int64_t offset = 0;
  FaultScript script;
  script.interruptFirstTries();

  EXPECT_EQ(sendMessages(left.get(), &message, 1), 1);
  EXPECT_EQ(recvMessages(right.get(), &message, 1), 1);
  EXPECT_EQ(preadBytes(file.get(), bytes, 3, 0), 3);
  EXPECT_EQ(sendFile(from.get(), file.get(), offset, 3), 3);
  EXPECT_EQ(spliceBytes(pipe.in.get(), to.get(), 3), 3);

  for (const char* name : {"sendmmsg", "recvmmsg", "pread", "sendfile", "splice"}) {
    EXPECT_EQ(script.count(name), 2u) << name;
  }
}

TEST(SocketTransfer, AnswersWithTheErrnoOfTheKernel) {
  FaultScript script;
  script.failAll("sendmmsg", ENOBUFS).failAll("recvmmsg", ECONNREFUSED).failAll("pread", EIO);
  script.failAll("sendfile", EINVAL).failAll("splice", ENOMEM);
  mmsghdr message{};
  std::int64_t offset = 5;

  EXPECT_EQ(sendMessages(0, &message, 1), -ENOBUFS);
  EXPECT_EQ(recvMessages(0, &message, 1), -ECONNREFUSED);
  EXPECT_EQ(preadBytes(0, &message, 1, 0), -EIO);
  EXPECT_EQ(sendFile(0, 0, offset, 1), -EINVAL);
  EXPECT_EQ(offset, 5);
  EXPECT_EQ(spliceBytes(0, 0, 1), -ENOMEM);
}

}  // namespace
}  // namespace millrace
