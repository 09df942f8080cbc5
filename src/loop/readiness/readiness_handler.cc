// SPDX-License-Identifier: Apache-2.0
#include "loop/readiness/readiness_handler.h"

#include <millrace/base/check.h>
#include <millrace/base/log.h>
#include <millrace/sys/eventfd.h>
#include <millrace/sys/events.h>
#include <millrace/sys/poll.h>

#include <cerrno>
#include <string>

namespace millrace {

namespace {

/// The number of the wakeup descriptor; slots begin at 1.
constexpr std::uint64_t kWakeupId = 0;
/// Longer waits are made in two steps: the kernel adds 0.1 % to long ones.
constexpr std::int64_t kExactNanos = 20'000'000;

constexpr std::uint64_t idOf(std::uint32_t slot, std::uint32_t generation) noexcept {
  return (std::uint64_t{generation} << 32) | (slot + 1);
}
constexpr std::uint32_t slotOf(std::uint64_t id) noexcept {
  return static_cast<std::uint32_t>(id) - 1;
}
constexpr std::uint32_t generationOf(std::uint64_t id) noexcept {
  return static_cast<std::uint32_t>(id >> 32);
}

std::string bitsToText(std::uint32_t events) {
  std::string text;
  const auto add = [&](std::uint32_t bit, const char* name) {
    if ((events & bit) == 0) return;
    if (!text.empty()) text += '|';
    text += name;
  };
  add(kReadable, "readable");
  add(kWritable, "writable");
  add(kUrgent, "urgent");
  add(kPeerClosed, "peer closed");
  return text.empty() ? "paused" : text;
}

Result<void> addWakeup(Selector& selector, const Fd& wakeupFd) {
  return selector.add(wakeupFd.get(), kReadable, selector.isEdge() ? Trigger::edge : Trigger::level,
                      kWakeupId);
}

}  // namespace

Result<std::unique_ptr<IoHandler>> ReadinessHandler::make(const IoType& type,
                                                          SelectorFactory open) {
  Result<std::unique_ptr<Selector>> selector = open();
  if (!selector) return selector.error();
  Result<Fd> wakeupFd = eventFd();
  if (!wakeupFd) return wakeupFd.error();
  if (Result<void> added = addWakeup(**selector, *wakeupFd); !added) return added.error();
  return std::unique_ptr<IoHandler>(
      new ReadinessHandler(type, std::move(open), std::move(*selector), std::move(*wakeupFd)));
}

ReadinessHandler::ReadinessHandler(const IoType& type, SelectorFactory open,
                                   std::unique_ptr<Selector> selector, Fd wakeupFd)
    : type_(type),
      open_(std::move(open)),
      selector_(std::move(selector)),
      wakeupFd_(std::move(wakeupFd)) {}

Result<void> ReadinessHandler::attach(IoLoop& loop) {
  loop_ = &loop;
  return {};
}

void ReadinessHandler::detach() noexcept { loop_ = nullptr; }

// --- waiting ---

Result<WaitOutcome> ReadinessHandler::wait(Deadline until) {
  found_ = 0;
  const bool looksOnly = until == Deadline::past();
  // Nothing is watched: there is nothing to look for but wakeups, and those only end sleeps.
  if (looksOnly && registrations_.load(std::memory_order_relaxed) == 0) return WaitOutcome{};
  for (;;) {
    std::int64_t timeout = 0;
    bool lastStep = true;
    if (!looksOnly) {
      timeout = until.isNever() ? -1 : until.left(Clock::real().nanos()).count();
      if (timeout > kExactNanos) {
        timeout -= timeout / 256;
        lastStep = false;
      }
    }
    const int count = selector_->select(timeout);
    if (count == -EINTR) continue;
    if (count < 0) return Error::fromErrno(-count, "select");
    if (count == 0 && !lastStep && !until.isDue(Clock::real().nanos())) {
      // Early only if the first step's time is over; else the selector returned for no reason.
      if (until.left(Clock::real().nanos()).count() <= timeout / 128 + kExactNanos) continue;
    }
    WaitOutcome outcome;
    found_ = count;
    outcome.events = count;
    for (int i = 0; i < count; ++i) {
      if (selector_->event(static_cast<std::size_t>(i)).data != kWakeupId) continue;
      outcome.woken = true;
      --outcome.events;
      break;
    }
    if (outcome.woken && !selector_->isEdge()) drainWakeups();
    return outcome;
  }
}

void ReadinessHandler::wakeup() noexcept {
  // EAGAIN: the counter is full, so the descriptor is readable, which is all we want.
  const int result = eventWrite(wakeupFd_.get(), 1);
  MR_CHECK(result == 0 || result == -EAGAIN,
           "the wakeup descriptor of a loop is gone: was it closed by somebody else?");
}

void ReadinessHandler::drainWakeups() noexcept {
  if (Result<std::uint64_t> got = eventRead(wakeupFd_.get())) arrived_ += *got;
}

void ReadinessHandler::awaitWakeups(std::uint64_t paid) noexcept {
  drainWakeups();
  while (arrived_ < paid) {
    PollEntry entry{wakeupFd_.get(), static_cast<std::int16_t>(kReadable), 0};
    pollWait(&entry, 1, -1);
    drainWakeups();
  }
  selector_.reset();
  wakeupFd_.reset();
}

// --- dispatching ---

int ReadinessHandler::dispatch() {
  int delivered = 0;
  const int count = std::exchange(found_, 0);
  rebuilt_ = false;
  for (int i = 0; i < count && selector_ != nullptr; ++i) {
    const ReadyEvent event = selector_->event(static_cast<std::size_t>(i));
    if (event.data == kWakeupId) continue;
    if (!find(event.data)) {
      const std::uint32_t slot = slotOf(event.data);
      staleFd_ = slot < removedBadly_.size() ? removedBadly_[slot] : -1;
      continue;
    }
    ++delivered;
    deliver(event);
    if (rebuilt_) {  // by the callback: what is left of the old events will be found again
      rebuilt_ = false;
      break;
    }
  }
  return delivered;
}

void ReadinessHandler::deliver(const ReadyEvent& event) {
  const std::shared_ptr<Entry> entry = find(event.data);
  WatchRequest& request = entry->request;
  if ((event.ready & kNotOpen) != 0) {
    endWatch(event.data, Error::fromErrno(EBADF, "watch",
                                          "descriptor " + std::to_string(request.fd) +
                                              " (closed without unwatch())"));
    return;
  }
  // An event without a bit would come again and again: let the callback look.
  const std::uint32_t ready = event.ready == 0 ? kReadable : event.ready;
  const std::type_info& what = request.callback.target_type();
  loop_->callbackBegins(what);
  try {
    request.callback(request.fd, ready);
  } catch (...) {
    loop_->callbackFailed(what);
    endWatch(event.data, Error::fromCurrentException("watch callback"));
  }
}

int ReadinessHandler::culprit() noexcept { return std::exchange(staleFd_, -1); }

// --- the table ---

std::shared_ptr<ReadinessHandler::Entry> ReadinessHandler::find(std::uint64_t id) const noexcept {
  const std::uint32_t slot = slotOf(id);
  if (slot >= slots_.size() || slots_[slot].generation != generationOf(id)) return nullptr;
  return slots_[slot].entry;
}

Result<std::uint64_t> ReadinessHandler::watch(WatchRequest request) {
  std::uint32_t slot = 0;
  if (freeSlots_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = freeSlots_.back();
    freeSlots_.pop_back();
  }
  const std::uint64_t id = idOf(slot, slots_[slot].generation);
  if (Result<void> added = selector_->add(request.fd, request.events, request.trigger, id);
      !added) {
    freeSlots_.push_back(slot);
    return added.error();
  }
  slots_[slot].entry = std::make_shared<Entry>(Entry{std::move(request), slots_[slot].generation});
  registrations_.fetch_add(1, std::memory_order_relaxed);
  return id;
}

Result<bool> ReadinessHandler::modify(std::uint64_t id, std::uint32_t events) {
  const std::shared_ptr<Entry> entry = find(id);
  if (!entry) return false;
  Result<void> changed = selector_->modify(entry->request.fd, events, entry->request.trigger, id);
  if (!changed) return changed.error();
  entry->request.events = events;
  return true;
}

bool ReadinessHandler::unwatch(std::uint64_t id) noexcept {
  const std::shared_ptr<Entry> entry = find(id);
  if (!entry) return false;
  const std::uint32_t slot = slotOf(id);
  if (Result<void> removed = selector_->remove(entry->request.fd); !removed) {
    // Closed before unwatch(): if a copy of the descriptor lives on elsewhere, the kernel goes on
    // reporting it. The generation keeps the events from anybody; if they make the loop spin, the
    // selector is made anew and this number is named.
    if (removedBadly_.size() <= slot) removedBadly_.resize(slot + 1, -1);
    removedBadly_[slot] = entry->request.fd;
    log(LogLevel::debug, "loop", "unwatch of descriptor ", entry->request.fd, ": ",
        removed.error().message());
  }
  release(id);
  return true;
}

void ReadinessHandler::release(std::uint64_t id) noexcept {
  Slot& slot = slots_[slotOf(id)];
  slot.entry.reset();
  ++slot.generation;
  freeSlots_.push_back(slotOf(id));
  registrations_.fetch_sub(1, std::memory_order_relaxed);
}

void ReadinessHandler::endWatch(std::uint64_t id, const Error& why) noexcept {
  const std::shared_ptr<Entry> entry = find(id);
  if (!entry) return;
  unwatch(id);
  if (!entry->request.onEnd) return;
  try {
    entry->request.onEnd(why);
  } catch (...) {
    if (loop_ != nullptr) loop_->callbackFailed(entry->request.onEnd.target_type());
  }
}

void ReadinessHandler::closeAll(CloseMode) {
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].entry) {
      endWatch(idOf(slot, slots_[slot].generation),
               Error(Errc::closed, "watch", "the loop shuts down"));
    }
  }
}

void ReadinessHandler::describe(std::vector<std::string>& lines) const {
  for (const Slot& slot : slots_) {
    if (!slot.entry) continue;
    const WatchRequest& request = slot.entry->request;
    lines.push_back("watch of descriptor " + std::to_string(request.fd) + ": " +
                    bitsToText(request.events) +
                    (request.trigger == Trigger::edge ? ", edge" : ", level"));
  }
}

// --- rebuilding ---

Result<void> ReadinessHandler::rebuild() {
  Result<std::unique_ptr<Selector>> fresh = open_();
  if (!fresh) return fresh.error();
  if (Result<void> added = addWakeup(**fresh, wakeupFd_); !added) return added.error();
  // From here the new one is in use; what does not get in is ended, the others go on.
  selector_ = std::move(*fresh);
  found_ = 0;
  rebuilt_ = true;
  removedBadly_.clear();
  std::vector<std::pair<std::uint64_t, Error>> lost;
  std::size_t moved = 0;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const std::shared_ptr<Entry> entry = slots_[slot].entry;
    if (!entry) continue;
    const std::uint64_t id = idOf(slot, slots_[slot].generation);
    const WatchRequest& request = entry->request;
    if (Result<void> added = selector_->add(request.fd, request.events, request.trigger, id);
        !added) {
      log(LogLevel::warn, "loop", "descriptor ", request.fd,
          " could not be moved to the new selector: ", added.error().message());
      lost.emplace_back(id, added.error());
    } else {
      ++moved;
    }
  }
  // Only now: whoever is told may begin a watch, which then is on the new selector already.
  for (const auto& [id, why] : lost) endWatch(id, why);
  log(LogLevel::info, "loop", "moved ", moved, " descriptors to a new selector");
  return {};
}

}  // namespace millrace
