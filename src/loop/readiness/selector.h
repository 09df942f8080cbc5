// SPDX-License-Identifier: Apache-2.0
// Selector: which descriptors are ready, by epoll, by poll or by a ring. Loop thread only.
#pragma once

#include <millrace/base/result.h>
#include <millrace/loop/io_handler.h>
#include <millrace/sys/epoll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace millrace {

class RingIo;

/// One ready descriptor: what it is ready for, and the number it was added with.
using ReadyEvent = EpollEvent;

class Selector {
 public:
  virtual ~Selector() = default;

  /// The thread that calls select() from now on has come. What was added before is kept.
  virtual Result<void> attach() { return {}; }
  /// It goes; nothing is in flight when this returns.
  virtual void detach() noexcept {}

  /// Registers `fd` under `data`. `events` may be 0: then only failures are reported.
  virtual Result<void> add(int fd, std::uint32_t events, Trigger trigger, std::uint64_t data) = 0;
  virtual Result<void> modify(int fd, std::uint32_t events, Trigger trigger,
                              std::uint64_t data) = 0;
  virtual Result<void> remove(int fd, std::uint64_t data) noexcept = 0;
  /// The same for a descriptor that is about to be closed.
  virtual void removeClosed(int fd, std::uint64_t data) noexcept = 0;
  /// What was removed before is kept open by nobody here from now on.
  virtual void letGo() noexcept {}
  /// Waits at most `timeoutNanos` (0: looks, negative: without limit); the count, or -errno.
  virtual int select(std::int64_t timeoutNanos) noexcept = 0;
  /// The events of the last select(); valid until the next one.
  virtual const ReadyEvent* events() const noexcept = 0;
  /// True if the wakeup descriptor can stay readable: it reports each write once.
  virtual bool isEdge() const noexcept = 0;

  /// The operations that complete, where there are some.
  virtual RingIo* ring() noexcept { return nullptr; }
  /// Where clients of these are counted, from now on.
  virtual void countClientsIn(std::atomic<std::size_t>& counter) { static_cast<void>(counter); }
  /// Something was cancelled and goes on: only select() can end it.
  virtual bool hasToEnd() const noexcept { return false; }
  /// Completions that the last select() found.
  virtual int completions() const noexcept { return 0; }
  /// Hands them out.
  virtual void deliver(IoLoop& loop) { static_cast<void>(loop); }
  /// Tells the clients of operations that the loop shuts down and waits for nobody.
  virtual void tellClientsOfTheEnd() {}
};

using SelectorFactory = std::function<Result<std::unique_ptr<Selector>>()>;

Result<std::unique_ptr<Selector>> openEpollSelector(int initialEvents, bool grows);
Result<std::unique_ptr<Selector>> openPollSelector();
Result<std::unique_ptr<Selector>> openUringSelector(int entries, int completions);

}  // namespace millrace
