// SPDX-License-Identifier: Apache-2.0
#include "loop/readiness/readiness_handler.h"

#include <millrace/base/check.h>
#include <millrace/base/log.h>
#include <millrace/loop/io.h>
#include <millrace/sys/eventfd.h>
#include <millrace/sys/events.h>
#include <millrace/sys/poll.h>

#include <cerrno>
#include <string>

namespace millrace {

namespace {

/// The number of the wakeup descriptor. Its slot, the first one, is nobody's.
constexpr std::uint64_t kWakeupId = 0;
/// Of a slot that no event reaches.
constexpr std::uint32_t kNoGeneration = 0xffffffff;
/// Events of one wait on the epoll that takes another selector's place.
constexpr int kEventsInstead = 1024;
/// Longer waits are made in two steps: the kernel adds 0.1 % to long ones.
constexpr std::int64_t kExactNanos = 20'000'000;

constexpr std::uint64_t idOf(std::uint32_t slot, std::uint32_t generation) noexcept {
  return (std::uint64_t{generation} << 32) | slot;
}
constexpr std::uint32_t slotOf(std::uint64_t id) noexcept { return static_cast<std::uint32_t>(id); }
constexpr std::uint32_t generationOf(std::uint64_t id) noexcept {
  return static_cast<std::uint32_t>(id >> 32);
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
    : type_(&type),
      open_(std::move(open)),
      selector_(std::move(selector)),
      wakeupFd_(std::move(wakeupFd)),
      slots_(1) {
  slots_[0].generation = kNoGeneration;
  selector_->countClientsIn(registrations_);
}

ReadinessHandler::~ReadinessHandler() {
  for (Slot& slot : slots_) {
    if (slot.client != nullptr && slot.isWatch) static_cast<RawWatch*>(slot.client)->end();
  }
}

Result<void> ReadinessHandler::attach(IoLoop& loop) {
  loop_ = &loop;
  Result<void> attached = selector_->attach();
  if (attached) return attached;
  // Out of descriptors or memory at the wrong moment: epoll was not asked for, and serves.
  const SelectorFactory openInstead = [] { return openEpollSelector(kEventsInstead, true); };
  Result<std::unique_ptr<Selector>> instead = openInstead();
  if (!instead || !addWakeup(**instead, wakeupFd_)) return attached;
  log(LogLevel::warn, "loop", loop.name(),
      ": io_uring is not used, epoll is: ", attached.error().message());
  selector_ = std::move(*instead);
  open_ = openInstead;  // for rebuild(), too
  type_.store(&io::epollType, std::memory_order_release);
  return {};
}

void ReadinessHandler::detach() noexcept {
  selector_->detach();
  loop_ = nullptr;
}

// --- waiting ---

Result<WaitOutcome> ReadinessHandler::wait(Deadline until) {
  found_ = 0;
  const bool looksOnly = until == Deadline::past() || !again_.empty();
  // Nothing is watched: there is nothing to look for but wakeups, and those only end sleeps.
  if (looksOnly && registrations_.load(std::memory_order_relaxed) == 0 && !selector_->hasToEnd()) {
    return WaitOutcome{};
  }
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
    const int completions = selector_->completions();
    if (count + completions == 0 && !lastStep && !until.isDue(Clock::real().nanos())) {
      // Early only if the first step's time is over; else the selector returned for no reason.
      if (until.left(Clock::real().nanos()).count() <= timeout / 128 + kExactNanos) continue;
    }
    WaitOutcome outcome;
    found_ = count;
    outcome.events = count + completions + static_cast<int>(again_.size());
    // Among other events it does not matter, but where it has to be read.
    if (count == 1 || !selector_->isEdge()) {
      const ReadyEvent* events = selector_->events();
      for (int i = 0; i < count && !outcome.woken; ++i) {
        outcome.woken = events[i].data == kWakeupId;
      }
      if (outcome.woken) --outcome.events;
      if (outcome.woken && !selector_->isEdge()) drainWakeups();
    }
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

// A number that was given out has a slot: there are never fewer. A slot that is let go becomes another
// generation, so one with this generation has a client.
inline ReadinessHandler::Slot* ReadinessHandler::find(std::uint64_t id) noexcept {
  Slot& slot = slots_[slotOf(id)];
  return slot.generation == generationOf(id) ? &slot : nullptr;
}

// False if nobody is registered under this number any more.
inline bool ReadinessHandler::deliver(std::uint64_t id, std::uint32_t ready) {
  const Slot* slot = find(id);
  if (__builtin_expect(slot == nullptr, 0)) return false;
  IoClient& client = *slot->client;
  loop_->callbackBegins(typeid(client));
  client.ready(ready);
  loop_->callbackEnded();
  return true;
}

inline bool ReadinessHandler::deliverFound(std::uint64_t id, std::uint32_t ready) {
  if (__builtin_expect(ready == 0 || (ready & kNotOpen) != 0, 0)) return deliverOdd(id, ready);
  return deliver(id, ready);
}

// An event without a bit would come again and again: the client shall look.
[[gnu::noinline]] bool ReadinessHandler::deliverOdd(std::uint64_t id, std::uint32_t ready) {
  if (ready == 0) return deliver(id, kReadable);
  const Slot* slot = find(id);
  if (slot == nullptr) return false;
  notOpen(id, *slot);
  return true;
}

int ReadinessHandler::dispatch() {
  int delivered = 0;
  const int count = std::exchange(found_, 0);
  rebuilt_ = false;
  againNow_.swap(again_);
  const ReadyEvent* events = count == 0 ? nullptr : selector_->events();
  for (int i = 0; i < count; ++i) {
    const ReadyEvent event = events[i];
    if (__builtin_expect(deliverFound(event.data, event.events), 1)) {
      ++delivered;
    } else if (event.data != kWakeupId) {  // which has no slot
      const std::uint32_t slot = slotOf(event.data);
      staleFd_ = slot < removedBadly_.size() ? removedBadly_[slot] : -1;
    }
    if (rebuilt_) {  // by the callback: what is left of the old events will be found again
      rebuilt_ = false;
      break;
    }
  }
  if (const int completions = selector_->completions(); completions != 0) {
    delivered += completions;
    selector_->deliver(*loop_);
  }
  for (const std::uint64_t id : againNow_) delivered += deliver(id, 0) ? 1 : 0;
  againNow_.clear();
  return delivered;
}

[[gnu::noinline]] void ReadinessHandler::notOpen(std::uint64_t id, const Slot& slot) {
  loseClient(id, Error::fromErrno(EBADF, slot.isWatch ? "watch" : "poll",
                                  "descriptor " + std::to_string(slot.fd) +
                                      (slot.isWatch ? " (closed without unwatch())"
                                                    : " (closed by somebody else)")));
}

int ReadinessHandler::culprit() noexcept { return std::exchange(staleFd_, -1); }

// --- the table ---

Result<std::uint64_t> ReadinessHandler::add(int fd, std::uint32_t events, Trigger trigger,
                                            IoClient& client) {
  const std::uint32_t slot = slots_.take();
  const std::uint64_t id = idOf(slot, slots_[slot].generation);
  if (Result<void> added = selector_->add(fd, events, trigger, id); !added) {
    slots_.give(slot);
    return added.error();
  }
  Slot& taken = slots_[slot];
  taken.client = &client;
  taken.fd = fd;
  taken.events = events;
  taken.trigger = trigger;
  taken.isWatch = false;
  registrations_.store(registrations() + 1, std::memory_order_relaxed);
  return id;
}

Result<void> ReadinessHandler::modify(std::uint64_t id, std::uint32_t events) {
  Slot* slot = find(id);
  MR_CHECK(slot != nullptr, "modify() of a registration that has ended");
  Result<void> changed = selector_->modify(slot->fd, events, slot->trigger, id);
  if (changed) slot->events = events;
  return changed;
}

void ReadinessHandler::remove(std::uint64_t id) noexcept {
  const Slot* slot = find(id);
  if (slot == nullptr) return;
  if (Result<void> removed = selector_->remove(slot->fd, id); !removed) {
    // Closed before: if a copy of the descriptor lives on elsewhere, the kernel goes on reporting
    // it. The generation keeps the events from anybody; if they make the loop spin, the selector is
    // made anew and this number is named.
    const std::uint32_t number = slotOf(id);
    if (removedBadly_.size() <= number) removedBadly_.resize(number + 1, -1);
    removedBadly_[number] = slot->fd;
    log(LogLevel::debug, "loop", slot->isWatch ? "unwatch" : "removal", " of descriptor ", slot->fd,
        ": ", removed.error().message());
  }
  release(id);
}

void ReadinessHandler::removeClosed(std::uint64_t id) noexcept {
  const Slot* slot = find(id);
  if (slot == nullptr) return;
  selector_->removeClosed(slot->fd, id);
  if (const std::uint32_t number = slotOf(id); number < removedBadly_.size()) {
    removedBadly_[number] = slot->fd;
  }
  release(id);
}

void ReadinessHandler::release(std::uint64_t id) noexcept {
  Slot& slot = slots_[slotOf(id)];
  if (slot.isWatch) --watches_;
  slot.client = nullptr;
  ++slot.generation;
  slots_.give(slotOf(id));
  registrations_.store(registrations() - 1, std::memory_order_relaxed);
}

void ReadinessHandler::loseClient(std::uint64_t id, const Error& why) noexcept {
  const Slot* slot = find(id);
  if (slot == nullptr) return;
  IoClient& client = *slot->client;
  remove(id);
  client.lost(why);
  if (loop_ != nullptr) loop_->callbackEnded();
}

void ReadinessHandler::closeAll(CloseMode mode) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].client != nullptr) slots_[i].client->shuttingDown();
  }
  if (mode == CloseMode::force) selector_->tellClientsOfTheEnd();
}

// --- raw watches ---

Result<std::uint64_t> ReadinessHandler::watch(WatchRequest request) {
  const int fd = request.fd;
  const std::uint32_t events = request.events;
  const Trigger trigger = request.trigger;
  auto* made = new RawWatch(*this, std::move(request));
  Result<std::uint64_t> id = add(fd, events, trigger, *made);
  if (!id) {
    made->end();
    return id;
  }
  made->id = *id;
  slots_[slotOf(*id)].isWatch = true;
  ++watches_;
  return id;
}

RawWatch* ReadinessHandler::findWatch(std::uint64_t id) noexcept {
  const Slot* slot = find(id);
  return slot == nullptr || !slot->isWatch ? nullptr : static_cast<RawWatch*>(slot->client);
}

Result<bool> ReadinessHandler::modifyWatch(std::uint64_t id, std::uint32_t events) {
  RawWatch* watch = findWatch(id);
  if (watch == nullptr) return false;
  if (Result<void> changed = modify(id, events); !changed) return changed.error();
  watch->setEvents(events);
  return true;
}

bool ReadinessHandler::unwatch(std::uint64_t id) noexcept {
  RawWatch* watch = findWatch(id);
  if (watch == nullptr) return false;
  watch->end();
  return true;
}

void ReadinessHandler::unregister(RawWatch& watch) noexcept {
  if (watch.id == 0 || selector_ == nullptr) return;
  remove(watch.id);
  selector_->letGo();  // its owner may close the descriptor next
}

void ReadinessHandler::describe(std::vector<std::string>& lines) const {
  for (const Slot& slot : slots_) {
    if (slot.client == nullptr) continue;
    if (std::string line = slot.client->describeClient(); !line.empty())
      lines.push_back(std::move(line));
  }
}

// --- rebuilding ---

Result<void> ReadinessHandler::rebuild() {
  if (selector_->ring() != nullptr) {
    return Error(Errc::notSupported, "rebuild", "a ring with operations in flight");
  }
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
  for (std::uint32_t number = 0; number < slots_.size(); ++number) {
    const Slot& slot = slots_[number];
    if (slot.client == nullptr) continue;
    const std::uint64_t id = idOf(number, slot.generation);
    if (Result<void> added = selector_->add(slot.fd, slot.events, slot.trigger, id); !added) {
      log(LogLevel::warn, "loop", "descriptor ", slot.fd,
          " could not be moved to the new selector: ", added.error().message());
      lost.emplace_back(id, added.error());
    } else {
      ++moved;
    }
  }
  // Only now: whoever is told may begin a watch, which then is on the new selector already.
  for (const auto& [id, why] : lost) loseClient(id, why);
  log(LogLevel::info, "loop", "moved ", moved, " descriptors to a new selector");
  return {};
}

}  // namespace millrace
