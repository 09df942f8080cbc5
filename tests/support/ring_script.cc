// SPDX-License-Identifier: Apache-2.0
#include "support/ring_script.h"

#include <millrace/base/check.h>
#include <millrace/sys/calls.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>
#include <vector>

namespace millrace::test {

namespace {

/// A view of our own on a ring's memory.
class Mapped {
 public:
  Mapped(int fd, std::size_t size, std::uint64_t offset) : size_(size) {
    memory_ =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    MR_CHECK(memory_ != MAP_FAILED, "a ring cannot be mapped a second time");
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { ::munmap(memory_, size_); }
  template <class T = unsigned>
  T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + offset);
  }

 private:
  void* memory_;
  std::size_t size_;
};

unsigned loadWord(unsigned* word) noexcept {
  return std::atomic_ref<unsigned>(*word).load(std::memory_order_acquire);
}

struct Ring {
  Ring(int fd, const io_uring_params& made)
      : parameters(made),
        rings(fd,
              std::max(made.sq_off.array + made.sq_entries * sizeof(unsigned),
                       made.cq_off.cqes + made.cq_entries * sizeof(io_uring_cqe)),
              IORING_OFF_SQ_RING),
        entries(fd, made.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES) {}

  const io_uring_params parameters;
  const Mapped rings;
  const Mapped entries;
  unsigned begun = 0;                                // entries looked at
  unsigned ended = 0;                                // completions looked at
  std::map<std::uint64_t, std::uint8_t> codes;       // of operations, by name
  std::map<std::uint64_t, std::deque<int>> instead;  // results of those that the kernel never saw
  std::vector<std::uint64_t> late;                   // names to be cancelled with the next call
};

/// What the kernel may still look at while it takes an entry.
struct ShortMessage {
  msghdr message{};
  iovec part{};
};

struct Rule {
  int error = 0;
  unsigned failures = 0;
  std::size_t most = 0;
  bool onlyOnce = false;
  bool lies = false;
  int lie = 0;
  std::uint64_t count = 0;
};

struct ScriptedRings {
  std::map<int, std::unique_ptr<Ring>> rings;
  std::array<Rule, 256> rules;
  std::deque<ShortMessage> messages;
  unsigned lateCancels = 0;
  std::uint64_t notifications = 0;
  std::uint64_t faults = 0;
};

// Static, so that a thread that is in a call when its script ends finds everything in place.
std::mutex scriptMutex;
std::unique_ptr<ScriptedRings> scripted;

void shortenSend(io_uring_sqe& entry, std::size_t most) {
  if (entry.opcode == IORING_OP_SEND || entry.opcode == IORING_OP_SEND_ZC) {
    if (entry.len <= most) return;
    entry.len = static_cast<std::uint32_t>(most);
  } else {
    const auto* whole = reinterpret_cast<const msghdr*>(entry.addr);  // NOLINT: that is what it is
    ShortMessage& made = scripted->messages.emplace_back();
    made.message = *whole;
    made.part = whole->msg_iov[0];
    made.part.iov_len = std::min(made.part.iov_len, most);
    made.message.msg_iov = &made.part;
    made.message.msg_iovlen = 1;
    entry.addr = reinterpret_cast<std::uintptr_t>(&made.message);
  }
  ++scripted->faults;
}

void changeOperation(Ring& ring, io_uring_sqe& entry) {
  const std::uint8_t code = entry.opcode;
  const std::uint64_t name = entry.user_data;
  Rule& rule = scripted->rules[code];
  ++rule.count;
  ring.codes[name] = code;
  if (rule.failures != 0) {
    --rule.failures;
    ++scripted->faults;
    entry = {};
    entry.opcode = IORING_OP_NOP;
    entry.user_data = name;
    ring.instead[name].push_back(-rule.error);
    return;
  }
  if (code == IORING_OP_ASYNC_CANCEL && entry.cancel_flags == 0 && scripted->lateCancels != 0) {
    --scripted->lateCancels;
    ++scripted->faults;
    ring.late.push_back(entry.addr);
    entry = {};
    entry.opcode = IORING_OP_NOP;
    entry.flags = IOSQE_CQE_SKIP_SUCCESS;
    return;
  }
  if (rule.most != 0) shortenSend(entry, rule.most);
  if (!rule.onlyOnce) return;
  if (code == IORING_OP_RECV) entry.ioprio &= static_cast<std::uint16_t>(~IORING_RECV_MULTISHOT);
  if (code == IORING_OP_ACCEPT) {
    entry.ioprio &= static_cast<std::uint16_t>(~IORING_ACCEPT_MULTISHOT);
  }
  if (code == IORING_OP_POLL_ADD) entry.len &= ~IORING_POLL_ADD_MULTI;
}

void cancelLate(Ring& ring, int fd) {
  for (const std::uint64_t name : std::exchange(ring.late, {})) {
    io_uring_sync_cancel_reg request{};
    request.addr = name;
    request.fd = -1;
    request.timeout.tv_sec = -1;
    request.timeout.tv_nsec = -1;
    realCalls().io_uring_register(fd, IORING_REGISTER_SYNC_CANCEL, &request, 1);
  }
}

void beforeCall(Ring& ring) {
  const io_sqring_offsets& sq = ring.parameters.sq_off;
  const unsigned mask = *ring.rings.at(sq.ring_mask);
  const unsigned tail = loadWord(ring.rings.at(sq.tail));
  for (; ring.begun != tail; ++ring.begun) {
    changeOperation(ring, ring.entries.at<io_uring_sqe>(0)[ring.begun & mask]);
  }
}

void afterCall(Ring& ring) {
  const io_cqring_offsets& cq = ring.parameters.cq_off;
  const unsigned mask = *ring.rings.at(cq.ring_mask);
  const unsigned tail = loadWord(ring.rings.at(cq.tail));
  for (; ring.ended != tail; ++ring.ended) {
    io_uring_cqe& each = ring.rings.at<io_uring_cqe>(cq.cqes)[ring.ended & mask];
    if ((each.flags & IORING_CQE_F_NOTIF) != 0) ++scripted->notifications;
    if (const auto found = ring.instead.find(each.user_data); found != ring.instead.end()) {
      each.res = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) ring.instead.erase(found);
      continue;
    }
    Rule& rule = scripted->rules[ring.codes[each.user_data]];
    if (each.res > 0 && std::exchange(rule.lies, false)) {
      each.res = rule.lie;
      ++scripted->faults;
    }
  }
}

template <class F>
void withRing(int fd, F&& look) {
  const std::lock_guard lock(scriptMutex);
  if (scripted == nullptr) return;
  if (const auto found = scripted->rings.find(fd); found != scripted->rings.end())
    look(*found->second);
}

int setUpRing(unsigned entries, io_uring_params* parameters) {
  const int fd = realCalls().io_uring_setup(entries, parameters);
  if (fd < 0) return fd;
  const std::lock_guard lock(scriptMutex);
  if (scripted != nullptr) scripted->rings[fd] = std::make_unique<Ring>(fd, *parameters);
  return fd;
}

int enterRing(int fd, unsigned submit, unsigned waitFor, unsigned flags, const void* argument,
              std::size_t size) {
  withRing(fd, [fd](Ring& ring) {
    cancelLate(ring, fd);
    beforeCall(ring);
  });
  const int result = realCalls().io_uring_enter(fd, submit, waitFor, flags, argument, size);
  const int error = errno;
  withRing(fd, afterCall);
  errno = error;
  return result;
}

// A view keeps a ring alive.
int closeRing(int fd) {
  {
    const std::lock_guard lock(scriptMutex);
    if (scripted != nullptr) scripted->rings.erase(fd);
  }
  return realCalls().close(fd);
}

const Calls& scriptedCalls() {
  static const Calls table = [] {
    Calls made = realCalls();
    made.io_uring_setup = &setUpRing;
    made.io_uring_enter = &enterRing;
    made.close = &closeRing;
    return made;
  }();
  return table;
}

}  // namespace

RingScript::RingScript() {
  const std::lock_guard lock(scriptMutex);
  MR_CHECK(scripted == nullptr, "there is a RingScript already");
  scripted = std::make_unique<ScriptedRings>();
  replaceCalls(&scriptedCalls());
}

RingScript::~RingScript() {
  replaceCalls(nullptr);
  const std::lock_guard lock(scriptMutex);
  scripted.reset();
}

RingScript& RingScript::fail(std::uint8_t code, int error, unsigned times) {
  const std::lock_guard lock(scriptMutex);
  scripted->rules[code].error = error;
  scripted->rules[code].failures = times;
  return *this;
}

RingScript& RingScript::shorten(std::uint8_t code, std::size_t most) {
  const std::lock_guard lock(scriptMutex);
  scripted->rules[code].most = most;
  return *this;
}

RingScript& RingScript::onlyOnce(std::uint8_t code) {
  const std::lock_guard lock(scriptMutex);
  scripted->rules[code].onlyOnce = true;
  return *this;
}

RingScript& RingScript::delayCancels(unsigned times) {
  const std::lock_guard lock(scriptMutex);
  scripted->lateCancels = times;
  return *this;
}

RingScript& RingScript::lie(std::uint8_t code, int result) {
  const std::lock_guard lock(scriptMutex);
  scripted->rules[code].lies = true;
  scripted->rules[code].lie = result;
  return *this;
}

std::uint64_t RingScript::count(std::uint8_t code) const {
  const std::lock_guard lock(scriptMutex);
  return scripted->rules[code].count;
}

std::uint64_t RingScript::notifications() const {
  const std::lock_guard lock(scriptMutex);
  return scripted->notifications;
}

std::uint64_t RingScript::faults() const {
  const std::lock_guard lock(scriptMutex);
  return scripted->faults;
}

}  // namespace millrace::test
