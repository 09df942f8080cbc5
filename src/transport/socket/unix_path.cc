// SPDX-License-Identifier: Apache-2.0
#include "transport/socket/unix_path.h"

#include <millrace/sys/calls.h>

#include <cerrno>
#include <fcntl.h>
#include <string>

namespace millrace {

namespace {

/// What is there; nothing if that cannot be seen.
FileStatus lookAt(const SocketAddress& address) {
  const std::string path(address.name());
  const Fd there(calls().open(path.c_str(), O_PATH | O_CLOEXEC, 0));
  if (!there.valid()) return {};
  const Result<FileStatus> status = fileStatus(there.get());
  return status ? *status : FileStatus();
}

/// Connects to find out. Whoever listens sees a connection that ends at once.
const char* adviceFor(const SocketAddress& address, SocketType type) {
  const Result<Fd> probe = openSocket(address, type);
  if (!probe) return nullptr;
  const Result<bool> answer = connectSocket(probe->get(), address);
  if (answer) return "somebody is listening there; choose another path, or end that process";
  if (answer.error().errnoValue() != ECONNREFUSED) return nullptr;
  if (lookAt(address).isRegular) return "a file is there that is no socket";
  return "nobody is listening there: a process that is gone left it; remove the path, then bind "
         "again";
}

}  // namespace

Result<void> bindOrExplain(int fd, const SocketAddress& address, SocketType type) {
  Result<void> bound = bindSocket(fd, address);
  if (bound || address.family() != AddressFamily::unixPath) return bound;
  if (bound.error().errnoValue() != EADDRINUSE) return bound;
  const char* advice = adviceFor(address, type);
  if (advice == nullptr) return bound;
  return Error::fromErrno(EADDRINUSE, "bind", address.toString() + " (" + advice + ")");
}

void BoundPath::took(const SocketAddress& address) {
  if (address.family() != AddressFamily::unixPath) return;
  address_ = address;
  mine_ = lookAt(address);
}

void BoundPath::release() noexcept {
  if (!address_) return;
  const FileStatus there = lookAt(address_);
  const bool isMine =
      mine_.inode == 0 || (there.inode == mine_.inode && there.device == mine_.device);
  if (isMine) static_cast<void>(unlinkPath(address_));
  address_ = SocketAddress();
}

}  // namespace millrace
