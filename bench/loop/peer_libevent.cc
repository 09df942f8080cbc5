// SPDX-License-Identifier: Apache-2.0
//
// libevent: timers only. It has no queue of tasks; the one here merely brings the scenarios to its
// thread.
#include "main.h"

#include <event2/event.h>
#include <event2/event_struct.h>

#include <mutex>
#include <sys/eventfd.h>

namespace {

class Loop {
 public:
  struct Armed {
    event handle;
    bench::RawTask task;
  };
  using Timer = Armed*;

  explicit Loop(int cpu)
      : base_(event_base_new()),
        fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        wakeup_(event_new(
            base_, fd_, EV_READ | EV_PERSIST,
            [](int, short, void* self) { static_cast<Loop*>(self)->runTasks(); }, this)),
        thread_([this, cpu] {
          bench::pinTo(cpu);
          event_add(wakeup_, nullptr);
          event_base_dispatch(base_);
        }) {}
  ~Loop() {
    post([self = this] { event_base_loopbreak(self->base_); });
    thread_.join();
    event_free(wakeup_);
    event_base_free(base_);
    close(fd_);
  }

  template <class F>
  void post(F f) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back(f);
    }
    eventfd_write(fd_, 1);
  }

  template <class F>
  void arm(Timer& slot, std::chrono::nanoseconds delay, F f) {
    slot = new Armed{
        {}, bench::RawTask(f)};  // one allocation, cheaper than event_new() and ours beside it
    evtimer_assign(
        &slot->handle, base_, [](int, short, void* armed) { static_cast<Armed*>(armed)->task(); },
        slot);
    const timeval due{delay.count() / 1'000'000'000, delay.count() % 1'000'000'000 / 1000};
    event_add(&slot->handle, &due);
  }
  void cancel(Timer& slot) {
    event_del(&slot->handle);
    delete slot;
    slot = nullptr;
  }
  void drop(Timer& slot) { cancel(slot); }

 private:
  void runTasks() {
    eventfd_t count = 0;
    eventfd_read(fd_, &count);
    std::vector<bench::RawTask> running;
    {
      const std::lock_guard lock(mutex_);
      running.swap(tasks_);
    }
    for (const bench::RawTask& task : running) task();
  }

  event_base* base_;
  int fd_;
  event* wakeup_;
  std::mutex mutex_;
  std::vector<bench::RawTask> tasks_;
  std::thread thread_;
};

struct Peer {
  static constexpr bool kPosts = false;
  using Loop = ::Loop;
};

}  // namespace

int main(int argc, char** argv) { return bench::benchMain<Peer>(argc, argv); }
