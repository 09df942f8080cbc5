// SPDX-License-Identifier: Apache-2.0
//
// The loop everybody writes first, written well: a deque behind a mutex, taken whole, one wake-up
// per sleep.
#include "epoll_waiter.h"
#include "main.h"

#include <deque>
#include <mutex>

namespace {

class Loop {
 public:
  explicit Loop(int cpu)
      : thread_([this, cpu] {
          bench::pinTo(cpu);
          while (!stopped_) turn();
        }) {}
  ~Loop() {
    post([self = this] { self->stopped_ = true; });
    thread_.join();
  }

  template <class F>
  void post(F f) {
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back(f);
      wake = sleeping_;
      sleeping_ = false;
    }
    if (wake) waiter_.wakeup();
  }

 private:
  void turn() {
    bool pending = false;
    {
      const std::lock_guard lock(mutex_);
      pending = !tasks_.empty();
      sleeping_ = !pending;
    }
    waiter_.wait(pending ? 0 : -1);
    {
      const std::lock_guard lock(mutex_);
      sleeping_ = false;
      running_.swap(tasks_);
    }
    for (const bench::RawTask& task : running_) task();
    running_.clear();
  }

  bench::EpollWaiter waiter_;
  std::mutex mutex_;
  bool sleeping_ = false;
  std::deque<bench::RawTask> tasks_;
  std::deque<bench::RawTask> running_;
  bool stopped_ = false;
  std::thread thread_;
};

struct Peer {
  static constexpr bool kPosts = true;
  using Loop = ::Loop;
};

}  // namespace

int main(int argc, char** argv) { return bench::benchMain<Peer>(argc, argv); }
