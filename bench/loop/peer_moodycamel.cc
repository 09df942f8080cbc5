// SPDX-License-Identifier: Apache-2.0
//
// moodycamel::ConcurrentQueue in front of an eventfd: bulk dequeue, one wake-up per sleep.
#include "epoll_waiter.h"
#include "main.h"

#include <concurrentqueue/concurrentqueue.h>

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
    tasks_.enqueue(bench::RawTask(f));
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_relaxed) && sleeping_.exchange(false)) waiter_.wakeup();
  }

 private:
  static constexpr size_t kBatch = 256;

  size_t take() { return tasks_.try_dequeue_bulk(token_, running_, kBatch); }

  void turn() {
    size_t taken = take();
    if (taken != 0) {
      waiter_.wait(0);
    } else {
      sleeping_.store(true);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      taken = take();
      waiter_.wait(taken == 0 ? -1 : 0);
      sleeping_.store(false);
      if (taken == 0) taken = take();
    }
    for (size_t i = 0; i < taken; ++i) running_[i]();
  }

  bench::EpollWaiter waiter_;
  moodycamel::ConcurrentQueue<bench::RawTask> tasks_{bench::kMaxOutstanding};
  moodycamel::ConsumerToken token_{tasks_};
  bench::RawTask running_[kBatch];
  alignas(bench::kCacheLine) std::atomic<bool> sleeping_{false};
  alignas(bench::kCacheLine) bool stopped_ = false;
  std::thread thread_;
};

struct Peer {
  static constexpr bool kPosts = true;
  using Loop = ::Loop;
};

}  // namespace

int main(int argc, char** argv) { return bench::benchMain<Peer>(argc, argv); }
