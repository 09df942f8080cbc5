// SPDX-License-Identifier: Apache-2.0
#include "loop/watchdog.h"

#include "loop/event_loop_parts.h"
#include "loop/function_names.h"
#include "loop/readable_name.h"

#include <millrace/base/log.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/futex.h>

#include <algorithm>
#include <array>
#include <utility>

namespace millrace {

using namespace std::chrono_literals;

namespace {

/// How long a blocked thread gets to tell where it is. It only has to be scheduled once.
constexpr Duration kCaptureTime = 1s;
constexpr Duration kShortestNap = 1ms;
constexpr std::size_t kFramesToLog = 12;

}  // namespace

Watchdog::Watchdog(const std::string& group, Duration threshold)
    : name_("mr-" + group + "-dog"), threshold_(threshold) {}

Watchdog::~Watchdog() { stop(); }

// --- who is watched ---

Watchdog::Guard::Guard(Watchdog* dog, EventLoop& loop) : dog_(dog), loop_(loop), maskBefore_() {
  if (dog_ == nullptr) return;
  sigset_t ours;
  ::sigemptyset(&ours);
  if (dog_->stacks_.signal() != 0) ::sigaddset(&ours, dog_->stacks_.signal());
  calls().pthread_sigmask(SIG_UNBLOCK, &ours, &maskBefore_);
  dog_->add(loop_);
}

Watchdog::Guard::~Guard() {
  if (dog_ == nullptr) return;
  dog_->remove(loop_);
  calls().pthread_sigmask(SIG_SETMASK, &maskBefore_, nullptr);
}

void Watchdog::add(EventLoop& loop) {
  std::lock_guard lock(mutex_);
  watched_.push_back({&loop, threadId(), StallDetector(threshold_)});
  if (stopped_ || thread_.joinable()) return;
  Result<Thread> started =
      startThread(name_, [this, generation = ++generation_] { run(generation); });
  if (started) {
    thread_ = std::move(started).value();
  } else {
    log(LogLevel::warn, "loop", name_, ": no watchdog: ", started.error().message());
  }
}

void Watchdog::remove(EventLoop& loop) noexcept {
  Thread ended;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(watched_, [&loop](const Watched& each) { return each.loop == &loop; });
    if (!watched_.empty()) return;
    ++generation_;
    ended = std::move(thread_);
  }
  joinThread(std::move(ended));
}

void Watchdog::stop() noexcept {
  Thread ended;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    ++generation_;
    ended = std::move(thread_);
  }
  joinThread(std::move(ended));
}

// It has been told by the generation that its time is over; this ends its nap.
void Watchdog::joinThread(Thread ended) noexcept {
  if (!ended.joinable()) return;
  bell_.fetch_add(1, std::memory_order_release);
  futexWake(bell_, 1);
  ended.join();
}

// --- watching ---

LoopPulse Watchdog::pulseOf(const EventLoop& loop) noexcept {
  const EventLoop::Parts& parts = *loop.parts_;
  return {parts.turnBegan.load(std::memory_order_relaxed),
          parts.progress.load(std::memory_order_relaxed),
          parts.callbacks.load(std::memory_order_relaxed)};
}

const std::type_info* Watchdog::runningOf(const EventLoop& loop) noexcept {
  return loop.parts_->running.load(std::memory_order_relaxed);
}

// Sleeps until the earliest moment at which a loop can have stood still for long enough.
void Watchdog::run(std::uint64_t generation) {
  setLogThread(name_.c_str());
  for (;;) {
    const std::uint32_t rung = bell_.load(std::memory_order_acquire);
    std::vector<Stall> stalls;
    std::int64_t next = 0;
    {
      // A loop leaves under this lock, so none goes away while its stack is read.
      std::lock_guard lock(mutex_);
      if (generation != generation_) return;
      next = look(stalls);
    }
    for (const Stall& stall : stalls) report(stall);
    futexWait(bell_, rung, Deadline::at(next));
  }
}

std::int64_t Watchdog::look(std::vector<Stall>& stalls) {
  const std::int64_t now = Clock::real().nanos();
  Deadline next = Deadline::at(saturatingAdd(now, std::max(threshold_ / 2, kShortestNap).count()));
  for (Watched& each : watched_) {
    if (const auto stoodStill = each.detector.see(pulseOf(*each.loop), now)) {
      stalls.push_back(examine(each, *stoodStill));
    }
    next = std::min(next, each.detector.nextPossible());
  }
  return next.nanos();
}

Watchdog::Stall Watchdog::examine(const Watched& watched, Duration stoodStill) {
  EventLoop& loop = *watched.loop;
  Stall stall{loop.name(), stoodStill, runningOf(loop), false, {}};
  CapturedStack stack = stacks_.of(watched.thread, Deadline::after(kCaptureTime),
                                   {&loop.parts_->progress, &loop.parts_->callbacks});
  // The signal may have ended the call that blocked; what counts is the moment of the capture.
  const LoopPulse& stuck = watched.detector.last();
  stall.isOver = stack.frames.empty() ? pulseOf(loop) != stuck
                                      : stack.counts != std::array{stuck.tasks, stuck.callbacks};
  stall.frames = std::move(stack.frames);
  loop.parts_->figures.stalls.fetch_add(1, std::memory_order_relaxed);
  return stall;
}

void Watchdog::report(const Stall& stall) {
  std::vector<CodePlace> places;
  if (!stall.isOver) places = placesOf(stall.frames);
  const CodePlace* culprit = blockingFunction(places);
  std::string where = "an unknown function (it did not answer)";
  if (stall.isOver) where = "a function that has just returned";
  if (culprit != nullptr) where = culprit->text();
  log(LogLevel::warn, "loop", stall.loop, ": has been busy with one thing for ",
      stall.stoodStill / 1ms, " ms; it is in ", where, ", called by ",
      stall.what == nullptr ? "the loop itself" : readableName(*stall.what),
      ". Use a ThreadPool for what blocks");
  if (!logEnabled(LogLevel::debug, "loop")) return;
  for (std::size_t i = 0; i < std::min(places.size(), kFramesToLog); ++i) {
    log(LogLevel::debug, "loop", stall.loop, ": #", i, " ", places[i].text());
  }
}

}  // namespace millrace
