// SPDX-License-Identifier: Apache-2.0
// The table of system calls: what Millrace asks of the kernel goes through it, but for memory, the
// joining of threads and the log's own writes.
//
// Entries keep the names and the raw conventions of the kernel: they return -1 and set errno,
// except the pthread ones, which return the errno. Tests replace the table to count calls and to
// inject faults. Threads: any; a call that is under way finishes on the table it began with.
#pragma once

#include <millrace/base/export.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <pthread.h>

struct epoll_event;
struct io_uring_params;
struct iovec;
struct mmsghdr;
struct msghdr;
struct pollfd;
struct sockaddr;
struct stat;
struct timespec;

namespace millrace {

/// One function per system call. Lengths of addresses and options are socklen_t, spelled `unsigned`
/// so that no kernel header is needed here, and places in files off_t, spelled std::int64_t; CPU
/// masks are cpu_set_t.
struct Calls {
  // Descriptors.
  int (*close)(int fd);
  int (*open)(const char* path, int flags, unsigned mode);
  int (*unlink)(const char* path);
  int (*fcntl)(int fd, int command, long argument);
  int (*ioctl)(int fd, unsigned long request, int* argument);
  int (*pipe2)(int fds[2], int flags);
  std::ptrdiff_t (*read)(int fd, void* to, std::size_t size);
  std::ptrdiff_t (*write)(int fd, const void* from, std::size_t size);
  std::ptrdiff_t (*readv)(int fd, const iovec* parts, int count);
  std::ptrdiff_t (*writev)(int fd, const iovec* parts, int count);
  std::ptrdiff_t (*pread)(int fd, void* to, std::size_t size, std::int64_t offset);
  int (*fstat)(int fd, struct stat* about);
  std::ptrdiff_t (*sendfile)(int out, int in, std::int64_t* offset, std::size_t count);
  std::ptrdiff_t (*splice)(int in, std::int64_t* inOffset, int out, std::int64_t* outOffset,
                           std::size_t count, unsigned flags);

  // Waiting.
  int (*epoll_create1)(int flags);
  int (*epoll_ctl)(int ep, int operation, int fd, epoll_event* event);
  int (*epoll_wait)(int ep, epoll_event* out, int capacity, int timeoutMillis);
  int (*epoll_pwait2)(int ep, epoll_event* out, int capacity, const timespec* timeout);
  int (*ppoll)(pollfd* entries, std::size_t count, const timespec* timeout);
  int (*eventfd)(unsigned initial, int flags);
  int (*signalfd)(int fd, const sigset_t* mask, int flags);
  int (*io_uring_setup)(unsigned entries, io_uring_params* parameters);
  int (*io_uring_enter)(int ring, unsigned submit, unsigned waitFor, unsigned flags,
                        const void* argument, std::size_t size);
  int (*io_uring_register)(int ring, unsigned operation, void* argument, unsigned count);
  /// All operations that need no second word: wait, wake and their bitset forms.
  long (*futex)(const std::uint32_t* word, int operation, std::uint32_t value,
                const timespec* timeout, std::uint32_t bits);

  // Threads. The pthread entries return the errno instead of setting it.
  int (*pthread_create)(pthread_t* out, const pthread_attr_t* attributes, void* (*entry)(void*),
                        void* argument);
  int (*pthread_sigmask)(int how, const sigset_t* set, sigset_t* old);
  int (*sigtimedwait)(const sigset_t* set, siginfo_t* info, const timespec* timeout);
  int (*sigaction)(int signal, const struct sigaction* action, struct sigaction* old);
  int (*rt_tgsigqueueinfo)(int process, int thread, int signal, siginfo_t* info);
  int (*prctl)(int operation, unsigned long argument);
  int (*setpriority)(int which, unsigned who, int nice);
  int (*sched_setaffinity)(int thread, std::size_t size, const void* mask);
  int (*sched_getaffinity)(int thread, std::size_t size, void* mask);

  // Sockets.
  int (*socket)(int domain, int type, int protocol);
  int (*socketpair)(int domain, int type, int protocol, int fds[2]);
  int (*bind)(int fd, const sockaddr* address, unsigned size);
  int (*listen)(int fd, int backlog);
  int (*accept4)(int fd, sockaddr* address, unsigned* size, int flags);
  int (*connect)(int fd, const sockaddr* address, unsigned size);
  int (*shutdown)(int fd, int how);
  int (*getsockopt)(int fd, int level, int name, void* value, unsigned* size);
  int (*setsockopt)(int fd, int level, int name, const void* value, unsigned size);
  int (*getsockname)(int fd, sockaddr* address, unsigned* size);
  int (*getpeername)(int fd, sockaddr* address, unsigned* size);
  std::ptrdiff_t (*recv)(int fd, void* to, std::size_t size, int flags);
  std::ptrdiff_t (*send)(int fd, const void* from, std::size_t size, int flags);
  std::ptrdiff_t (*recvmsg)(int fd, msghdr* message, int flags);
  std::ptrdiff_t (*sendmsg)(int fd, const msghdr* message, int flags);
  /// Without the time limit of the kernel's call, which it looks at after messages only.
  int (*recvmmsg)(int fd, mmsghdr* messages, unsigned count, int flags);
  int (*sendmmsg)(int fd, mmsghdr* messages, unsigned count, int flags);
};

namespace internal {
MILLRACE_API extern std::atomic<const Calls*> currentCalls;
}  // namespace internal

/// The table in use. Any thread, any time (also before main).
inline const Calls& calls() noexcept {
  return *internal::currentCalls.load(std::memory_order_acquire);
}

/// The table that calls the kernel.
MILLRACE_API const Calls& realCalls() noexcept;

/// Puts `table` in use (null: the real one) and returns the one that was. For tests. The table must
/// live until every thread that may call through it has been joined or left the call.
MILLRACE_API const Calls* replaceCalls(const Calls* table) noexcept;

}  // namespace millrace
