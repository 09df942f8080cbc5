// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/thread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace millrace {

namespace {

static_assert(sizeof(pthread_t) <= sizeof(std::uint64_t));

struct Start {
  std::string name;
  Task body;
};

// noexcept: what the body throws ends the process where it was thrown, with the stack to see.
void* entry(void* argument) noexcept {
  std::unique_ptr<Start> start(static_cast<Start*>(argument));
  setThreadName(start->name);
  start->body();
  return nullptr;
}

thread_local std::int64_t tlsThreadId = 0;

// In a forked child the one thread there is has another number.
[[maybe_unused]] const int kForgetAtFork =
    ::pthread_atfork(nullptr, nullptr, []() noexcept { tlsThreadId = 0; });

constexpr const char* kTooManyThreads =
    "no more threads: raise ulimit -u, pids.max of the cgroup or kernel.threads-max, or use fewer "
    "loops";

}  // namespace

Thread::Thread(Thread&& other) noexcept
    : id_(std::exchange(other.id_, 0)), joinable_(std::exchange(other.joinable_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  MR_CHECK(!joinable_, "a Thread was assigned to before it was joined or detached");
  id_ = std::exchange(other.id_, 0);
  joinable_ = std::exchange(other.joinable_, false);
  return *this;
}

Thread::~Thread() { MR_CHECK(!joinable_, "a Thread died before it was joined or detached"); }

void Thread::join() noexcept {
  MR_CHECK(joinable_, "Thread::join() without a thread");
  const int answer = ::pthread_join(static_cast<pthread_t>(id_), nullptr);
  MR_CHECK(answer == 0, "Thread::join() by the thread itself");
  id_ = 0;
  joinable_ = false;
}

void Thread::detach() noexcept {
  MR_CHECK(joinable_, "Thread::detach() without a thread");
  ::pthread_detach(static_cast<pthread_t>(id_));
  id_ = 0;
  joinable_ = false;
}

Result<Thread> startThread(std::string_view name, Task body) {
  auto start = std::make_unique<Start>(Start{std::string(name), std::move(body)});
  pthread_t made{};
  const int failure = calls().pthread_create(&made, nullptr, &entry, start.get());
  if (failure != 0) {
    std::string detail(name);
    if (failure == EAGAIN) detail.append(" (").append(kTooManyThreads).append(")");
    return Error::fromErrno(failure, "pthread_create", detail);
  }
  static_cast<void>(start.release());  // the thread owns it now
  return Thread(static_cast<std::uint64_t>(made));
}

std::uint64_t currentThread() noexcept { return static_cast<std::uint64_t>(::pthread_self()); }

std::int64_t threadId() noexcept {
  if (tlsThreadId == 0) tlsThreadId = static_cast<std::int64_t>(::syscall(SYS_gettid));
  return tlsThreadId;
}

void setThreadName(std::string_view name) noexcept {
  std::array<char, 16> text{};
  std::copy_n(name.begin(), std::min(name.size(), text.size() - 1), text.begin());
  calls().prctl(PR_SET_NAME, reinterpret_cast<unsigned long>(text.data()));
}

Result<void> pinThread(const std::vector<int>& cpus) {
  std::string detail;
  std::vector<cpu_set_t> mask;
  for (const int cpu : cpus) {
    detail.append(detail.empty() ? "cpus " : ",").append(std::to_string(cpu));
    if (cpu < 0) return Error::fromErrno(EINVAL, "sched_setaffinity", detail);
    const auto index = static_cast<std::size_t>(cpu);
    const std::size_t needed = index / CPU_SETSIZE + 1;
    if (mask.size() < needed) mask.resize(needed);
    CPU_SET(index % CPU_SETSIZE, &mask[index / CPU_SETSIZE]);
  }
  if (mask.empty()) return Error::fromErrno(EINVAL, "sched_setaffinity", "no cpus");
  if (calls().sched_setaffinity(0, mask.size() * sizeof(cpu_set_t), mask.data()) == 0) return {};
  return Error::fromErrno(errno, "sched_setaffinity", detail);
}

Result<void> setThreadPriority(int nice) {
  // To Linux a thread is a process of its own here: 0 is the caller, not its siblings.
  if (calls().setpriority(PRIO_PROCESS, 0, nice) == 0) return {};
  return Error::fromErrno(errno, "setpriority", std::to_string(nice));
}

Result<void> setTimerSlack(std::uint64_t nanos) {
  if (calls().prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(nanos)) == 0) return {};
  return Error::fromErrno(errno, "prctl(PR_SET_TIMERSLACK)", std::to_string(nanos));
}

}  // namespace millrace
