// SPDX-License-Identifier: Apache-2.0
#include "loop/readiness/selector.h"

#include <millrace/sys/epoll.h>
#include <millrace/sys/events.h>

#include <vector>

namespace millrace {

namespace {

class EpollSelector final : public Selector {
 public:
  EpollSelector(Fd epoll, int initialEvents, bool grows)
      : epoll_(std::move(epoll)),
        initial_(static_cast<std::size_t>(initialEvents)),
        grows_(grows) {}

  Result<void> add(int fd, std::uint32_t events, Trigger trigger, std::uint64_t data) override {
    return epollAdd(epoll_.get(), fd, bits(events, trigger), data);
  }
  Result<void> modify(int fd, std::uint32_t events, Trigger trigger, std::uint64_t data) override {
    return epollModify(epoll_.get(), fd, bits(events, trigger), data);
  }
  Result<void> remove(int fd, std::uint64_t) noexcept override {
    return epollRemove(epoll_.get(), fd);
  }
  void removeClosed(int, std::uint64_t) noexcept override {}  // close(2) does it

  int select(std::int64_t timeoutNanos) noexcept override {
    // Grown before the wait that follows a full one; nothing is allocated before the first wait.
    if (events_.empty()) {
      events_.resize(initial_);
    } else if (grows_ && full_) {
      events_.resize(events_.size() * 2);
    }
    const int count =
        epollWait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), timeoutNanos);
    full_ = count == static_cast<int>(events_.size());
    return count;
  }
  const ReadyEvent* events() const noexcept override { return events_.data(); }
  bool isEdge() const noexcept override { return true; }

 private:
  static std::uint32_t bits(std::uint32_t events, Trigger trigger) noexcept {
    return trigger == Trigger::edge ? events | kEdge : events;
  }

  Fd epoll_;
  const std::size_t initial_;
  const bool grows_;
  bool full_ = false;
  std::vector<EpollEvent> events_;
};

}  // namespace

Result<std::unique_ptr<Selector>> openEpollSelector(int initialEvents, bool grows) {
  Result<Fd> epoll = epollCreate();
  if (!epoll) return epoll.error();
  return std::unique_ptr<Selector>(
      std::make_unique<EpollSelector>(std::move(*epoll), initialEvents, grows));
}

}  // namespace millrace
