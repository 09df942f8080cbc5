// SPDX-License-Identifier: Apache-2.0
// EventLoopGroup: several loops behind one executor. It does no work itself, it picks a loop.
//
// Threads: every call from any thread; the destructor too. No thread starts before there is work
// for it. Ownership: the group owns its loops. Its destructor shuts them down gracefully and waits,
// unless the calling thread is inside a loop's turn, in a forked child, or the program is exiting.
#pragma once

#include <millrace/base/export.h>
#include <millrace/concurrent/event_executor.h>
#include <millrace/loop/event_loop.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace millrace {

class LoopSource;
struct IoFactory;

/// Several loops of one kind; see the top of this file and docs/guide/loops.md.
class MILLRACE_API EventLoopGroup final : public EventExecutor {
 public:
  /// `loops` of them (0: the default number) on the given engine, else io::automatic(). Throws
  /// std::invalid_argument for a negative number, Exception if a loop cannot be made; those made before
  /// are ended first.
  explicit EventLoopGroup(int loops = 0);
  EventLoopGroup(int loops, IoFactory io);
  /// As the options say. Throws the same.
  explicit EventLoopGroup(const LoopOptions& options);
  /// Shuts down gracefully and waits for the timeout and one second more; then it describes the
  /// loops that are stuck in the log and lets them go.
  ~EventLoopGroup() override;

  /// The next loop, by the chooser: round robin unless the options say otherwise. Throws
  /// std::logic_error for a group on demand (io::blocking()), as do execute() and schedule().
  EventLoop& next() override;
  /// The loop for a new channel: next() for groups of a fixed size; an idle one, or a new one, for
  /// groups on demand. Throws RejectedExecution if there is none.
  Ref<EventLoop> acquireLoop();
  /// For the library: the same for those who may outlive this handle.
  std::shared_ptr<LoopSource> source() const;

  void execute(Task task) override { next().execute(std::move(task)); }
  bool tryExecute(Task task) override { return next().tryExecute(std::move(task)); }
  Executor& forPromise() noexcept override;
  bool offer(Task& task) override { return next().offer(task); }
  void lazyExecute(Task task) override { next().lazyExecute(std::move(task)); }
  ScheduledFuture schedule(Duration delay, Task task) override {
    return next().schedule(delay, std::move(task));
  }
  ScheduledFuture scheduleAtFixedRate(Duration initial, Duration period, Task task) override {
    return next().scheduleAtFixedRate(initial, period, std::move(task));
  }
  ScheduledFuture scheduleWithFixedDelay(Duration initial, Duration delay, Task task) override {
    return next().scheduleWithFixedDelay(initial, delay, std::move(task));
  }

  /// True if the calling thread is in a turn of one of its loops.
  bool inEventLoop() const noexcept override;
  std::size_t load() const noexcept override;

  /// The loops, in the order they were made. Read-only.
  class Iterator {
   public:
    using value_type = EventLoop;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::forward_iterator_tag;
    using pointer = EventLoop*;
    using reference = EventLoop&;
    Iterator() noexcept = default;
    EventLoop& operator*() const noexcept { return **at_; }
    EventLoop* operator->() const noexcept { return at_->get(); }
    Iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    Iterator operator++(int) noexcept { return Iterator(at_++); }
    friend bool operator==(Iterator, Iterator) noexcept = default;

   private:
    friend class EventLoopGroup;
    explicit Iterator(const Ref<EventLoop>* at) noexcept : at_(at) {}
    const Ref<EventLoop>* at_ = nullptr;
  };
  Iterator begin() const noexcept;
  Iterator end() const noexcept;
  /// How many loops it has.
  std::size_t size() const noexcept;

  bool isShuttingDown() const noexcept override;
  bool isShutdown() const noexcept override;
  bool isTerminated() const noexcept override;
  /// Ends every loop; completes once, when the last one has ended, with the sum of their reports.
  Future<ShutdownReport> shutdownGracefully(Duration quiet = Duration::zero(),
                                            Duration timeout = std::chrono::seconds(15)) override;
  Future<ShutdownReport> terminationFuture() const override;

  /// Runs when the group begins to shut down, before its loops are told, on the thread that does
  /// so: for those who give the group work, such as listeners. It must not throw. Gives a number for
  /// removeShutdownListener, 0 if it is too late.
  std::uint64_t addShutdownListener(Task listener);
  /// True if it had not run and now never will.
  bool removeShutdownListener(std::uint64_t id);

  /// The sum over its loops.
  LoopMetrics metrics() const;
  /// Every loop in words, and what keeps the group from ending.
  std::string dump() const;
  /// The name its threads carry: mr-<name>-<index>.
  const std::string& name() const noexcept;

 private:
  struct Core;
  std::size_t endedLoops() const noexcept;

  std::shared_ptr<Core> core_;  // shared with the listeners on the loops' ends
};

}  // namespace millrace
