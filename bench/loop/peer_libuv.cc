// SPDX-License-Identifier: Apache-2.0
//
// libuv: a locked vector with one uv_async_t beside it, which is how its users post; uv_timer_t.
#include "main.h"

#include <uv.h>

#include <mutex>

namespace {

/// What both kinds of loop share: the queue, its async handle, the timers.
class UvCore {
 public:
  UvCore() {
    uv_loop_init(&loop_);
    uv_async_init(&loop_, &async_,
                  [](uv_async_t* handle) { static_cast<UvCore*>(handle->data)->runTasks(); });
    async_.data = this;
  }
  ~UvCore() {
    uv_close(reinterpret_cast<uv_handle_t*>(&async_), nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
  }

  uv_loop_t* loop() { return &loop_; }

  template <class F>
  void post(F f) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back(f);
    }
    uv_async_send(&async_);
  }

  struct Armed {
    uv_timer_t handle;
    bench::RawTask task;
  };
  using Timer = Armed*;

  template <class F>
  void arm(Timer& slot, std::chrono::nanoseconds delay, F f) {
    slot = new Armed{{}, bench::RawTask(f)};
    slot->handle.data = slot;
    uv_timer_init(&loop_, &slot->handle);
    uv_timer_start(
        &slot->handle, [](uv_timer_t* handle) { static_cast<Armed*>(handle->data)->task(); },
        static_cast<uint64_t>((delay.count() + 999'999) / 1'000'000), 0);
  }
  void cancel(Timer& slot) {
    uv_close(reinterpret_cast<uv_handle_t*>(&slot->handle),
             [](uv_handle_t* handle) { delete static_cast<Armed*>(handle->data); });
    slot = nullptr;
  }
  void drop(Timer& slot) { cancel(slot); }

 private:
  void runTasks() {
    {
      const std::lock_guard lock(mutex_);
      running_.swap(tasks_);
    }
    for (const bench::RawTask& task : running_) task();
    running_.clear();
  }

  uv_loop_t loop_{};
  uv_async_t async_{};
  std::mutex mutex_;
  std::vector<bench::RawTask> tasks_;
  std::vector<bench::RawTask> running_;
};

class Loop : public UvCore {
 public:
  explicit Loop(int cpu)
      : thread_([this, cpu] {
          bench::pinTo(cpu);
          uv_run(loop(), UV_RUN_DEFAULT);
        }) {}
  ~Loop() {
    post([self = this] { uv_stop(self->loop()); });
    thread_.join();
  }

 private:
  std::thread thread_;
};

class Driven : public UvCore {
 public:
  void turn() { uv_run(loop(), UV_RUN_NOWAIT); }
};

class Idle {
 public:
  explicit Idle(size_t count) : loops_(count) {}

 private:
  std::deque<UvCore> loops_;
};

struct Peer {
  static constexpr bool kPosts = true;
  using Loop = ::Loop;
  using Driven = ::Driven;
  using Idle = ::Idle;
};

}  // namespace

int main(int argc, char** argv) { return bench::benchMain<Peer>(argc, argv); }
