// SPDX-License-Identifier: Apache-2.0
// Socket calls, thin: they decide nothing. Sockets made here are nonblocking and closed on exec;
// nothing raises SIGPIPE, except where it is said.
//
// Calls that happen once per connection return a Result whose text names the address. Calls that
// happen once per message return a count or -errno and never allocate. Threads: any.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/sys/fd.h>
#include <millrace/sys/socket_address.h>

#include <cstddef>
#include <cstdint>
#include <utility>

struct iovec;
struct mmsghdr;
struct msghdr;

namespace millrace {

enum class SocketType { stream, datagram };
enum class ShutdownHow { read, write, both };
enum class Blocking { no, yes };

/// A descriptor and where it came from.
struct Accepted {
  Fd fd;
  SocketAddress peer;
};

/// A new socket for addresses of the family of `address`. Fails with EMFILE, ENFILE, EAFNOSUPPORT.
MILLRACE_API Result<Fd> openSocket(const SocketAddress& address, SocketType type);
/// Two Unix sockets connected with each other. Fails with EMFILE, ENFILE.
MILLRACE_API Result<std::pair<Fd, Fd>> openSocketPair(SocketType type);

/// Fails with EADDRINUSE, EADDRNOTAVAIL, EACCES; the text names the address.
MILLRACE_API Result<void> bindSocket(int fd, const SocketAddress& address);
MILLRACE_API Result<void> listenSocket(int fd, int backlog);
/// One connection. Fails with EAGAIN when there is none, EMFILE, ECONNABORTED…; not with EINTR.
MILLRACE_API Result<Accepted> acceptSocket(int fd);
/// As acceptSocket for those that count failures instead of reporting them: the new descriptor,
/// nonblocking and closed on exec, or -errno. `peer` may be null; the name of a Unix peer that has
/// one is allocated.
MILLRACE_API int acceptNow(int fd, SocketAddress* peer) noexcept;
/// True if connected at once, false if it is under way: wait for kWritable, then ask socketError.
/// Fails with ECONNREFUSED, ENETUNREACH…; the text names the address.
MILLRACE_API Result<bool> connectSocket(int fd, const SocketAddress& address);
/// Ends the tie of a datagram socket to one peer, so that it takes datagrams of all again. A port
/// that the kernel had picked (also at a bind to port 0) is given back: bind the socket anew to keep
/// it. One that was asked for stays.
MILLRACE_API Result<void> connectDissolve(int fd);
/// 0 or -errno; -ENOTCONN is common and harmless.
MILLRACE_API int shutdownSocket(int fd, ShutdownHow how) noexcept;

/// Options whose value is an int, with the kernel's numbers: `setOption(fd, SOL_SOCKET,
/// SO_REUSEADDR, 1)`. Fails with ENOPROTOOPT, EINVAL, EPERM.
MILLRACE_API Result<void> setOption(int fd, int level, int name, int value);
MILLRACE_API Result<int> getOption(int fd, int level, int name);
/// Options whose value is a struct. `size` is its size; `get` returns how many bytes were filled
/// in.
MILLRACE_API Result<void> setOptionBytes(int fd, int level, int name, const void* value,
                                         std::size_t size);
MILLRACE_API Result<std::size_t> getOptionBytes(int fd, int level, int name, void* value,
                                                std::size_t size);
/// Takes the pending error of the socket (SO_ERROR): 0 or the errno, positive.
MILLRACE_API int socketError(int fd) noexcept;
/// Switches O_NONBLOCK.
MILLRACE_API Result<void> setBlocking(int fd, Blocking mode);

MILLRACE_API Result<SocketAddress> sockName(int fd);
/// Fails with ENOTCONN.
MILLRACE_API Result<SocketAddress> peerName(int fd);
/// Removes the name of a Unix socket from the file system; a name that is not there is fine.
MILLRACE_API Result<void> unlinkPath(const SocketAddress& address);

// Once per message: bytes moved, 0 at the end of input, or -errno. EINTR is tried again, so that
// -EAGAIN is the one failure that is none.
MILLRACE_API std::ptrdiff_t recvSocket(int fd, void* to, std::size_t size, int flags = 0) noexcept;
MILLRACE_API std::ptrdiff_t sendSocket(int fd, const void* from, std::size_t size,
                                       int flags = 0) noexcept;
MILLRACE_API std::ptrdiff_t recvMessage(int fd, msghdr& message, int flags = 0) noexcept;
MILLRACE_API std::ptrdiff_t sendMessage(int fd, const msghdr& message, int flags = 0) noexcept;
MILLRACE_API std::ptrdiff_t readParts(int fd, const iovec* parts, int count) noexcept;
/// A gathering send for sockets (sendmsg underneath: writev cannot refuse SIGPIPE).
MILLRACE_API std::ptrdiff_t sendParts(int fd, const iovec* parts, int count,
                                      int flags = 0) noexcept;
/// A gathering write for descriptors that are no sockets; a broken pipe raises SIGPIPE there.
MILLRACE_API std::ptrdiff_t writeParts(int fd, const iovec* parts, int count) noexcept;

// Many messages at once: how many were moved, or -errno if that was none. Their `msg_len` says how
// many bytes each had. EINTR is tried again.
/// Takes what is there; on a blocking socket it waits for the first message only. An error behind
/// the first message is reported by the next call.
MILLRACE_API int recvMessages(int fd, mmsghdr* messages, unsigned count, int flags = 0) noexcept;
/// Fewer than `count` is the answer if a later one failed; send the rest again to learn why.
MILLRACE_API int sendMessages(int fd, mmsghdr* messages, unsigned count, int flags = 0) noexcept;

// From files and pipes, with the same answers as above. Places in files are off_t.
/// Bytes of `in` at `offset`; the file's own position stays. 0 at the end of the file.
MILLRACE_API std::ptrdiff_t preadBytes(int in, void* to, std::size_t size,
                                       std::int64_t offset) noexcept;
/// Moves bytes of the file `in` from `offset`, which grows by what was moved, to `out`. 0 if the
/// file ends there, also because it was made shorter; -EINVAL or -ENOSYS for files that cannot do
/// that: read and send them. A socket whose peer is gone gives -EPIPE and raises SIGPIPE, so block
/// that signal.
MILLRACE_API std::ptrdiff_t sendFile(int out, int in, std::int64_t& offset,
                                     std::size_t count) noexcept;
/// Moves bytes between two descriptors without copying them; one of them must be a pipe (-EINVAL).
/// It does not wait for pipes, whatever their mode. SIGPIPE as with sendFile.
MILLRACE_API std::ptrdiff_t spliceBytes(int out, int in, std::size_t count) noexcept;

/// What fstat says of a descriptor.
struct FileStatus {
  std::int64_t size = 0;   ///< in bytes; of regular files only a promise
  bool isRegular = false;  ///< a file that sendFile can be tried with
  std::uint64_t device = 0;
  std::uint64_t inode = 0;  ///< with the device: which file it is; 0: nothing is known of it
};
/// Fails with EBADF, EIO.
MILLRACE_API Result<FileStatus> fileStatus(int fd);

}  // namespace millrace
