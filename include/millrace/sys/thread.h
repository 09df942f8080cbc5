// SPDX-License-Identifier: Apache-2.0
// Threads: making, naming and pinning them, and how many processors there are for them.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/result.h>
#include <millrace/base/task.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Owns one thread. Must be joined or detached before it dies (checked). A value that moves.
class MILLRACE_API Thread {
 public:
  Thread() noexcept = default;
  Thread(Thread&& other) noexcept;
  /// REQUIRES: !joinable()
  Thread& operator=(Thread&& other) noexcept;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread();

  bool joinable() const noexcept { return joinable_; }
  /// Waits for the thread to end. REQUIRES: joinable() and not called by the thread itself.
  void join() noexcept;
  /// Lets the thread live on its own. REQUIRES: joinable()
  void detach() noexcept;
  /// The pthread handle as a number; equal to `currentThread()` in the thread. 0 if not joinable.
  std::uint64_t id() const noexcept { return id_; }

 private:
  friend Result<Thread> startThread(std::string_view name, Task body);
  explicit Thread(std::uint64_t id) noexcept : id_(id), joinable_(true) {}

  std::uint64_t id_ = 0;
  bool joinable_ = false;
};

/// Starts a thread that names itself `name` (see setThreadName), runs `body` and destroys it. What
/// `body` throws ends the process. Fails with EAGAIN, with the remedy in the text; `body` is then
/// destroyed on the calling thread.
MILLRACE_API Result<Thread> startThread(std::string_view name, Task body);

/// The handle of the calling thread, as in Thread::id().
MILLRACE_API std::uint64_t currentThread() noexcept;
/// The kernel's number of the calling thread, as in top and /proc. Right in a forked child too.
MILLRACE_API std::int64_t threadId() noexcept;
/// Names the calling thread; the kernel keeps the first 15 bytes.
MILLRACE_API void setThreadName(std::string_view name) noexcept;
/// Binds the calling thread to these processors. Fails with EINVAL if the process may use none of
/// them or the list is empty or has a negative number.
MILLRACE_API Result<void> pinThread(const std::vector<int>& cpus);
/// Sets the nice value of the calling thread. Fails with EACCES or EPERM without the right to.
MILLRACE_API Result<void> setThreadPriority(int nice);
/// How late the kernel may end timed waits of the calling thread to save power; 1 is the least, 0
/// the default of the thread that made this one.
MILLRACE_API Result<void> setTimerSlack(std::uint64_t nanos);

/// Where availableCpus looks; tests give it a tree of their own.
struct CpuSources {
  std::string ownCgroups = "/proc/self/cgroup";
  std::string cgroupRoot = "/sys/fs/cgroup";
};

/// How many processors this process may keep busy, at least 1: those its affinity allows, or the
/// cgroup quota (v2 or v1, the tightest on the way up) rounded up if that is less.
MILLRACE_API int availableCpus(const CpuSources& sources = {});

}  // namespace millrace
