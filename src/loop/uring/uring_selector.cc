// SPDX-License-Identifier: Apache-2.0
#include "loop/uring/uring_selector.h"

#include "loop/event_loop_parts.h"

#include <millrace/base/check.h>
#include <millrace/base/clock.h>
#include <millrace/base/log.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/events.h>

#include <cerrno>
#include <string>
#include <sys/stat.h>
#include <utility>

namespace millrace {

std::uint64_t UringSelector::nameOf(Kind kind, std::uint32_t sequence,
                                    std::uint32_t place) noexcept {
  return (static_cast<std::uint64_t>(kind) << 60) |
         (static_cast<std::uint64_t>(sequence & kSequenceMask) << 32) | place;
}

// --- life ---

UringSelector::Owner UringSelector::thisOwner() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t mine = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return {mine, currentForkGeneration()};
}

Result<void> UringSelector::attach() {
  Result<Uring> opened = Uring::open(sizes_);
  if (!opened) return opened.error();
  ring_ = std::move(*opened);
  owner_ = thisOwner();
  for (std::uint32_t place = 0; place < polls_.size(); ++place) {
    if (polls_[place].fd >= 0) arm(place);
  }
  return {};
}

// The thread that made the ring may have gone already; then the kernel refuses every call, and closing
// the ring ends what is in flight.
void UringSelector::detach() noexcept {
  if (!ring_.isOpen()) return;
  if (isUsable()) {
    io_uring_sqe& all = entry();
    all.opcode = IORING_OP_ASYNC_CANCEL;
    all.fd = -1;
    all.cancel_flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL;
  }
  for (int look = 0; look < kLastLooks && isUsable(); ++look) {
    const int result = ring_.enter(inFlight_ == 0 ? 0 : kLastLookNanos);
    if (result != 0 && result != -EINTR && result != -EBUSY && result != -EAGAIN) break;
    collect(later_);
    for (; delivered_ < done_.size(); ++delivered_) endUntold(done_[delivered_]);
    if (inFlight_ == 0 && ring_.queued() == 0) break;
  }
  // Connections that the owner's thread has left behind, but for one that a full queue had no room for,
  // which only that thread could get. A forked child shares the memory of the ring.
  if (!isUsable() && owner_.fork == thisOwner().fork) collect(later_);
  for (; delivered_ < done_.size(); ++delivered_) dropAccepted(done_[delivered_]);
  ring_.close();
  buffers_.close();
  done_.clear();
  delivered_ = 0;
  doneBefore_ = 0;
  inFlight_ = 0;
  endingPolls_ = 0;
  refused_.clear();
  for (Slot& slot : slots_) {
    slot.inFlight = 0;
    slot.repeating = false;
    slot.hasEnded = false;
  }
  dropSends();
  for (Poll& poll : polls_) poll.armed = false;
}

// Of an operation whose client hears nothing any more.
void UringSelector::endUntold(const Done& done) noexcept {
  if (done.what == 0) return;
  if ((done.flags & IORING_CQE_F_MORE) == 0 && inFlight_ != 0) --inFlight_;
  dropAccepted(done);
  if (kindOf(done) != Kind::sendInPlace) return;
  Send& send = sendOf(done);
  if ((done.flags & IORING_CQE_F_NOTIF) != 0) {
    --send.notices;
    return;
  }
  send.isTold = true;
  if ((done.flags & IORING_CQE_F_MORE) != 0) ++send.notices;
}

UringSelector::~UringSelector() {
  detach();
  while (Send* send = spareSends_) {
    spareSends_ = send->next;
    delete send;
  }
}

// --- the ring ---

// The ring takes any number: when it is full, the kernel gets what there is.
io_uring_sqe& UringSelector::entry() {
  if (!isUsable()) return scratch_ = {};
  for (int attempt = 0;; ++attempt) {
    if (io_uring_sqe* free = ring_.next()) return *free;
    const int result = ring_.submit();
    if (result == 0) continue;
    // It may want to get rid of completions first.
    collect(later_);
    static_cast<void>(ring_.enter(0));
    MR_CHECK(attempt < kLastLooks, "the kernel takes no more operations");
  }
}

// Everything that was begun reaches the kernel now, and what it was told to end is let go.
void UringSelector::flush() noexcept {
  if (buffers_.isOpen()) buffers_.publish();
  if (!isUsable()) return;
  // The kernel does a limited share of its work per call.
  for (int attempt = 0; attempt < kLastLooks; ++attempt) {
    const int result = ring_.enter(0);
    if (result < 0 && result != -EINTR && result != -EBUSY && result != -EAGAIN) return;
    if (result == 0 && ring_.queued() == 0 && !ring_.wantsCall()) return;
    collect(later_);
  }
}

// The same, and what has ended by then is in done_: it may be behind others for which there was no room.
void UringSelector::flushAndCollect() {
  for (int look = 0; look < kLastLooks; ++look) {
    flush();
    collect(later_);
    if (!ring_.hasCompletions() && !ring_.wantsCall()) break;
  }
}

// Behind the end of a send without a copy a notice about its memory follows; others end with F_MORE gone.
inline void UringSelector::noteEnd(const Done& done) noexcept {
  if (kindOf(done) >= Kind::send) {
    if ((done.flags & IORING_CQE_F_NOTIF) == 0) sendOf(done).doneAt = doneBefore_ + done_.size();
  } else if (__builtin_expect((done.flags & IORING_CQE_F_MORE) == 0, 0)) {
    slots_[static_cast<std::uint32_t>(done.what)].hasEnded = true;
  }
}

// Takes the completions over, so that the kernel has room for others.
void UringSelector::collect(std::vector<ReadyEvent>& found) {
  ring_.drain([&](const io_uring_cqe& each) {
    const auto kind = static_cast<Kind>(each.user_data >> 60);
    if (__builtin_expect(kind > Kind::poll, 1)) {
      done_.push_back({each.user_data, each.res, each.flags});
      noteEnd(done_.back());
    } else if (kind == Kind::poll) {
      polled(each, found);
    } else if (each.user_data != 0) {
      refused_.push_back(each.user_data);
    }
  });
}

int UringSelector::select(std::int64_t timeoutNanos) noexcept {
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(delivered_));
  doneBefore_ += delivered_;
  delivered_ = 0;
  for (const std::uint32_t place : std::exchange(toArm_, {})) {
    polls_[place].listed = false;
    if (polls_[place].fd >= 0 && !polls_[place].armed) arm(place);
  }
  toArm_.swap(toArmLater_);
  if (__builtin_expect(!refused_.empty(), 0)) cancelAgain();
  ready_.clear();
  ready_.swap(later_);
  if (buffers_.isOpen()) buffers_.publish();
  if (!ready_.empty() || completions() != 0) timeoutNanos = 0;
  const std::int64_t until =
      timeoutNanos > 0 ? saturatingAdd(Clock::real().nanos(), timeoutNanos) : 0;
  for (;;) {
    if (ring_.hasCompletions()) timeoutNanos = 0;
    if (timeoutNanos == 0 && ring_.queued() == 0 && !ring_.wantsCall()) {
      collect(ready_);
      return static_cast<int>(ready_.size());
    }
    const int result = ring_.enter(timeoutNanos);
    collect(ready_);
    if (!ready_.empty() || completions() != 0) return static_cast<int>(ready_.size());
    if (result != 0 && result != -EBUSY && result != -EAGAIN) return result;
    // A poll or a cancel failed: it must not be waited without, and the caller gets a turn, however often
    // it fails.
    if (!toArm_.empty() || !refused_.empty()) return 0;
    // Only news of what has ended: not what the caller waits for.
    if (timeoutNanos == 0) return 0;
    if (timeoutNanos < 0) continue;
    timeoutNanos = until - Clock::real().nanos();
    if (timeoutNanos <= 0) return 0;
  }
}

// --- polls ---

UringSelector::Poll* UringSelector::pollOf(int fd) noexcept {
  const auto index = static_cast<std::size_t>(fd);
  if (fd < 0 || index >= pollByFd_.size() || pollByFd_[index] < 0) return nullptr;
  return &polls_[static_cast<std::size_t>(pollByFd_[index])];
}

void UringSelector::arm(std::uint32_t place) {
  if (!isUsable()) return;
  Poll& poll = polls_[place];
  io_uring_sqe& operation = entry();
  operation.opcode = IORING_OP_POLL_ADD;
  operation.fd = poll.fd;
  operation.poll32_events = poll.events;
  operation.len = poll.trigger == Trigger::edge ? IORING_POLL_ADD_MULTI : 0;
  operation.user_data = nameOf(Kind::poll, poll.sequence, place);
  poll.armed = true;
  ++inFlight_;
}

// Its completions are nobody's from now on.
void UringSelector::disarm(Poll& poll) noexcept {
  if (poll.armed && isUsable()) {
    io_uring_sqe& operation = entry();
    // Not a removal of the poll: that one fails where the poll is just being woken.
    operation.opcode = IORING_OP_ASYNC_CANCEL;
    operation.fd = -1;
    operation.addr = nameOf(Kind::poll, poll.sequence, polls_.placeOf(poll));
    operation.flags = IOSQE_CQE_SKIP_SUCCESS;
    ++endingPolls_;
  }
  poll.armed = false;
  ++poll.sequence;
}

Result<void> UringSelector::add(int fd, std::uint32_t events, Trigger trigger, std::uint64_t data) {
  // The ring would say later that it is not open, and to somebody else.
  struct stat about {};
  if (calls().fstat(fd, &about) < 0) {
    return Error::fromErrno(errno, "fstat", "fd " + std::to_string(fd));
  }
  // As epoll does: such a poll would fail, and be begun anew, for ever.
  if (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) {
    return Error::fromErrno(EPERM, "watch", "fd " + std::to_string(fd));
  }
  const std::uint64_t file = (std::uint64_t{about.st_dev} << 48) ^ std::uint64_t{about.st_ino};
  if (Poll* before = pollOf(fd)) {
    // Descriptors without a file (eventfd, timerfd) all look alike.
    const bool isSame = before->file == file && (about.st_mode & S_IFMT) != 0;
    if (isSame) return Error::fromErrno(EEXIST, "watch", "fd " + std::to_string(fd));
    // Closed without a word, and the number is another file's now; or the same one again. Whoever had it hears that.
    later_.push_back({kNotOpen, before->data});
    forget(*before);
  }
  if (pollByFd_.size() <= static_cast<std::size_t>(fd)) {
    pollByFd_.resize(static_cast<std::size_t>(fd) + 1, -1);
  }
  const std::uint32_t place = polls_.take();
  Poll& poll = polls_[place];
  poll.fd = fd;
  poll.events = events;
  poll.trigger = trigger;
  poll.data = data;
  poll.file = file;
  pollByFd_[static_cast<std::size_t>(fd)] = static_cast<std::int32_t>(place);
  arm(place);
  return {};
}

Result<void> UringSelector::modify(int fd, std::uint32_t events, Trigger trigger,
                                   std::uint64_t data) {
  Poll* poll = pollOf(fd);
  if (poll == nullptr) return Error::fromErrno(ENOENT, "modify", "fd " + std::to_string(fd));
  disarm(*poll);
  poll->events = events;
  poll->trigger = trigger;
  poll->data = data;
  arm(polls_.placeOf(*poll));
  return {};
}

Result<void> UringSelector::remove(int fd, std::uint64_t data) noexcept {
  Poll* poll = pollOf(fd);
  if (poll == nullptr || poll->data != data)
    return Error::fromErrno(ENOENT, "remove", "fd " + std::to_string(fd));
  forget(*poll);
  return {};
}

void UringSelector::forget(Poll& poll) noexcept {
  disarm(poll);
  pollByFd_[static_cast<std::size_t>(poll.fd)] = -1;
  poll.fd = -1;
  polls_.give(polls_.placeOf(poll));
}

// A poll keeps the file open, and so would a port stay taken: it has to end before close(2). The kernel has
// marked it when the call is over, but if another processor was just waking it, that one ends it.
void UringSelector::removeClosed(int fd, std::uint64_t data) noexcept {
  static_cast<void>(remove(fd, data));
  letGo();
}

void UringSelector::letGo() noexcept {
  if (endingPolls_ == 0 || !isUsable()) return;
  const std::int64_t until = saturatingAdd(Clock::real().nanos(), kPatienceNanos);
  for (;;) {
    flushAndCollect();
    if (endingPolls_ == 0) return;
    if (Clock::real().nanos() >= until) break;
    static_cast<void>(ring_.enter(kLastLookNanos));
  }
  log(LogLevel::warn, "loop", "the kernel does not end a poll: a file stays open until it has");
}

void UringSelector::polled(const io_uring_cqe& completion, std::vector<ReadyEvent>& found) {
  const auto place = static_cast<std::uint32_t>(completion.user_data);
  const auto sequence = static_cast<std::uint32_t>(completion.user_data >> 32) & kSequenceMask;
  const bool last = (completion.flags & IORING_CQE_F_MORE) == 0;
  if (last) --inFlight_;
  Poll& poll = polls_[place];
  if (poll.fd < 0 || (poll.sequence & kSequenceMask) != sequence) {
    if (last) --endingPolls_;
    return;
  }
  if (last) {
    poll.armed = false;
    // Not before its event is told, which the next turn does: it would come a second time.
    const bool isForLater = &found == &later_ && completion.res >= 0;
    if (!std::exchange(poll.listed, true)) (isForLater ? toArmLater_ : toArm_).push_back(place);
  }
  if (completion.res < 0 && completion.res != -EBADF) return;  // it is begun anew
  const auto bits = static_cast<std::uint32_t>(completion.res);
  found.push_back({completion.res < 0 ? kNotOpen : bits, poll.data});
}

Result<std::unique_ptr<Selector>> openUringSelector(int entries, int completions) {
  return std::unique_ptr<Selector>(std::make_unique<UringSelector>(
      static_cast<unsigned>(entries), static_cast<unsigned>(completions)));
}

}  // namespace millrace
