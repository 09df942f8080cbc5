// SPDX-License-Identifier: Apache-2.0
//
// Millrace, through its public interface, with everything as a user gets it.
#include "main.h"

#include <millrace/millrace.h>

namespace {

using millrace::EventLoop;
using millrace::EventLoopGroup;
using millrace::LoopOptions;
using millrace::ScheduledFuture;

/// Posts and timers are the same calls on a started loop and on one driven by hand.
class Calls {
 public:
  using Timer = ScheduledFuture;

  explicit Calls(EventLoop& loop) : loop_(loop) {}

  template <class F>
  void post(F f) {
    loop_.execute(f);
  }
  template <class F>
  void arm(Timer& slot, std::chrono::nanoseconds delay, F f) {
    slot = loop_.schedule(delay, f);
  }
  void cancel(Timer& slot) {
    slot.cancel();
    slot = Timer();
  }
  void drop(Timer& slot) { cancel(slot); }

 private:
  EventLoop& loop_;
};

struct OneLoop {
  explicit OneLoop(int cpu, std::chrono::nanoseconds spin)
      : group(LoopOptions().loops(1).name("bench").pinTo({cpu}).spin(spin)) {}
  ~OneLoop() { group.shutdownGracefully().sync(); }

  EventLoopGroup group;
};

class Loop : private OneLoop, public Calls {
 public:
  explicit Loop(int cpu, std::chrono::nanoseconds spin = {})
      : OneLoop(cpu, spin), Calls(group.next()) {}
};

struct OneDriven {
  millrace::Ref<EventLoop> loop = EventLoop::handDriven();
};

class Driven : private OneDriven, public Calls {
 public:
  Driven() : Calls(*loop) {}
  void turn() { loop->runNow(); }
};

/// Loops of one group, never used.
class IdleGroup {
 public:
  explicit IdleGroup(size_t count)
      : group_(LoopOptions().loops(static_cast<int>(count)).name("idle")) {}

 private:
  EventLoopGroup group_;
};

struct Peer {
  static constexpr bool kPosts = true;
  static constexpr std::chrono::nanoseconds kSpin = std::chrono::microseconds(50);
  using Loop = ::Loop;
  using Driven = ::Driven;
  using Idle = ::IdleGroup;
  using IdleGroup = ::IdleGroup;
};

}  // namespace

int main(int argc, char** argv) { return bench::benchMain<Peer>(argc, argv); }
