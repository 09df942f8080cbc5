// SPDX-License-Identifier: Apache-2.0
#include "sys/timeout.h"

#include <millrace/sys/calls.h>
#include <millrace/sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <string>
#include <sys/epoll.h>

namespace millrace {

namespace {

static_assert(sizeof(EpollEvent) == sizeof(epoll_event));
static_assert(alignof(EpollEvent) == alignof(epoll_event));
static_assert(offsetof(EpollEvent, events) == offsetof(epoll_event, events));
static_assert(offsetof(EpollEvent, data) == offsetof(epoll_event, data));
static_assert(kReadable == EPOLLIN && kUrgent == EPOLLPRI && kWritable == EPOLLOUT);
static_assert(kFailed == EPOLLERR && kHangup == EPOLLHUP && kPeerClosed == EPOLLRDHUP);
static_assert(kExclusive == EPOLLEXCLUSIVE && kOneShot == EPOLLONESHOT);
static_assert(kEdge == static_cast<std::uint32_t>(EPOLLET));

std::atomic<bool> onlyMillis{false};  // epoll_pwait2 is not to be had

Result<void> control(int ep, int operation, int fd, epoll_event* event, const char* name) {
  if (calls().epoll_ctl(ep, operation, fd, event) == 0) return {};
  return Error::fromErrno(errno, name, "fd " + std::to_string(fd));
}

epoll_event eventOf(std::uint32_t events, std::uint64_t data) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return event;
}

int toMillis(std::int64_t nanos) noexcept {
  if (nanos < 0) return -1;
  const std::int64_t millis = nanos / 1'000'000 + (nanos % 1'000'000 != 0 ? 1 : 0);
  constexpr int kMost = std::numeric_limits<int>::max();
  return millis > kMost ? kMost : static_cast<int>(millis);
}

}  // namespace

Result<Fd> epollCreate() {
  Fd made(calls().epoll_create1(EPOLL_CLOEXEC));
  if (!made.valid()) return Error::fromErrno(errno, "epoll_create1");
  return made;
}

Result<void> epollAdd(int ep, int fd, std::uint32_t events, std::uint64_t data) {
  epoll_event event = eventOf(events, data);
  return control(ep, EPOLL_CTL_ADD, fd, &event, "epoll_ctl(add)");
}

Result<void> epollModify(int ep, int fd, std::uint32_t events, std::uint64_t data) {
  epoll_event event = eventOf(events, data);
  return control(ep, EPOLL_CTL_MOD, fd, &event, "epoll_ctl(modify)");
}

Result<void> epollRemove(int ep, int fd) {
  epoll_event unused{};
  return control(ep, EPOLL_CTL_DEL, fd, &unused, "epoll_ctl(remove)");
}

int epollWait(int ep, EpollEvent* out, int capacity, std::int64_t timeoutNanos) noexcept {
  auto* events = reinterpret_cast<epoll_event*>(out);
  if (!onlyMillis.load(std::memory_order_relaxed)) {
    timespec limit{};
    if (timeoutNanos >= 0) limit = toTimespec(timeoutNanos);
    const int found =
        calls().epoll_pwait2(ep, events, capacity, timeoutNanos < 0 ? nullptr : &limit);
    if (found >= 0) return found;
    // Old container sandboxes answer EPERM to calls that they have never heard of.
    if (errno != ENOSYS && errno != EPERM) return -errno;
    onlyMillis.store(true, std::memory_order_relaxed);
  }
  const int found = calls().epoll_wait(ep, events, capacity, toMillis(timeoutNanos));
  return found >= 0 ? found : -errno;
}

void forgetEpollFallbackForTest() noexcept { onlyMillis.store(false, std::memory_order_relaxed); }

}  // namespace millrace
