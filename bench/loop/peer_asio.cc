// SPDX-License-Identifier: Apache-2.0
//
// asio: io_context with one thread, asio::post, steady_timer.
//
// An io_context that never saw a timer or a socket has no reactor and sleeps on a condition
// variable, which no program that does I/O sees. So every loop here owns a timer that is never
// armed.
#include "main.h"

#include <asio.hpp>

namespace {

/// Handles of asio's timers; a cancelled one is freed by the handler that the cancel completes.
class AsioTimers {
 public:
  using Timer = asio::steady_timer*;

  template <class F>
  static void arm(asio::io_context& io, Timer& slot, std::chrono::nanoseconds delay, F f) {
    slot = new asio::steady_timer(io, delay);
    slot->async_wait([f, timer = slot](const asio::error_code& error) {
      if (error) {
        delete timer;
      } else {
        f();
      }
    });
  }
  static void cancel(Timer& slot) {
    if (slot->cancel() == 0) delete slot;  // it had fired
    slot = nullptr;
  }
};

class Loop {
 public:
  using Timer = AsioTimers::Timer;

  explicit Loop(int cpu)
      : thread_([this, cpu] {
          bench::pinTo(cpu);
          io_.run();
        }) {}
  ~Loop() {
    work_.reset();
    thread_.join();
  }

  template <class F>
  void post(F f) {
    asio::post(io_, f);
  }
  template <class F>
  void arm(Timer& slot, std::chrono::nanoseconds delay, F f) {
    AsioTimers::arm(io_, slot, delay, f);
  }
  void cancel(Timer& slot) { AsioTimers::cancel(slot); }
  void drop(Timer& slot) { AsioTimers::cancel(slot); }

 private:
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  asio::steady_timer reactor_{io_};
  std::thread thread_;
};

class Driven {
 public:
  using Timer = AsioTimers::Timer;

  template <class F>
  void post(F f) {
    asio::post(io_, f);
  }
  template <class F>
  void arm(Timer& slot, std::chrono::nanoseconds delay, F f) {
    AsioTimers::arm(io_, slot, delay, f);
  }
  void cancel(Timer& slot) { AsioTimers::cancel(slot); }
  void drop(Timer& slot) { AsioTimers::cancel(slot); }
  void turn() { io_.poll(); }

 private:
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  asio::steady_timer reactor_{io_};
};

class Idle {
 public:
  explicit Idle(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      asio::steady_timer reactor(loops_.emplace_back(1));
    }
  }

 private:
  std::deque<asio::io_context> loops_;
};

struct Peer {
  static constexpr bool kPosts = true;
  using Loop = ::Loop;
  using Driven = ::Driven;
  using Idle = ::Idle;
};

}  // namespace

int main(int argc, char** argv) { return bench::benchMain<Peer>(argc, argv); }
