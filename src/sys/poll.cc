// SPDX-License-Identifier: Apache-2.0
#include "sys/timeout.h"

#include <millrace/sys/calls.h>
#include <millrace/sys/poll.h>

#include <cerrno>
#include <poll.h>

namespace millrace {

namespace {

static_assert(sizeof(PollEntry) == sizeof(pollfd) && alignof(PollEntry) == alignof(pollfd));
static_assert(offsetof(PollEntry, events) == offsetof(pollfd, events));
static_assert(offsetof(PollEntry, revents) == offsetof(pollfd, revents));
static_assert(kReadable == POLLIN && kUrgent == POLLPRI && kWritable == POLLOUT);
static_assert(kFailed == POLLERR && kHangup == POLLHUP && kNotOpen == POLLNVAL);
static_assert(kPeerClosed == POLLRDHUP);

}  // namespace

int pollWait(PollEntry* entries, std::size_t count, std::int64_t timeoutNanos) noexcept {
  timespec limit{};
  if (timeoutNanos >= 0) limit = toTimespec(timeoutNanos);
  const int found =
      calls().ppoll(reinterpret_cast<pollfd*>(entries), count, timeoutNanos < 0 ? nullptr : &limit);
  return found >= 0 ? found : -errno;
}

}  // namespace millrace
