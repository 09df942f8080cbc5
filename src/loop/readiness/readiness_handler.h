// SPDX-License-Identifier: Apache-2.0
// ReadinessHandler: the engine of epoll and poll: a selector, a wakeup descriptor, and a table of
// slots.
//
// The kernel is given slot and generation, never a pointer: events for a slot that was given up, or
// that belongs to somebody else by now, are recognised and dropped.
#pragma once

#include "loop/readiness/raw_watch.h"
#include "loop/readiness/selector.h"
#include "loop/slot_table.h"

#include <millrace/base/atomic.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/readiness_io.h>
#include <millrace/sys/fd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace millrace {

class ReadinessHandler final : public IoHandler,
                               private FdWatch,
                               private ReadinessIo,
                               private RawWatch::Owner {
 public:
  /// Opens the descriptors.
  static Result<std::unique_ptr<IoHandler>> make(const IoType& type, SelectorFactory open);
  ~ReadinessHandler() override;

  const IoType& type() const noexcept override { return *type_.load(std::memory_order_acquire); }
  Result<void> attach(IoLoop& loop) override;
  void detach() noexcept override;
  Result<WaitOutcome> wait(Deadline until) override;
  int dispatch() override;
  void wakeup() noexcept override;
  void awaitWakeups(std::uint64_t paid) noexcept override;
  std::size_t registrations() const noexcept override {
    return registrations_.load(std::memory_order_relaxed);
  }
  RingIo* ring() noexcept override { return selector_ == nullptr ? nullptr : selector_->ring(); }
  void closeAll(CloseMode mode) override;
  Result<void> rebuild() override;
  int culprit() noexcept override;
  FdWatch* fdWatch() noexcept override { return this; }
  ReadinessIo* readiness() noexcept override { return this; }

 private:
  struct Slot {
    IoClient* client = nullptr;  // null: free
    int fd = -1;
    std::uint32_t generation = 0;
    std::uint32_t events = 0;
    Trigger trigger = Trigger::level;
    bool isWatch = false;  // the client is a RawWatch
  };

  ReadinessHandler(const IoType& type, SelectorFactory open, std::unique_ptr<Selector> selector,
                   Fd wakeupFd);

  // --- ReadinessIo ---
  bool isEdge() const noexcept override { return selector_->isEdge(); }
  Result<std::uint64_t> add(int fd, std::uint32_t events, Trigger trigger,
                            IoClient& client) override;
  Result<void> modify(std::uint64_t id, std::uint32_t events) override;
  void remove(std::uint64_t id) noexcept override;
  void removeClosed(std::uint64_t id) noexcept override;
  void letGo() noexcept override { selector_->letGo(); }
  void again(std::uint64_t id) override { again_.push_back(id); }

  // --- FdWatch ---
  Result<std::uint64_t> watch(WatchRequest request) override;
  Result<bool> modifyWatch(std::uint64_t id, std::uint32_t events) override;
  bool unwatch(std::uint64_t id) noexcept override;
  std::size_t watches() const noexcept override { return watches_; }
  void describe(std::vector<std::string>& lines) const override;

  // --- RawWatch::Owner ---
  void unregister(RawWatch& watch) noexcept override;
  IoLoop* loop() const noexcept override { return loop_; }

  Slot* find(std::uint64_t id) noexcept;
  RawWatch* findWatch(std::uint64_t id) noexcept;
  void release(std::uint64_t id) noexcept;
  void loseClient(std::uint64_t id, const Error& why) noexcept;
  bool deliver(std::uint64_t id, std::uint32_t ready);
  bool deliverFound(std::uint64_t id, std::uint32_t ready);
  bool deliverOdd(std::uint64_t id, std::uint32_t ready);
  void notOpen(std::uint64_t id, const Slot& slot);
  void drainWakeups() noexcept;

  Atomic<const IoType*> type_;
  SelectorFactory open_;
  std::unique_ptr<Selector> selector_;
  Fd wakeupFd_;
  IoLoop* loop_ = nullptr;
  SlotTable<Slot> slots_;
  std::vector<std::uint64_t> again_;     // to be called in the next dispatch
  std::vector<std::uint64_t> againNow_;  // being called
  int found_ = 0;                        // events of the last select, waiting for dispatch
  std::uint64_t arrived_ = 0;            // wakeups read so far (level selectors)
  std::size_t watches_ = 0;
  int staleFd_ = -1;
  bool rebuilt_ = false;           // since the dispatch under way began
  std::vector<int> removedBadly_;  // by slot: descriptor that the kernel would not let go
  std::atomic<std::size_t> registrations_{0};
};

}  // namespace millrace
