// SPDX-License-Identifier: Apache-2.0
#include "concurrent/timer_pool.h"

#include <millrace/concurrent/global_executor.h>
#include <millrace/concurrent/timer_queue.h>

#include <utility>

namespace millrace {

namespace {

Error cancelledTimer() { return {Errc::cancelled, "timer"}; }

}  // namespace

TimerNode::State TimerNode::state() const noexcept { return Hot::stateOf(hot().load()); }
std::int64_t TimerNode::deadline() const noexcept {
  return warm().deadline.load(std::memory_order_relaxed);
}
TimerNode::Repeat TimerNode::repeat() const noexcept {
  if ((hot().load() & Hot::kRepeats) == 0) return Repeat::no;
  return cold().period > 0 ? Repeat::atFixedRate : Repeat::withFixedDelay;
}

// Nobody holds it any more.
inline void TimerNode::release(std::uint8_t word) noexcept {
  if (Hot::stateOf(word) == State::armed || (word & (Hot::kHasFuture | Hot::kCopied)) != 0) {
    dropParts(word);
  }
  slab().pool->release(this);
}

[[gnu::noinline]] void TimerNode::dropParts(std::uint8_t word) noexcept {
  if (Hot::stateOf(word) == State::armed) dropTask(word);  // made but never added: a refused one
  if ((word & Hot::kHasFuture) != 0) {
    cold().future.load(std::memory_order_acquire)->unref();
    cold().future.store(nullptr, std::memory_order_relaxed);
  }
  if ((word & Hot::kCopied) != 0) copies().store(0, std::memory_order_relaxed);
}

// Whoever drops a handle while there is another one knows of it: the copy was made before, and its
// bit is set.
void TimerNode::ref() noexcept {
  copies().fetch_add(1, std::memory_order_relaxed);
  Atomic<std::uint8_t>& word = hot().word;
  if ((word.load(std::memory_order_relaxed) & Hot::kCopied) == 0) {
    word.fetch_or(Hot::kCopied, std::memory_order_relaxed);
  }
}

void TimerNode::unref() noexcept {
  Atomic<std::uint8_t>& word = hot().word;
  const std::uint8_t seen = word.load(std::memory_order_acquire);
  // The only handle. What is left is the queue, and on its thread nobody can interfere: no atomic
  // exchange there.
  if ((seen & (Hot::kCopied | Hot::kQueued)) == Hot::kQueued && slab().isHome()) {
    word.store(static_cast<std::uint8_t>(seen & ~Hot::kHandle), std::memory_order_relaxed);
    return;
  }
  unrefAnyKind(seen);
}

[[gnu::noinline]] void TimerNode::unrefAnyKind(std::uint8_t seen) noexcept {
  Atomic<std::uint8_t>& word = hot().word;
  if ((seen & Hot::kCopied) != 0) {
    if (copies().fetch_sub(1, std::memory_order_acq_rel) != 0) return;
    seen = word.load(std::memory_order_acquire);
  }
  // The last owner needs no atomic write: nobody else can make a handle any more.
  if ((seen & Hot::kQueued) != 0) {
    seen = word.fetch_sub(Hot::kHandle, std::memory_order_acq_rel);  // the bit is set
    if ((seen & Hot::kQueued) != 0) return;
  }
  release(seen);
}

void TimerNode::unrefQueued() noexcept {
  Atomic<std::uint8_t>& word = hot().word;
  std::uint8_t seen = word.load(std::memory_order_acquire);
  if ((seen & Hot::kHandle) != 0) {
    seen = word.fetch_sub(Hot::kQueued, std::memory_order_acq_rel);  // the bit is set
    if ((seen & Hot::kHandle) != 0) return;
  }
  release(seen);
}

// Gives the word as it was, or 0 if the state was another (a living timer's word is never 0).
std::uint8_t TimerNode::moveState(State from, State to) noexcept {
  Atomic<std::uint8_t>& word = hot().word;
  std::uint8_t seen = word.load(std::memory_order_relaxed);
  std::uint8_t moved = 0;
  do {
    if (Hot::stateOf(seen) != from) return 0;
    moved = static_cast<std::uint8_t>((seen & ~Hot::kState) | static_cast<std::uint8_t>(to));
  } while (!word.compare_exchange_weak(seen, moved, std::memory_order_acq_rel,
                                       std::memory_order_relaxed));
  return seen;
}

// Gives the word as it was, or 0 if somebody else was first.
inline std::uint8_t TimerNode::wonCancel() noexcept {
  for (;;) {
    if (const std::uint8_t won = moveState(State::armed, State::cancelled)) {
      dropTask(won);  // it will not run: what it holds is ours now
      return won;
    }
    // A repeating task that runs right now is not interrupted; the loop destroys it afterwards. It
    // may be armed again before we look: then once more from the top.
    const std::uint8_t seen = hot().load();
    const State state = Hot::stateOf(seen);
    if (state == State::done || state == State::cancelled) return 0;
    if ((seen & Hot::kRepeats) == 0) {
      if (state == State::running) return 0;
    } else if (const std::uint8_t won = moveState(State::running, State::cancelled)) {
      return won;
    }
  }
}

// Most are armed, hold nothing that must be destroyed and nobody waits for them: few instructions,
// so that a processor that waits for the memory of one timer can begin with the next ones.
bool TimerNode::cancel() noexcept {
  constexpr std::uint8_t kCancelled = static_cast<std::uint8_t>(State::cancelled);
  Atomic<std::uint8_t>& word = hot().word;
  std::uint8_t seen = word.load(std::memory_order_relaxed);
  if ((seen & (Hot::kState | Hot::kHasFuture | Hot::kTrivialTask)) != Hot::kTrivialTask ||
      !word.compare_exchange_strong(seen, seen | kCancelled, std::memory_order_acq_rel,
                                    std::memory_order_relaxed)) {
    return cancelAnyKind();
  }
  slab().noteCancel();
  return true;
}

[[gnu::noinline]] bool TimerNode::cancelAnyKind() noexcept {
  const std::uint8_t won = wonCancel();
  if (won == 0) return false;
  if ((won & Hot::kHasFuture) != 0) completeFuture(cancelledTimer());
  slab().noteCancel();
  return true;
}

// Whoever ends the timer changes the state and sees in the same word whether there is a future;
// whoever makes a future sets its bit and sees in the same word whether the timer has ended. So one
// of the two completes it.
void TimerNode::completeFuture(Result<void> result) noexcept {
  cold().future.load(std::memory_order_acquire)->complete(std::move(result));
}

Future<void> TimerNode::future() {
  Cold& mine = cold();
  FutureOfTimer* made = mine.future.load(std::memory_order_acquire);
  if (made == nullptr) {
    // A timer that has ended may have outlived its loop.
    const bool ended = state() == State::done || state() == State::cancelled;
    Ref<FutureOfTimer> fresh =
        makeRef<FutureOfTimer>(ended ? globalExecutor() : slab().pool->owner());
    if (mine.future.compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
      made = fresh.release();
    }
  }
  const std::uint8_t seen = hot().word.fetch_or(Hot::kHasFuture, std::memory_order_acq_rel);
  if (Hot::stateOf(seen) == State::cancelled) made->complete(cancelledTimer());
  // A failure made its future itself, so "done" without one means success.
  if (Hot::stateOf(seen) == State::done) made->complete(Result<void>());
  return Future<void>::ofState(Ref<FutureOfTimer>(made));
}

}  // namespace millrace
