// SPDX-License-Identifier: Apache-2.0
// The parking engine: no I/O, sleeps in a futex. What a plain executor needs.
#include "loop/parking/parking_handler.h"

#include <millrace/base/atomic.h>
#include <millrace/loop/io.h>
#include <millrace/sys/futex.h>

namespace millrace {

namespace {

class ParkingHandler final : public IoHandler {
 public:
  const IoType& type() const noexcept override { return io::parkingType; }
  Result<void> attach(IoLoop&) override { return {}; }
  void detach() noexcept override {}

  Result<WaitOutcome> wait(Deadline until) override {
    WaitOutcome outcome;
    if (until == Deadline::past()) return outcome;
    while (arrived_.load(std::memory_order_acquire) == seen_) {
      if (until.isDue(Clock::real().nanos())) return outcome;
      futexWait(arrived_, seen_, until);
    }
    seen_ = arrived_.load(std::memory_order_acquire);
    outcome.woken = true;
    return outcome;
  }
  int dispatch() override { return 0; }

  void wakeup() noexcept override {
    arrived_.fetch_add(1, std::memory_order_seq_cst);
    futexWake(arrived_, 1);
    left_.fetch_add(1, std::memory_order_release);
  }
  void awaitWakeups(std::uint64_t paid) noexcept override {
    // Each wakeup() is at most a few instructions from its end.
    while (left_.load(std::memory_order_acquire) != static_cast<std::uint32_t>(paid)) cpuRelax();
  }
  std::size_t registrations() const noexcept override { return 0; }
  void closeAll(CloseMode) override {}

 private:
  Atomic<std::uint32_t> arrived_{0};
  Atomic<std::uint32_t> left_{0};
  std::uint32_t seen_ = 0;
};

}  // namespace

std::unique_ptr<IoHandler> makeParkingHandler() { return std::make_unique<ParkingHandler>(); }

}  // namespace millrace
