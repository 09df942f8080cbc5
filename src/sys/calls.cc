// SPDX-License-Identifier: Apache-2.0
#include <millrace/sys/calls.h>

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <type_traits>
#include <unistd.h>

namespace millrace {

namespace {

static_assert(std::is_same_v<socklen_t, unsigned>);
static_assert(std::is_same_v<ssize_t, std::ptrdiff_t>);
static_assert(std::is_same_v<off_t, std::int64_t> && std::is_same_v<loff_t, std::int64_t>);

// Not in the headers of every libc; the number is the same on all architectures.
#if defined(SYS_epoll_pwait2)
constexpr long kEpollPwait2 = SYS_epoll_pwait2;
#else
constexpr long kEpollPwait2 = 441;
#endif

// The same on all architectures, too.
constexpr long kUringSetup = 425;
constexpr long kUringEnter = 426;
constexpr long kUringRegister = 427;

// The two calls that every message makes, without libc's preparations for a thread that is cancelled
// in them (60 instructions each once there are threads). Sanitizers watch libc's own.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#if defined(__has_feature)
#if !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer)
#define MILLRACE_RAW_CALLS 1
#endif
#else
#define MILLRACE_RAW_CALLS 1
#endif
#endif

#ifdef MILLRACE_RAW_CALLS
inline std::ptrdiff_t transfer(long number, int fd, const void* bytes, std::size_t size,
                               int flags) noexcept {
  register long noAddress asm("r8") = 0;  // NOLINT: how the kernel is called
  register long noSize asm("r9") = 0;
  register long flagBits asm("r10") = flags;
  long result = 0;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(static_cast<long>(fd)), "S"(bytes), "d"(size), "r"(flagBits),
                 "r"(noAddress), "r"(noSize)
               : "rcx", "r11", "memory");
  if (__builtin_expect(result < 0, 0)) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}
std::ptrdiff_t receive(int fd, void* to, std::size_t size, int flags) {
  return transfer(SYS_recvfrom, fd, to, size, flags);
}
std::ptrdiff_t transmit(int fd, const void* from, std::size_t size, int flags) {
  return transfer(SYS_sendto, fd, from, size, flags);
}
#else
std::ptrdiff_t receive(int fd, void* to, std::size_t size, int flags) {
  return ::recv(fd, to, size, flags);
}
std::ptrdiff_t transmit(int fd, const void* from, std::size_t size, int flags) {
  return ::send(fd, from, size, flags);
}
#endif

constexpr Calls kReal{
    .close = [](int fd) { return ::close(fd); },
    .open = [](const char* path, int flags, unsigned mode) { return ::open(path, flags, mode); },
    .unlink = [](const char* path) { return ::unlink(path); },
    .fcntl = [](int fd, int command, long argument) { return ::fcntl(fd, command, argument); },
    .ioctl = [](int fd, unsigned long request,
                int* argument) { return ::ioctl(fd, request, argument); },
    .pipe2 = [](int fds[2], int flags) { return ::pipe2(fds, flags); },
    .read = [](int fd, void* to, std::size_t size) { return ::read(fd, to, size); },
    .write = [](int fd, const void* from, std::size_t size) { return ::write(fd, from, size); },
    .readv = [](int fd, const iovec* parts, int count) { return ::readv(fd, parts, count); },
    .writev = [](int fd, const iovec* parts, int count) { return ::writev(fd, parts, count); },
    .pread = [](int fd, void* to, std::size_t size,
                std::int64_t offset) { return ::pread(fd, to, size, offset); },
    .fstat = [](int fd, struct stat* about) { return ::fstat(fd, about); },
    .sendfile = [](int out, int in, std::int64_t* offset,
                   std::size_t count) { return ::sendfile(out, in, offset, count); },
    .splice = [](int in, std::int64_t* inOffset, int out, std::int64_t* outOffset,
                 std::size_t count,
                 unsigned flags) { return ::splice(in, inOffset, out, outOffset, count, flags); },

    .epoll_create1 = [](int flags) { return ::epoll_create1(flags); },
    .epoll_ctl = [](int ep, int operation, int fd,
                    epoll_event* event) { return ::epoll_ctl(ep, operation, fd, event); },
    .epoll_wait = [](int ep, epoll_event* out, int capacity,
                     int timeoutMillis) { return ::epoll_wait(ep, out, capacity, timeoutMillis); },
    .epoll_pwait2 =
        [](int ep, epoll_event* out, int capacity, const timespec* timeout) {
          return static_cast<int>(
              ::syscall(kEpollPwait2, ep, out, capacity, timeout, nullptr, std::size_t{0}));
        },
    .ppoll = [](pollfd* entries, std::size_t count,
                const timespec* timeout) { return ::ppoll(entries, count, timeout, nullptr); },
    .eventfd = [](unsigned initial, int flags) { return ::eventfd(initial, flags); },
    .signalfd = [](int fd, const sigset_t* mask, int flags) { return ::signalfd(fd, mask, flags); },
    .io_uring_setup =
        [](unsigned entries, io_uring_params* parameters) {
          return static_cast<int>(::syscall(kUringSetup, entries, parameters));
        },
    .io_uring_enter =
        [](int ring, unsigned submit, unsigned waitFor, unsigned flags, const void* argument,
           std::size_t size) {
          return static_cast<int>(
              ::syscall(kUringEnter, ring, submit, waitFor, flags, argument, size));
        },
    .io_uring_register =
        [](int ring, unsigned operation, void* argument, unsigned count) {
          return static_cast<int>(::syscall(kUringRegister, ring, operation, argument, count));
        },
    .futex =
        [](const std::uint32_t* word, int operation, std::uint32_t value, const timespec* timeout,
           std::uint32_t bits) {
          return ::syscall(SYS_futex, word, operation, value, timeout, nullptr, bits);
        },

    .pthread_create =
        [](pthread_t* out, const pthread_attr_t* attributes, void* (*entry)(void*),
           void* argument) { return ::pthread_create(out, attributes, entry, argument); },
    .pthread_sigmask = [](int how, const sigset_t* set,
                          sigset_t* old) { return ::pthread_sigmask(how, set, old); },
    .sigtimedwait = [](const sigset_t* set, siginfo_t* info,
                       const timespec* timeout) { return ::sigtimedwait(set, info, timeout); },
    .sigaction = [](int signal, const struct sigaction* action,
                    struct sigaction* old) { return ::sigaction(signal, action, old); },
    .rt_tgsigqueueinfo =
        [](int process, int thread, int signal, siginfo_t* info) {
          return static_cast<int>(::syscall(SYS_rt_tgsigqueueinfo, process, thread, signal, info));
        },
    .prctl = [](int operation,
                unsigned long argument) { return ::prctl(operation, argument, 0UL, 0UL, 0UL); },
    .setpriority =
        [](int which, unsigned who, int nice) {
          return ::setpriority(static_cast<decltype(PRIO_PROCESS)>(which), who, nice);
        },
    .sched_setaffinity =
        [](int thread, std::size_t size, const void* mask) {
          return ::sched_setaffinity(thread, size, static_cast<const cpu_set_t*>(mask));
        },
    .sched_getaffinity =
        [](int thread, std::size_t size, void* mask) {
          return ::sched_getaffinity(thread, size, static_cast<cpu_set_t*>(mask));
        },

    .socket = [](int domain, int type, int protocol) { return ::socket(domain, type, protocol); },
    .socketpair = [](int domain, int type, int protocol,
                     int fds[2]) { return ::socketpair(domain, type, protocol, fds); },
    .bind = [](int fd, const sockaddr* address,
               unsigned size) { return ::bind(fd, address, size); },
    .listen = [](int fd, int backlog) { return ::listen(fd, backlog); },
    .accept4 = [](int fd, sockaddr* address, unsigned* size,
                  int flags) { return ::accept4(fd, address, size, flags); },
    .connect = [](int fd, const sockaddr* address,
                  unsigned size) { return ::connect(fd, address, size); },
    .shutdown = [](int fd, int how) { return ::shutdown(fd, how); },
    .getsockopt = [](int fd, int level, int name, void* value,
                     unsigned* size) { return ::getsockopt(fd, level, name, value, size); },
    .setsockopt = [](int fd, int level, int name, const void* value,
                     unsigned size) { return ::setsockopt(fd, level, name, value, size); },
    .getsockname = [](int fd, sockaddr* address,
                      unsigned* size) { return ::getsockname(fd, address, size); },
    .getpeername = [](int fd, sockaddr* address,
                      unsigned* size) { return ::getpeername(fd, address, size); },
    .recv = &receive,
    .send = &transmit,
    .recvmsg = [](int fd, msghdr* message, int flags) { return ::recvmsg(fd, message, flags); },
    .sendmsg = [](int fd, const msghdr* message,
                  int flags) { return ::sendmsg(fd, message, flags); },
    .recvmmsg = [](int fd, mmsghdr* messages, unsigned count,
                   int flags) { return ::recvmmsg(fd, messages, count, flags, nullptr); },
    .sendmmsg = [](int fd, mmsghdr* messages, unsigned count,
                   int flags) { return ::sendmmsg(fd, messages, count, flags); },
};

}  // namespace

namespace internal {
constinit std::atomic<const Calls*> currentCalls{&kReal};
}  // namespace internal

const Calls& realCalls() noexcept { return kReal; }

const Calls* replaceCalls(const Calls* table) noexcept {
  return internal::currentCalls.exchange(table != nullptr ? table : &kReal,
                                         std::memory_order_acq_rel);
}

}  // namespace millrace
