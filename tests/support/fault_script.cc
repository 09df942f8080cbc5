// SPDX-License-Identifier: Apache-2.0
#include "support/fault_script.h"

#include <millrace/base/check.h>
#include <millrace/sys/calls.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <linux/futex.h>
#include <stdexcept>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <tuple>
#include <type_traits>

namespace millrace::test {

namespace {

// Name, the errno of failOverall (0: that call does not fail in a healthy program), and whether a
// signal breaks it so that the caller tries again. In the order of struct Calls.
#define MR_CALLS(X)                   \
  X(close, 0, false)                  \
  X(open, EMFILE, false)              \
  X(unlink, EACCES, false)            \
  X(fcntl, 0, false)                  \
  X(ioctl, 0, false)                  \
  X(pipe2, EMFILE, false)             \
  X(read, EINTR, true)                \
  X(write, EINTR, true)               \
  X(readv, EINTR, true)               \
  X(writev, EINTR, true)              \
  X(pread, EIO, true)                 \
  X(fstat, EIO, false)                \
  X(sendfile, EIO, true)              \
  X(splice, ENOMEM, true)             \
  X(epoll_create1, EMFILE, false)     \
  X(epoll_ctl, ENOMEM, false)         \
  X(epoll_wait, EINTR, true)          \
  X(epoll_pwait2, EINTR, true)        \
  X(ppoll, EINTR, true)               \
  X(eventfd, EMFILE, false)           \
  X(signalfd, EMFILE, false)          \
  X(io_uring_setup, ENOMEM, false)    \
  X(io_uring_enter, EINTR, true)      \
  X(io_uring_register, ENOMEM, false) \
  X(futex, EINTR, true)               \
  X(pthread_create, EAGAIN, false)    \
  X(pthread_sigmask, 0, false)        \
  X(sigtimedwait, 0, false)           \
  X(sigaction, 0, false)              \
  X(rt_tgsigqueueinfo, EAGAIN, false) \
  X(prctl, EPERM, false)              \
  X(setpriority, EPERM, false)        \
  X(sched_setaffinity, EPERM, false)  \
  X(sched_getaffinity, EPERM, false)  \
  X(socket, EMFILE, false)            \
  X(socketpair, EMFILE, false)        \
  X(bind, EADDRINUSE, false)          \
  X(listen, EADDRINUSE, false)        \
  X(accept4, EMFILE, true)            \
  X(connect, ECONNREFUSED, false)     \
  X(shutdown, ENOTCONN, false)        \
  X(getsockopt, ENOBUFS, false)       \
  X(setsockopt, ENOBUFS, false)       \
  X(getsockname, ENOBUFS, false)      \
  X(getpeername, ENOTCONN, false)     \
  X(recv, ECONNRESET, true)           \
  X(send, EPIPE, true)                \
  X(recvmsg, ECONNRESET, true)        \
  X(sendmsg, EPIPE, true)             \
  X(recvmmsg, ECONNREFUSED, true)     \
  X(sendmmsg, ENOBUFS, true)

struct CallInfo {
  std::string_view name;
  int fault;
  bool interruptible;
};

#define MR_INFO(name, fault, interruptible) CallInfo{#name, fault, interruptible},
constexpr std::array kInfo{MR_CALLS(MR_INFO)};
#undef MR_INFO
constexpr std::size_t kCount = kInfo.size();
static_assert(sizeof(Calls) == kCount * sizeof(void (*)()), "a call is missing in the list above");

enum Id : std::size_t {
#define MR_ID(name, fault, interruptible) id_##name,
  MR_CALLS(MR_ID)
#undef MR_ID
};

struct CallState {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> from{0};   // fails from this call on; 0: never
  std::atomic<std::uint64_t> until{0};  // and no more from this one on
  std::atomic<int> error{0};
  std::atomic<bool> counted{true};  // among the fallible ones
};

// Static, so that a thread that is in a call when its script ends finds everything in place.
struct State {
  std::array<CallState, kCount> calls;
  std::atomic<std::uint64_t> fallible{0};
  std::atomic<std::uint64_t> failOverall{0};
  std::atomic<std::uint64_t> faults{0};
  std::atomic<std::size_t> lastFault{kCount};
  std::atomic<std::size_t> mostBytes{0};  // 0: as many as there are
  std::atomic<bool> interrupt{false};
  std::atomic<std::uint64_t> script{0};  // number of the script, for what threads remember
  std::atomic<bool> active{false};
};

State state;

struct Interrupted {
  std::uint64_t script = 0;
  std::array<bool, kCount> broken{};
};
thread_local Interrupted tlsInterrupted;

bool breakFirstTry(std::size_t id) noexcept {
  if (!state.interrupt.load() || !kInfo[id].interruptible) return false;
  Interrupted& mine = tlsInterrupted;
  if (mine.script != state.script.load()) mine = Interrupted{state.script.load(), {}};
  mine.broken[id] = !mine.broken[id];
  return mine.broken[id];
}

int report(std::size_t id, int error) noexcept {
  state.lastFault.store(id);
  state.faults.fetch_add(1);
  return error;
}

// Counts the call; the errno it is to fail with, or 0. `plausible`: it may fail with these
// arguments.
int before(std::size_t id, bool plausible) noexcept {
  CallState& call = state.calls[id];
  const std::uint64_t k = call.count.fetch_add(1) + 1;
  const std::uint64_t from = call.from.load();
  if (from != 0 && k >= from && k < call.until.load()) return report(id, call.error.load());
  if (!plausible) return 0;
  if (kInfo[id].fault != 0 && call.counted.load()) {
    const std::uint64_t overall = state.fallible.fetch_add(1) + 1;
    if (overall == state.failOverall.load()) return report(id, kInfo[id].fault);
  }
  return breakFirstTry(id) ? report(id, EINTR) : 0;
}

// Waking never fails, nor does ending a watch that exists.
template <std::size_t id, class... A>
bool isPlausible(const A&... args) noexcept {
  const std::tuple<const A&...> all(args...);
  if constexpr (id == id_futex) return (std::get<1>(all) & FUTEX_CMD_MASK) != FUTEX_WAKE;
  if constexpr (id == id_epoll_ctl) return std::get<1>(all) != EPOLL_CTL_DEL;
  return true;
}

// Where a part of the bytes is an honest answer: not on eventfds, nor where a message is a unit.
bool isStream(int fd) noexcept {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return false;
  if (S_ISREG(about.st_mode) || S_ISFIFO(about.st_mode)) return true;
  if (!S_ISSOCK(about.st_mode)) return false;
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

std::size_t limitFor(int fd) noexcept {
  const std::size_t most = state.mostBytes.load();
  return most != 0 && isStream(fd) ? most : static_cast<std::size_t>(-1);
}

// As much of the parts as one part with at most `most` bytes can hold.
iovec firstPart(const iovec* parts, std::size_t count, std::size_t most) noexcept {
  const iovec* at =
      std::find_if(parts, parts + count, [](const iovec& p) { return p.iov_len > 0; });
  if (at == parts + count) return {};
  return {at->iov_base, std::min(at->iov_len, most)};
}

template <std::size_t id, auto member, class... A>
auto forward(A... args) {
  return (realCalls().*member)(args...);
}

template <auto member, class P, class... F>
std::ptrdiff_t clipBytes(int fd, P bytes, std::size_t size, F... flags) {
  return (realCalls().*member)(fd, bytes, std::min(size, limitFor(fd)), flags...);
}

template <auto member>
std::ptrdiff_t clipParts(int fd, const iovec* parts, int count) {
  const std::size_t most = limitFor(fd);
  if (most == static_cast<std::size_t>(-1)) return (realCalls().*member)(fd, parts, count);
  const iovec first = firstPart(parts, static_cast<std::size_t>(count), most);
  return (realCalls().*member)(fd, &first, 1);
}

template <auto member, class M>
std::ptrdiff_t clipMessage(int fd, M* message, int flags) {
  const std::size_t most = limitFor(fd);
  if (most == static_cast<std::size_t>(-1)) return (realCalls().*member)(fd, message, flags);
  msghdr shorter = *message;
  iovec first = firstPart(message->msg_iov, message->msg_iovlen, most);
  shorter.msg_iov = &first;
  shorter.msg_iovlen = 1;
  const std::ptrdiff_t moved = (realCalls().*member)(fd, &shorter, flags);
  if constexpr (!std::is_const_v<M>) {
    message->msg_namelen = shorter.msg_namelen;
    message->msg_controllen = shorter.msg_controllen;
    message->msg_flags = shorter.msg_flags;
  }
  return moved;
}

// One function per call that counts, fails or clips, then asks the kernel.
template <std::size_t id, auto member, class F>
struct Hook;
template <std::size_t id, auto member, class R, class... A>
struct Hook<id, member, R (*)(A...)> {
  static R call(A... args) {
    const int error = before(id, isPlausible<id>(args...));
    if (error != 0) {
      if constexpr (id == id_pthread_create || id == id_pthread_sigmask) return error;
      errno = error;
      return -1;
    }
    if constexpr (id == id_read || id == id_write || id == id_recv || id == id_send) {
      return clipBytes<member>(args...);
    } else if constexpr (id == id_readv || id == id_writev) {
      return clipParts<member>(args...);
    } else if constexpr (id == id_recvmsg || id == id_sendmsg) {
      return clipMessage<member>(args...);
    } else {
      return forward<id, member>(args...);
    }
  }
};

#define MR_HOOK(name, fault, interruptible) \
  .name = &Hook<id_##name, &Calls::name, decltype(Calls::name)>::call,
constexpr Calls kHooked{MR_CALLS(MR_HOOK)};
#undef MR_HOOK

std::size_t idOf(std::string_view name) {
  for (std::size_t id = 0; id < kCount; ++id) {
    if (kInfo[id].name == name) return id;
  }
  throw std::invalid_argument("FaultScript: there is no call \"" + std::string(name) + "\"");
}

}  // namespace

FaultScript::FaultScript() {
  MR_CHECK(!state.active.exchange(true), "there is a FaultScript already");
  for (CallState& call : state.calls) {
    call.count.store(0);
    call.from.store(0);
    call.counted.store(true);
  }
  state.fallible.store(0);
  state.failOverall.store(0);
  state.faults.store(0);
  state.lastFault.store(kCount);
  state.mostBytes.store(0);
  state.interrupt.store(false);
  state.script.fetch_add(1);
  replaceCalls(&kHooked);
}

FaultScript::~FaultScript() {
  replaceCalls(nullptr);
  state.active.store(false);
}

FaultScript& FaultScript::fail(std::string_view name, std::uint64_t k, int error,
                               std::uint64_t times) {
  CallState& call = state.calls[idOf(name)];
  call.from.store(0);  // no rule while it is being changed
  call.error.store(error);
  call.until.store(times > UINT64_MAX - k ? UINT64_MAX : k + times);
  call.from.store(k);
  return *this;
}

FaultScript& FaultScript::failAll(std::string_view name, int error) {
  return fail(name, 1, error, UINT64_MAX);
}

FaultScript& FaultScript::failOverall(std::uint64_t k) {
  state.failOverall.store(k);
  return *this;
}

FaultScript& FaultScript::only(const std::vector<std::string_view>& names) {
  for (CallState& call : state.calls) call.counted.store(false);
  for (const std::string_view name : names) state.calls[idOf(name)].counted.store(true);
  return *this;
}

FaultScript& FaultScript::shortTransfers(std::size_t most) {
  state.mostBytes.store(most);
  return *this;
}

FaultScript& FaultScript::interruptFirstTries() {
  state.interrupt.store(true);
  return *this;
}

std::uint64_t FaultScript::count(std::string_view name) const {
  return state.calls[idOf(name)].count.load();
}

std::uint64_t FaultScript::total() const {
  std::uint64_t sum = 0;
  for (const CallState& call : state.calls) sum += call.count.load();
  return sum;
}

std::uint64_t FaultScript::fallible() const { return state.fallible.load(); }

std::uint64_t FaultScript::faults() const { return state.faults.load(); }

std::string_view FaultScript::lastFault() const {
  const std::size_t id = state.lastFault.load();
  return id == kCount ? std::string_view() : kInfo[id].name;
}

int forEachFault(const std::function<void(FaultScript&)>& scenario,
                 const std::vector<std::string_view>& names) {
  for (int k = 1;; ++k) {
    FaultScript script;
    if (!names.empty()) script.only(names);
    script.failOverall(static_cast<std::uint64_t>(k));
    SCOPED_TRACE("fallible call number " + std::to_string(k) + " fails in this run");
    const bool wasFine = !testing::Test::HasFailure();
    scenario(script);
    if (wasFine && testing::Test::HasFailure()) {
      ADD_FAILURE() << "the call that was made to fail: " << script.lastFault();
    }
    const bool met = script.fallible() >= static_cast<std::uint64_t>(k);
    if (!met || testing::Test::HasFatalFailure()) return k - 1;
  }
}

}  // namespace millrace::test
