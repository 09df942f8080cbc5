// SPDX-License-Identifier: Apache-2.0
#include <millrace/sys/socket.h>
#include <millrace/sys/unix_socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

namespace millrace {

namespace {

// A socket with SO_PASSCRED gets the sender's credentials in front of the descriptors.
constexpr std::size_t kCredentials = CMSG_SPACE(sizeof(ucred));

template <std::size_t Size>
struct alignas(cmsghdr) Control {
  std::array<std::byte, Size> bytes;
};

bool hasBytes(const iovec* parts, int count) noexcept {
  return std::any_of(parts, parts + count, [](const iovec& part) { return part.iov_len > 0; });
}

// Owns the descriptors of one control message: puts them into the room, closes those beyond it.
void takeFds(const cmsghdr& from, std::span<Fd> room, FdsReceived& result) noexcept {
  const std::size_t count = (from.cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(&from) + i * sizeof number, sizeof number);
    Fd fd(number);
    if (result.fds < room.size()) {
      room[result.fds++] = std::move(fd);
    } else {
      result.truncated = true;
    }
  }
}

}  // namespace

std::ptrdiff_t sendWithFds(int fd, const iovec* parts, int count,
                           std::span<const int> fds) noexcept {
  if (fds.empty()) return sendParts(fd, parts, count);
  if (fds.size() > kMaxFdsPerMessage || !hasBytes(parts, count)) return -EINVAL;
  Control<CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);  // the kernel reads it only
  message.msg_iovlen = static_cast<std::size_t>(count);
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  return sendMessage(fd, message);
}

FdsReceived recvWithFds(int fd, const iovec* parts, int count, std::span<Fd> room) noexcept {
  Control<kCredentials + CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))> control;
  const std::size_t most = std::min(room.size(), kMaxFdsPerMessage);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);  // the kernel reads it only
  message.msg_iovlen = static_cast<std::size_t>(count);
  message.msg_control = control.bytes.data();
  // No more than fits the room, so that a hostile sender does not fill our table of descriptors.
  // Without credentials in front a few more arrive than the room has, which takeFds closes.
  message.msg_controllen = kCredentials + CMSG_LEN(most * sizeof(int));
  FdsReceived result;
  result.bytes = recvMessage(fd, message);
  if (result.bytes < 0) return result;
  result.truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) takeFds(*at, room, result);
  }
  return result;
}

Result<PeerCredentials> peerCredentials(int fd) {
  constexpr auto kNobody = static_cast<uid_t>(-1);  // what the kernel says of sockets without peer
  ucred peer{};
  const auto got = getOptionBytes(fd, SOL_SOCKET, SO_PEERCRED, &peer, sizeof peer);
  if (!got.ok()) return got.error();
  if (peer.uid == kNobody) {
    return Error::fromErrno(ENOTCONN, "getsockopt", "fd " + std::to_string(fd) + ", SO_PEERCRED");
  }
  return PeerCredentials{peer.pid, peer.uid, peer.gid};
}

}  // namespace millrace
