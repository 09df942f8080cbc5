// SPDX-License-Identifier: Apache-2.0
//
// The floor for a wake-up: an eventfd, an epoll set and one slot for one task. No queue.
#include "epoll_waiter.h"
#include "main.h"

namespace {

class Loop {
 public:
  explicit Loop(int cpu)
      : thread_([this, cpu] {
          bench::pinTo(cpu);
          while (!stopped_.load(std::memory_order_acquire)) {
            waiter_.wait(-1);
            if (full_.exchange(false, std::memory_order_acquire)) slot_();
          }
        }) {}
  ~Loop() {
    stopped_.store(true, std::memory_order_release);
    waiter_.wakeup();
    thread_.join();
  }

  /// One at a time: the next post only after this one ran.
  template <class F>
  void post(F f) {
    slot_ = bench::RawTask(f);
    full_.store(true, std::memory_order_release);
    waiter_.wakeup();
  }

 private:
  bench::EpollWaiter waiter_;
  bench::RawTask slot_;
  std::atomic<bool> full_{false};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

struct Peer {
  static constexpr bool kPosts = false;
  using Loop = ::Loop;
};

}  // namespace

int main(int argc, char** argv) { return bench::benchMain<Peer>(argc, argv); }
