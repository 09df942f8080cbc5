// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/clock.h>
#include <millrace/base/manual_clock.h>

#include <ctime>
#include <stdexcept>
#include <string>

namespace millrace {

namespace {

class RealClock final : public Clock {
 public:
  std::int64_t nanos() const noexcept override {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  }
  bool isReal() const noexcept override { return true; }
};

}  // namespace

Clock& Clock::real() noexcept {
  // Never destroyed: threads that outlive main may still ask for the time.
  static RealClock& clock = *new RealClock;
  return clock;
}

void ManualClock::advance(Duration step) {
  if (step.count() < 0) {
    throw std::invalid_argument("ManualClock::advance(" + std::to_string(step.count()) +
                                "ns): time does not go back; give a step of 0 or more");
  }
  std::lock_guard lock(mutex_);
  const std::int64_t next = saturatingAdd(now_.load(std::memory_order_relaxed), step.count());
  now_.store(next, std::memory_order_release);
  listeners_.forEach([](ClockListener& listener) { listener.clockMoved(); });
}

void ManualClock::addListener(ClockListener& listener) noexcept {
  std::lock_guard lock(mutex_);
  listeners_.pushBack(listener);
}

void ManualClock::removeListener(ClockListener& listener) noexcept {
  std::lock_guard lock(mutex_);
  listener.unlink();
}

}  // namespace millrace
