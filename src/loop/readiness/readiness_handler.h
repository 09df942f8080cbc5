// SPDX-License-Identifier: Apache-2.0
// ReadinessHandler: the engine of epoll and poll: a selector, a wakeup descriptor, and a table of
// slots.
//
// The kernel is given slot and generation, never a pointer: events for a slot that was given up, or
// that belongs to somebody else by now, are recognised and dropped.
#pragma once

#include "loop/readiness/selector.h"

#include <millrace/loop/io_handler.h>
#include <millrace/sys/fd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace millrace {

class ReadinessHandler final : public IoHandler, private FdWatch {
 public:
  /// Opens the descriptors.
  static Result<std::unique_ptr<IoHandler>> make(const IoType& type, SelectorFactory open);

  const IoType& type() const noexcept override { return type_; }
  Result<void> attach(IoLoop& loop) override;
  void detach() noexcept override;
  Result<WaitOutcome> wait(Deadline until) override;
  int dispatch() override;
  void wakeup() noexcept override;
  void awaitWakeups(std::uint64_t paid) noexcept override;
  std::size_t registrations() const noexcept override {
    return registrations_.load(std::memory_order_relaxed);
  }
  void closeAll(CloseMode mode) override;
  Result<void> rebuild() override;
  int culprit() noexcept override;
  FdWatch* fdWatch() noexcept override { return this; }

 private:
  /// Shared with the dispatch that runs its callback: unwatch() must not destroy what is on the
  /// stack.
  struct Entry {
    WatchRequest request;
    std::uint32_t generation;
  };
  struct Slot {
    std::shared_ptr<Entry> entry;  // null: free
    std::uint32_t generation = 0;
  };

  ReadinessHandler(const IoType& type, SelectorFactory open, std::unique_ptr<Selector> selector,
                   Fd wakeupFd);

  Result<std::uint64_t> watch(WatchRequest request) override;
  Result<bool> modify(std::uint64_t id, std::uint32_t events) override;
  bool unwatch(std::uint64_t id) noexcept override;
  void describe(std::vector<std::string>& lines) const override;

  std::shared_ptr<Entry> find(std::uint64_t id) const noexcept;
  void release(std::uint64_t id) noexcept;
  void endWatch(std::uint64_t id, const Error& why) noexcept;
  void deliver(const ReadyEvent& event);
  void drainWakeups() noexcept;

  const IoType& type_;
  const SelectorFactory open_;
  std::unique_ptr<Selector> selector_;
  Fd wakeupFd_;
  IoLoop* loop_ = nullptr;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> freeSlots_;
  int found_ = 0;              // events of the last select, waiting for dispatch
  std::uint64_t arrived_ = 0;  // wakeups read so far (level selectors)
  int staleFd_ = -1;
  bool rebuilt_ = false;           // since the dispatch under way began
  std::vector<int> removedBadly_;  // by slot: descriptor that the kernel would not let go
  std::atomic<std::size_t> registrations_{0};
};

}  // namespace millrace
