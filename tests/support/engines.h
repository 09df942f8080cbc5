// SPDX-License-Identifier: Apache-2.0
// What tests of loops on real engines share: the engines as parameters, descriptors to watch, and
// looks at the process from outside. All descriptors are made past the call table, so that fault
// scripts neither count nor fail what the test itself does.
#pragma once

#include <millrace/base/clock.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/loop_options.h>
#include <millrace/loop/metrics.h>
#include <millrace/sys/events.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace millrace::test {

/// One engine, as a parameter of a suite. A value.
struct Engine {
  std::string name;  ///< letters only, for the test's name
  IoFactory io;
  bool hasEdge = true;

  LoopOptions options() const { return LoopOptions().io(io); }
  friend std::ostream& operator<<(std::ostream& out, const Engine& engine) {
    return out << engine.name;
  }
};

/// Those whose kernel object can be made anew: epoll with a growing and with a fixed event array, and
/// poll.
std::vector<Engine> selectorEngines();
/// All that watch descriptors: these and, where it is allowed, io_uring.
std::vector<Engine> readinessEngines();
/// These and parking.
std::vector<Engine> everyEngine();
std::string engineName(const testing::TestParamInfo<Engine>& info);

/// A suite over engines. Every loop that it makes is asserted to run on the engine asked for.
class EngineTest : public testing::TestWithParam<Engine> {
 protected:
  LoopOptions options() const { return GetParam().options(); }
  Ref<EventLoop> handDriven() const { return handDriven(options()); }
  Ref<EventLoop> handDriven(const LoopOptions& options) const;
  /// Asserts the engine of a group.
  void expectEngine(const EventLoopGroup& group) const;
};

/// A pipe. Both ends nonblocking; closed by the destructor.
class Pipe {
 public:
  Pipe();
  Pipe(Pipe&& other) noexcept;
  Pipe& operator=(Pipe&&) = delete;
  ~Pipe();

  int readEnd() const noexcept { return ends_[0]; }
  int writeEnd() const noexcept { return ends_[1]; }
  void put(std::string_view bytes = "x") const;
  /// Everything that is there.
  std::string take() const;
  void closeRead();
  void closeWrite();

 private:
  int ends_[2] = {-1, -1};
};

/// Reads everything from `fd`, which is nonblocking.
std::string readAll(int fd);

/// True as soon as `question()` is; false after `limit`, the time to fail by.
template <class Q>
bool eventually(Q&& question, Duration limit = std::chrono::seconds(60)) {
  const Deadline until = Deadline::after(limit);
  while (!question()) {
    if (until.isDue(Clock::real().nanos())) return false;
    std::this_thread::yield();
  }
  return true;
}

/// How often the kernel has put this thread to sleep at its own wish.
std::int64_t voluntarySwitches(std::int64_t threadId);

/// Watches on the loop thread, hand-driven loops included; fails the test if it is refused.
Watch watchInLoop(EventLoop& loop, int fd, std::uint32_t events, WatchCallback callback,
                  Trigger trigger = Trigger::level, WatchEnd onEnd = {});

/// Drives a hand-driven loop until the question is answered with yes; false after half a minute.
template <class Q>
bool turnLoopUntil(EventLoop& loop, Q&& question) {
  const Deadline until = Deadline::after(std::chrono::seconds(30));
  while (!question()) {
    if (until.isDue(Clock::real().nanos())) return false;
    loop.run(Deadline::after(std::chrono::milliseconds(20)));
  }
  return true;
}
/// So many turns, without waiting.
inline void turnLoop(EventLoop& loop, int count) {
  for (int i = 0; i < count; ++i) loop.runNow();
}

}  // namespace millrace::test
