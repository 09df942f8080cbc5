// SPDX-License-Identifier: Apache-2.0
#include "loop/readiness/selector.h"

#include <millrace/sys/events.h>
#include <millrace/sys/poll.h>

#include <cerrno>
#include <string>
#include <unordered_map>
#include <vector>

namespace millrace {

namespace {

class PollSelector final : public Selector {
 public:
  Result<void> add(int fd, std::uint32_t events, Trigger trigger, std::uint64_t data) override {
    if (trigger == Trigger::edge) {
      return Error(Errc::notSupported, "watch",
                   "descriptor " + std::to_string(fd) +
                       " (poll has no edge mode; use Trigger::level or io::epoll())");
    }
    if (!index_.emplace(fd, entries_.size()).second) return Error::fromErrno(EEXIST, "poll add");
    entries_.push_back({fd, static_cast<std::int16_t>(events), 0});
    data_.push_back(data);
    return {};
  }

  Result<void> modify(int fd, std::uint32_t events, Trigger, std::uint64_t data) override {
    const auto found = index_.find(fd);
    if (found == index_.end()) return Error::fromErrno(ENOENT, "poll modify");
    entries_[found->second].events = static_cast<std::int16_t>(events);
    data_[found->second] = data;
    return {};
  }

  Result<void> remove(int fd, std::uint64_t) noexcept override {
    const auto found = index_.find(fd);
    if (found == index_.end()) return Error::fromErrno(ENOENT, "poll remove");
    const std::size_t at = found->second;
    index_.erase(found);
    entries_[at] = entries_.back();
    data_[at] = data_.back();
    entries_.pop_back();
    data_.pop_back();
    if (at < entries_.size()) index_[entries_[at].fd] = at;
    return {};
  }

  void removeClosed(int fd, std::uint64_t data) noexcept override {
    static_cast<void>(remove(fd, data));
  }

  int select(std::int64_t timeoutNanos) noexcept override {
    ready_.clear();
    const int count = pollWait(entries_.data(), entries_.size(), timeoutNanos);
    if (count <= 0) return count;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const auto events = static_cast<std::uint16_t>(entries_[i].revents);
      if (events != 0) ready_.push_back({events, data_[i]});
    }
    return static_cast<int>(ready_.size());
  }
  const ReadyEvent* events() const noexcept override { return ready_.data(); }
  bool isEdge() const noexcept override { return false; }

 private:
  std::vector<PollEntry> entries_;
  std::vector<std::uint64_t> data_;  // parallel to entries_
  std::unordered_map<int, std::size_t> index_;
  std::vector<ReadyEvent> ready_;
};

}  // namespace

Result<std::unique_ptr<Selector>> openPollSelector() {
  return std::unique_ptr<Selector>(std::make_unique<PollSelector>());
}

}  // namespace millrace
