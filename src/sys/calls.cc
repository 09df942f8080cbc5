// SPDX-License-Identifier: Apache-2.0
#include <millrace/sys/calls.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <type_traits>
#include <unistd.h>

namespace millrace {

namespace {

static_assert(std::is_same_v<socklen_t, unsigned>);
static_assert(std::is_same_v<ssize_t, std::ptrdiff_t>);

// Not in the headers of every libc; the number is the same on all architectures.
#if defined(SYS_epoll_pwait2)
constexpr long kEpollPwait2 = SYS_epoll_pwait2;
#else
constexpr long kEpollPwait2 = 441;
#endif

constexpr Calls kReal{
    .close = [](int fd) { return ::close(fd); },
    .open = [](const char* path, int flags, unsigned mode) { return ::open(path, flags, mode); },
    .unlink = [](const char* path) { return ::unlink(path); },
    .fcntl = [](int fd, int command, long argument) { return ::fcntl(fd, command, argument); },
    .pipe2 = [](int fds[2], int flags) { return ::pipe2(fds, flags); },
    .read = [](int fd, void* to, std::size_t size) { return ::read(fd, to, size); },
    .write = [](int fd, const void* from, std::size_t size) { return ::write(fd, from, size); },
    .readv = [](int fd, const iovec* parts, int count) { return ::readv(fd, parts, count); },
    .writev = [](int fd, const iovec* parts, int count) { return ::writev(fd, parts, count); },

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
    .recv = [](int fd, void* to, std::size_t size,
               int flags) { return ::recv(fd, to, size, flags); },
    .send = [](int fd, const void* from, std::size_t size,
               int flags) { return ::send(fd, from, size, flags); },
    .recvmsg = [](int fd, msghdr* message, int flags) { return ::recvmsg(fd, message, flags); },
    .sendmsg = [](int fd, const msghdr* message,
                  int flags) { return ::sendmsg(fd, message, flags); },
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
