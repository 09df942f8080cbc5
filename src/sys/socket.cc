// SPDX-License-Identifier: Apache-2.0
#include <millrace/sys/calls.h>
#include <millrace/sys/socket.h>

#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

namespace millrace {

namespace {

std::string fdText(int fd) { return "fd " + std::to_string(fd); }

std::string optionText(int fd, int level, int name) {
  return fdText(fd) + ", level " + std::to_string(level) + ", option " + std::to_string(name);
}

int typeOf(SocketType type) noexcept {
  const int kind = type == SocketType::stream ? SOCK_STREAM : SOCK_DGRAM;
  return kind | SOCK_NONBLOCK | SOCK_CLOEXEC;
}

// The answer of `call`, which is made again as long as a signal breaks it, or -errno.
template <class Call>
auto unbroken(Call call) noexcept -> decltype(call()) {
  for (;;) {
    const auto answer = call();
    if (answer >= 0) return answer;
    if (errno != EINTR) return -errno;
  }
}

using NameCall = int (*)(int, sockaddr*, unsigned*);

Result<SocketAddress> nameBy(NameCall call, int fd, const char* operation) {
  sockaddr_storage raw{};
  unsigned size = sizeof raw;
  if (call(fd, reinterpret_cast<sockaddr*>(&raw), &size) != 0) {
    return Error::fromErrno(errno, operation, fdText(fd));
  }
  return SocketAddress::fromRaw(&raw, size);
}

}  // namespace

Result<Fd> openSocket(const SocketAddress& address, SocketType type) {
  Fd made(calls().socket(address.domain(), typeOf(type), 0));
  if (!made.valid()) return Error::fromErrno(errno, "socket", "for " + address.toString());
  return made;
}

Result<std::pair<Fd, Fd>> openSocketPair(SocketType type) {
  int fds[2] = {-1, -1};
  if (calls().socketpair(AF_UNIX, typeOf(type), 0, fds) != 0) {
    return Error::fromErrno(errno, "socketpair");
  }
  return std::pair(Fd(fds[0]), Fd(fds[1]));
}

Result<void> bindSocket(int fd, const SocketAddress& address) {
  if (calls().bind(fd, address.raw(), address.rawSize()) == 0) return {};
  const int error = errno;
  const char* remedy = "";
  if (address.isInet() && error == EADDRINUSE) {
    remedy = " (somebody has it already; port 0 takes one that is free)";
  } else if (error == EADDRNOTAVAIL) {
    remedy = " (no address of this machine)";
  } else if (address.isInet() && error == EACCES) {
    remedy = " (ports below 1024 need a right of their own, CAP_NET_BIND_SERVICE)";
  }
  return Error::fromErrno(error, "bind", address.toString() + remedy);
}

Result<void> listenSocket(int fd, int backlog) {
  if (calls().listen(fd, backlog) == 0) return {};
  return Error::fromErrno(errno, "listen", fdText(fd));
}

int acceptNow(int fd, SocketAddress* peer) noexcept {
  sockaddr_storage raw{};
  unsigned size = 0;
  const int made = unbroken([&]() noexcept {
    size = sizeof raw;
    return calls().accept4(fd, peer == nullptr ? nullptr : reinterpret_cast<sockaddr*>(&raw),
                           peer == nullptr ? nullptr : &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  });
  if (made < 0 || peer == nullptr) return made;
  Result<SocketAddress> from = SocketAddress::fromRaw(&raw, size);
  *peer = from.ok() ? std::move(*from) : SocketAddress();
  return made;
}

Result<Accepted> acceptSocket(int fd) {
  SocketAddress peer;
  const int made = acceptNow(fd, &peer);
  if (made < 0) return Error::fromErrno(-made, "accept4", fdText(fd));
  return Accepted{Fd(made), std::move(peer)};
}

Result<bool> connectSocket(int fd, const SocketAddress& address) {
  if (calls().connect(fd, address.raw(), address.rawSize()) == 0) return true;
  // A signal does not break the attempt: it goes on in the kernel like one that would block.
  if (errno == EINPROGRESS || errno == EINTR) return false;
  return Error::fromErrno(errno, "connect", address.toString());
}

Result<void> connectDissolve(int fd) {
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  if (calls().connect(fd, &nobody, sizeof nobody) == 0) return {};
  return Error::fromErrno(errno, "connect", "to nobody, " + fdText(fd));
}

int shutdownSocket(int fd, ShutdownHow how) noexcept {
  const int number = how == ShutdownHow::read    ? SHUT_RD
                     : how == ShutdownHow::write ? SHUT_WR
                                                 : SHUT_RDWR;
  return calls().shutdown(fd, number) == 0 ? 0 : -errno;
}

Result<void> setOption(int fd, int level, int name, int value) {
  return setOptionBytes(fd, level, name, &value, sizeof value);
}

Result<int> getOption(int fd, int level, int name) {
  int value = 0;
  const auto got = getOptionBytes(fd, level, name, &value, sizeof value);
  if (!got.ok()) return got.error();
  return value;
}

Result<void> setOptionBytes(int fd, int level, int name, const void* value, std::size_t size) {
  if (calls().setsockopt(fd, level, name, value, static_cast<unsigned>(size)) == 0) return {};
  return Error::fromErrno(errno, "setsockopt", optionText(fd, level, name));
}

Result<std::size_t> getOptionBytes(int fd, int level, int name, void* value, std::size_t size) {
  auto filled = static_cast<unsigned>(size);
  if (calls().getsockopt(fd, level, name, value, &filled) == 0) return std::size_t{filled};
  return Error::fromErrno(errno, "getsockopt", optionText(fd, level, name));
}

int socketError(int fd) noexcept {
  int pending = 0;
  unsigned size = sizeof pending;
  if (calls().getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &size) != 0) return errno;
  return pending;
}

Result<void> setBlocking(int fd, Blocking mode) {
  int on = mode == Blocking::no ? 1 : 0;
  if (calls().ioctl(fd, FIONBIO, &on) == 0) return {};
  return Error::fromErrno(errno, "ioctl(FIONBIO)", fdText(fd));
}

Result<SocketAddress> sockName(int fd) { return nameBy(calls().getsockname, fd, "getsockname"); }

Result<SocketAddress> peerName(int fd) { return nameBy(calls().getpeername, fd, "getpeername"); }

Result<void> unlinkPath(const SocketAddress& address) {
  if (address.family() != AddressFamily::unixPath) return {};
  const std::string path(address.name());
  if (calls().unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return Error::fromErrno(errno, "unlink", path);
}

std::ptrdiff_t recvSocket(int fd, void* to, std::size_t size, int flags) noexcept {
  return unbroken([=]() noexcept { return calls().recv(fd, to, size, flags); });
}

std::ptrdiff_t sendSocket(int fd, const void* from, std::size_t size, int flags) noexcept {
  return unbroken([=]() noexcept { return calls().send(fd, from, size, flags | MSG_NOSIGNAL); });
}

std::ptrdiff_t recvMessage(int fd, msghdr& message, int flags) noexcept {
  return unbroken(
      [&]() noexcept { return calls().recvmsg(fd, &message, flags | MSG_CMSG_CLOEXEC); });
}

std::ptrdiff_t sendMessage(int fd, const msghdr& message, int flags) noexcept {
  return unbroken([&]() noexcept { return calls().sendmsg(fd, &message, flags | MSG_NOSIGNAL); });
}

std::ptrdiff_t readParts(int fd, const iovec* parts, int count) noexcept {
  return unbroken([=]() noexcept { return calls().readv(fd, parts, count); });
}

std::ptrdiff_t sendParts(int fd, const iovec* parts, int count, int flags) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);  // the kernel reads it only
  message.msg_iovlen = static_cast<std::size_t>(count);
  return sendMessage(fd, message, flags);
}

std::ptrdiff_t writeParts(int fd, const iovec* parts, int count) noexcept {
  return unbroken([=]() noexcept { return calls().writev(fd, parts, count); });
}

int recvMessages(int fd, mmsghdr* messages, unsigned count, int flags) noexcept {
  const int all = flags | MSG_CMSG_CLOEXEC | MSG_WAITFORONE;
  return unbroken([=]() noexcept { return calls().recvmmsg(fd, messages, count, all); });
}

int sendMessages(int fd, mmsghdr* messages, unsigned count, int flags) noexcept {
  const int all = flags | MSG_NOSIGNAL;
  return unbroken([=]() noexcept { return calls().sendmmsg(fd, messages, count, all); });
}

std::ptrdiff_t preadBytes(int in, void* to, std::size_t size, std::int64_t offset) noexcept {
  return unbroken([=]() noexcept { return calls().pread(in, to, size, offset); });
}

std::ptrdiff_t sendFile(int out, int in, std::int64_t& offset, std::size_t count) noexcept {
  return unbroken([&]() noexcept { return calls().sendfile(out, in, &offset, count); });
}

std::ptrdiff_t spliceBytes(int out, int in, std::size_t count) noexcept {
  constexpr unsigned kHow = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
  return unbroken(
      [=]() noexcept { return calls().splice(in, nullptr, out, nullptr, count, kHow); });
}

Result<FileStatus> fileStatus(int fd) {
  struct stat about {};
  if (calls().fstat(fd, &about) != 0) return Error::fromErrno(errno, "fstat", fdText(fd));
  return FileStatus{about.st_size, S_ISREG(about.st_mode), about.st_dev, about.st_ino};
}

}  // namespace millrace
