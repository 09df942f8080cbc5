// SPDX-License-Identifier: Apache-2.0
//
// What every bench program shares: pinning, clocks, percentiles, the result line, a small task.
//
// A program prints one line per figure, `row<TAB>value`; the driver (`run`) puts them into tables.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <string_view>
#include <sys/resource.h>
#include <time.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace bench {

inline constexpr size_t kCacheLine = 128;  // two lines: the prefetcher fetches in pairs

// --- clocks

inline int64_t readClock(clockid_t clock) {
  timespec ts{};
  clock_gettime(clock, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

inline int64_t nowNs() { return readClock(CLOCK_MONOTONIC); }
inline int64_t threadCpuNs() { return readClock(CLOCK_THREAD_CPUTIME_ID); }

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Burns `ns` without a system call, so that the core of the caller does not halt.
inline void spinFor(int64_t ns) {
  const int64_t end = nowNs() + ns;
  while (nowNs() < end) pause();
}

/// Spins until `condition()`, giving the core away now and then (two producers share one).
template <class Condition>
void spinUntil(Condition condition) {
  for (int i = 0; !condition(); ++i) {
    if (i < 64) {
      pause();
    } else {
      i = 0;
      sched_yield();
    }
  }
}

// --- cores

/// The n-th core this process was given; the last one if there are fewer.
inline int core(int n) {
  static const std::vector<int> cores = [] {
    std::vector<int> found;
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(static_cast<size_t>(i), &set)) found.push_back(i);
    }
    return found;
  }();
  return cores[std::min(static_cast<size_t>(n), cores.size() - 1)];
}

inline void pinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// --- figures

inline void emit(const char* row, double value) { std::printf("%s\t%.6g\n", row, value); }

/// The p-th percentile (0 to 100), nearest rank.
inline int64_t percentile(std::vector<int64_t>& values, double p) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(p / 100.0 * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(rank), values.end());
  return values[rank];
}

/// Prints `<row>_p50_us` and `<row>_p99_us` of nanosecond values.
inline void emitMicros(const std::string_view row, std::vector<int64_t>& ns) {
  const auto print = [&](int p) {
    std::printf("%.*s_p%d_us\t%.6g\n", static_cast<int>(row.size()), row.data(), p,
                static_cast<double>(percentile(ns, p)) / 1000.0);
  };
  print(50);
  print(99);
}

/// Small, fast and the same everywhere (xorshift64*).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 2685821657736338717ULL;
  }
  uint64_t below(uint64_t bound) { return (next() >> 11) % bound; }

 private:
  uint64_t state_;
};

/// Resident bytes of this process.
inline int64_t residentBytes() {
  long pages = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    std::fclose(f);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

inline void raiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// --- a task for the peers that bring no task type of their own

/// A function pointer and 16 bytes of arguments: what a C program would queue.
class RawTask {
 public:
  RawTask() = default;

  template <class F>
  requires(sizeof(F) <= 16 && std::is_trivially_copyable_v<F> &&
           !std::is_same_v<std::remove_cvref_t<F>, RawTask>) explicit RawTask(const F& f)
      : call_([](const unsigned char* bytes) {
          alignas(F) unsigned char copy[sizeof(F)];
          std::memcpy(copy, bytes, sizeof(F));
          (*std::launder(reinterpret_cast<F*>(copy)))();
        }) {
    std::memcpy(bytes_, &f, sizeof(F));
  }

  void operator()() const { call_(bytes_); }

 private:
  void (*call_)(const unsigned char*) = nullptr;
  alignas(8) unsigned char bytes_[16];
};

static_assert(sizeof(RawTask) == 24);

}  // namespace bench
