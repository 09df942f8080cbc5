// SPDX-License-Identifier: Apache-2.0
//
// Posts from other threads, from the loop itself and between two loops; one text for every peer.
//
// A peer brings a class `Loop`: `Loop(cpu)` starts a loop on a thread pinned to `cpu`, `post(f)`
// queues a trivially copyable callable of at most 16 bytes from any thread, the destructor stops
// and joins.
#pragma once

#include "common.h"

#include <cinttypes>
#include <memory>
#include <string>
#include <thread>

namespace bench {

inline constexpr uint64_t kMaxOutstanding = 8192;
inline constexpr uint64_t kRoomToResume = 1000;
inline constexpr int kLoopCore = 0;
inline constexpr int kProducerCore = 1;

/// Runs `fn` on the loop's thread and waits for it. Any thread but the loop's.
template <class Loop, class Fn>
void callInLoop(Loop& loop, Fn fn) {
  std::atomic<bool> done{false};
  loop.post([pfn = &fn, pdone = &done] {
    (*pfn)();
    pdone->store(true, std::memory_order_release);
    pdone->notify_one();
  });
  done.wait(false, std::memory_order_acquire);
}

/// What one producer and the loop share. The loop writes `done` and `delays`, nothing else.
struct alignas(kCacheLine) Lane {
  std::atomic<uint64_t> done{0};
  std::vector<int64_t> delays;
  alignas(kCacheLine) uint64_t posted = 0;
  int64_t posting_cpu_ns = 0;
  int64_t waiting_cpu_ns = 0;

  void ran(int64_t stamp) {
    if (stamp != 0) delays.push_back(nowNs() - stamp);
    done.store(done.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  bool caughtUp() const { return done.load(std::memory_order_acquire) == posted; }
};

/// One producer: posts while `more(posted)`, at most `limit` outstanding, a stamp on every 1024th
/// task or so (at random, so that the samples do not march in step with the waiting).
template <class Loop, class More>
void produce(Loop& loop, Lane& lane, uint64_t limit, More more) {
  Random random(0x9e3779b97f4a7c15ULL ^ reinterpret_cast<uintptr_t>(&lane));
  const uint64_t resume = std::min(kRoomToResume, limit / 2);
  uint64_t room = lane.posted + limit;
  uint64_t sample = lane.posted + random.below(1024);
  int64_t waited = 0;
  const int64_t cpu = threadCpuNs();
  for (uint64_t posted = lane.posted; more(posted); lane.posted = ++posted) {
    if (posted == room) {
      room = lane.done.load(std::memory_order_acquire) + limit;
      if (room - posted < resume) {
        const int64_t begin = threadCpuNs();
        spinUntil([&] {
          room = lane.done.load(std::memory_order_acquire) + limit;
          return room - posted >= resume;
        });
        waited += threadCpuNs() - begin;
      }
    }
    int64_t stamp = 0;
    if (posted == sample) {
      sample += 1 + random.below(2047);
      stamp = nowNs();
    }
    loop.post([plane = &lane, stamp] { plane->ran(stamp); });
  }
  lane.posting_cpu_ns += threadCpuNs() - cpu - waited;
  lane.waiting_cpu_ns += waited;
}

/// Row group 1: rate, CPU of both sides and delay, `producers` threads on one core for `ms`.
template <class Loop>
void posts(int producers, int64_t ms) {
  Loop loop(core(kLoopCore));
  const auto count = static_cast<size_t>(producers);
  const auto lanes = std::make_unique<Lane[]>(count);
  for (size_t i = 0; i < count; ++i) lanes[i].delays.reserve(1 << 18);
  enum : int { kStarting, kWarmUp, kBetween, kMeasuring, kStop };
  std::atomic<int> phase{kStarting};
  std::atomic<int> ready{0};
  std::atomic<int64_t> finished{0};

  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, &lane = lanes[i]] {
      pinTo(core(kProducerCore));
      const uint64_t limit = kMaxOutstanding / count;
      ready.fetch_add(1);
      phase.wait(kStarting);
      produce(loop, lane, limit,
              [&](uint64_t) { return phase.load(std::memory_order_relaxed) == kWarmUp; });
      spinUntil([&] { return lane.caughtUp(); });
      ready.fetch_add(1);
      ready.notify_all();
      phase.wait(kBetween);
      produce(loop, lane, limit,
              [&](uint64_t) { return phase.load(std::memory_order_relaxed) == kMeasuring; });
      spinUntil([&] { return lane.caughtUp(); });
      int64_t seen = finished.load();
      const int64_t now = nowNs();
      while (seen < now && !finished.compare_exchange_weak(seen, now)) {
      }
    });
  }
  spinUntil([&] { return ready.load() == producers; });
  phase.store(kWarmUp);
  phase.notify_all();
  usleep(100'000);
  ready.store(0);
  phase.store(kBetween);
  for (int seen = ready.load(); seen != producers; seen = ready.load()) ready.wait(seen);
  for (size_t i = 0; i < count; ++i) {
    lanes[i].delays.clear();
    lanes[i].posting_cpu_ns = lanes[i].waiting_cpu_ns = 0;
  }
  uint64_t tasks = 0;
  for (size_t i = 0; i < count; ++i) tasks -= lanes[i].posted;
  int64_t loop_cpu = 0;
  callInLoop(loop, [&] { loop_cpu = -threadCpuNs(); });

  const int64_t start = nowNs();
  phase.store(kMeasuring);
  phase.notify_all();
  usleep(static_cast<useconds_t>(ms * 1000));
  phase.store(kStop);
  phase.notify_all();
  for (std::thread& thread : threads) thread.join();
  callInLoop(loop, [&] { loop_cpu += threadCpuNs(); });

  std::vector<int64_t> delays;
  int64_t posting = 0;
  int64_t waiting = 0;
  for (size_t i = 0; i < count; ++i) {
    tasks += lanes[i].posted;
    posting += lanes[i].posting_cpu_ns;
    waiting += lanes[i].waiting_cpu_ns;
    delays.insert(delays.end(), lanes[i].delays.begin(), lanes[i].delays.end());
  }
  const auto n = static_cast<double>(tasks);
  emit("rate_mps", n / static_cast<double>(finished.load() - start) * 1000.0);
  emit("cpu_ns", static_cast<double>(loop_cpu + posting) / n);
  emit("cpu_loop_ns", static_cast<double>(loop_cpu) / n);
  emit("cpu_producers_ns", static_cast<double>(posting) / n);
  emit("cpu_waiting_ns", static_cast<double>(waiting) / n);
  emitMicros("delay", delays);
}

/// Row group 2: what a post costs its caller while the loop is inside a task.
template <class Loop>
void awake(int batches) {
  constexpr uint64_t kBatch = 1024;
  pinTo(core(kProducerCore));
  Loop loop(core(kLoopCore));
  Lane lane;
  std::vector<int64_t> costs;
  for (int i = 0; i < batches; ++i) {
    std::atomic<int> hold{0};
    loop.post([phold = &hold] {
      phold->store(1, std::memory_order_release);
      while (phold->load(std::memory_order_acquire) != 2) pause();
      phold->store(3, std::memory_order_release);
    });
    spinUntil([&] { return hold.load(std::memory_order_acquire) == 1; });
    const int64_t begin = nowNs();
    for (uint64_t k = 0; k < kBatch; ++k)
      loop.post([plane = &lane, stamp = int64_t{0}] { plane->ran(stamp); });
    const int64_t cost = nowNs() - begin;
    lane.posted += kBatch;
    hold.store(2, std::memory_order_release);
    spinUntil([&] { return hold.load(std::memory_order_acquire) == 3 && lane.caughtUp(); });
    if (i >= batches / 5) costs.push_back(cost);
  }
  emit("post_ns", static_cast<double>(percentile(costs, 50)) / kBatch);
}

/// Row group 3: posts to a loop that sleeps, `gap_us` apart.
template <class Loop>
void asleep(int count, int64_t gap_us) {
  pinTo(core(kProducerCore));
  Loop loop(core(kLoopCore));
  std::vector<int64_t> trips;
  std::vector<int64_t> calls;
  for (int i = 0; i < count; ++i) {
    std::atomic<int64_t> ran{0};
    spinFor(gap_us * 1000);
    const int64_t begin = nowNs();
    loop.post([pran = &ran] { pran->store(nowNs(), std::memory_order_release); });
    const int64_t posted = nowNs();
    while (ran.load(std::memory_order_acquire) == 0) pause();
    trips.push_back(ran.load() - begin);
    calls.push_back(posted - begin);
  }
  spinFor(gap_us * 1000);  // so that stopping the loop takes the same calls every time
  emitMicros("trip", trips);
  emitMicros("call", calls);
}

/// Returns once the kernel says that thread `tid` of this process sleeps; a busy machine may take
/// its time.
inline void waitUntilAsleep(pid_t tid) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/stat";
  char state = '?';
  do {
    usleep(1000);
    if (std::FILE* stat = std::fopen(path.c_str(), "r")) {
      if (std::fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = '?';
      std::fclose(stat);
    }
  } while (state != 'S');
}

/// Row group 3: bursts of `size` posts, each to a sleeping loop. The first task holds the loop
/// until the burst is complete, so that the loop cannot fall asleep in between; count the eventfd's
/// writes with strace.
template <class Loop>
void burst(int bursts, uint64_t size) {
  pinTo(core(kProducerCore));
  Loop loop(core(kLoopCore));
  Lane lane;
  pid_t tid = 0;
  callInLoop(loop, [&] { tid = gettid(); });
  for (int i = 0; i < bursts; ++i) {
    waitUntilAsleep(tid);
    std::atomic<bool> complete{false};
    loop.post([pcomplete = &complete, plane = &lane] {
      while (!pcomplete->load(std::memory_order_acquire)) pause();
      plane->ran(0);
    });
    for (uint64_t k = 1; k < size; ++k) loop.post([plane = &lane] { plane->ran(0); });
    lane.posted += size;
    complete.store(true, std::memory_order_release);
    while (!lane.caughtUp()) pause();
  }
  waitUntilAsleep(tid);  // stopping the loop takes the same calls every time
}

/// Row group 3: a loop that has nothing to do; what it does between the two marks is read off
/// strace.
template <class Loop>
void idle(int64_t ms) {
  const auto mark = [](const char* text) {
    if (write(-1, text, std::strlen(text)) == -1) return;  // always: only strace is to see it
  };
  Loop loop(core(kLoopCore));
  callInLoop(loop, [] {});
  usleep(100'000);
  mark("bench-idle-begin");
  usleep(static_cast<useconds_t>(ms * 1000));
  mark("bench-idle-end");
}

/// Row group 4: a task that posts itself.
template <class Loop>
struct SelfPoster {
  Loop& loop;
  uint64_t left;
  int64_t wall = 0;
  int64_t cpu = 0;
  std::atomic<bool> done{false};

  void run() {
    if (--left != 0) {
      loop.post([self = this] { self->run(); });
      return;
    }
    wall += nowNs();
    cpu += threadCpuNs();
    done.store(true);
    done.notify_one();
  }
};

template <class Loop>
void self(uint64_t count) {
  Loop loop(core(kLoopCore));
  for (const uint64_t n : {count / 10, count}) {  // the first one warms up
    SelfPoster<Loop> poster{loop, n + 1};
    loop.post([p = &poster] {
      p->wall = -nowNs();
      p->cpu = -threadCpuNs();
      p->run();
    });
    poster.done.wait(false);
    if (n != count) continue;
    emit("task_ns", static_cast<double>(poster.wall) / static_cast<double>(n));
    emit("task_cpu_ns", static_cast<double>(poster.cpu) / static_cast<double>(n));
  }
}

/// Row group 6: there and back between two loops on two cores.
template <class Loop>
struct PingPong {
  Loop& near;
  Loop& far;
  uint64_t left;
  int64_t begin = 0;
  std::vector<int64_t> trips{};
  std::atomic<bool> done{false};

  void serve() {
    begin = nowNs();
    far.post([game = this] { game->near.post([game] { game->returned(); }); });
  }
  void returned() {
    trips.push_back(nowNs() - begin);
    if (--left != 0) return serve();
    done.store(true);
    done.notify_one();
  }
};

template <class Loop>
void pingPong(uint64_t count, const char* row, auto... options) {
  Loop near(core(kLoopCore), options...);
  Loop far(core(kProducerCore), options...);
  PingPong<Loop> game{near, far, count};
  game.trips.reserve(count);
  near.post([pgame = &game] { pgame->serve(); });
  game.done.wait(false);
  emitMicros(row, game.trips);
}

/// Row group 9: allocations per post once everything is warm; needs a program with alloc_count.cc
/// in it.
template <class Loop>
void allocations(uint64_t count, uint64_t (*allocated)()) {
  Loop loop(core(kLoopCore));
  Lane lane;
  lane.delays.reserve(1 << 20);
  std::atomic<double> per_post{0};
  std::thread producer([&] {
    pinTo(core(kProducerCore));
    const auto round = [&] {
      const uint64_t end = lane.posted + count;
      produce(loop, lane, kMaxOutstanding, [end](uint64_t posted) { return posted != end; });
      spinUntil([&] { return lane.caughtUp(); });
    };
    // The longest backlog there can be, with some to spare, so that no queue has to grow later.
    std::atomic<bool> held{true};
    loop.post([pheld = &held] {
      while (pheld->load(std::memory_order_acquire)) pause();
    });
    for (uint64_t i = 0; i < 2 * kMaxOutstanding; ++i)
      loop.post([plane = &lane] { plane->ran(0); });
    lane.posted += 2 * kMaxOutstanding;
    held.store(false, std::memory_order_release);
    round();
    const uint64_t before = allocated();
    round();
    per_post = static_cast<double>(allocated() - before) / static_cast<double>(count);
  });
  producer.join();
  emit("per_post", per_post);
}

}  // namespace bench
