// SPDX-License-Identifier: Apache-2.0
// The operations of clients: who they are, what they receive. ring_sends.cc has the rest.
#include "loop/uring/uring_selector.h"

#include <millrace/base/check.h>
#include <millrace/base/clock.h>
#include <millrace/base/log.h>
#include <millrace/buffer/buffer_pool.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/readiness_io.h>
#include <millrace/sys/fd.h>

#include <algorithm>
#include <cerrno>
#include <typeinfo>
#include <utility>

namespace millrace {

// --- clients ---

std::uint64_t UringSelector::enter(int fd, IoClient& client) {
  const std::uint32_t place = slots_.take();
  Slot& slot = slots_[place];
  slot.client = &client;
  slot.fd = fd;
  slot.wanted = false;
  clients_->store(clients_->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return idOf(slot);
}

std::uint64_t UringSelector::idOf(const Slot& slot) const noexcept {
  return clientId(slot.sequence, slots_.placeOf(slot));
}

UringSelector::Slot* UringSelector::find(std::uint64_t id) noexcept {
  Slot& slot = slots_[static_cast<std::uint32_t>(id)];
  return clientId(slot.sequence, static_cast<std::uint32_t>(id)) == id ? &slot : nullptr;
}

// Entries name descriptors by number: they must reach the kernel before the number can become another
// file's. What is not done at once is cancelled, because it keeps the file open.
void UringSelector::leave(std::uint64_t id) noexcept {
  Slot* slot = find(id);
  if (slot == nullptr || slot->client == nullptr) return;
  clients_->store(clients_->load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  slot->client = nullptr;
  slot->wanted = false;
  endNow(*slot);
  slot->fd = -1;
  freeIfUnused(*slot);
}

void UringSelector::tellClientsOfTheEnd() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].client != nullptr) slots_[i].client->shuttingDown();
  }
}

void UringSelector::freeIfUnused(Slot& slot) noexcept {
  if (slot.client != nullptr || slot.inFlight != 0) return;
  ++slot.sequence;
  slots_.give(slots_.placeOf(slot));
}

// --- beginning ---

io_uring_sqe& UringSelector::begin(Slot& slot, Kind kind, std::uint8_t operation) {
  io_uring_sqe& made = entry();
  made.opcode = operation;
  made.fd = slot.fd;
  made.user_data = nameOf(kind, slot.sequence, slots_.placeOf(slot));
  ++slot.inFlight;
  ++inFlight_;
  return made;
}

bool UringSelector::receive(std::uint64_t id, BufferPool& pool) {
  Slot* slot = find(id);
  MR_CHECK(slot != nullptr && !slot->wanted, "receive() of a client that does so");
  if (!isUsable()) return false;
  if (!buffers_.isOpen()) {
    if (Result<void> opened = buffers_.open(ring_, pool); !opened) {
      log(LogLevel::debug, "loop", "no receive buffers for a ring: ", opened.error().message());
      return false;
    }
  }
  slot->wanted = true;
  slot->repeats = Kind::receive;
  if (!slot->repeating) beginRepeating(*slot);
  return true;
}

bool UringSelector::accept(std::uint64_t id) {
  Slot* slot = find(id);
  MR_CHECK(slot != nullptr && !slot->repeating, "accept() of a client that does so");
  if (!isUsable()) return false;
  slot->wanted = true;
  slot->repeats = Kind::accept;
  beginRepeating(*slot);
  return true;
}

void UringSelector::beginRepeating(Slot& slot) {
  slot.repeating = true;
  if (slot.repeats == Kind::accept) {
    io_uring_sqe& operation = begin(slot, Kind::accept, IORING_OP_ACCEPT);
    operation.ioprio = IORING_ACCEPT_MULTISHOT;
    operation.accept_flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    return;
  }
  io_uring_sqe& operation = begin(slot, Kind::receive, IORING_OP_RECV);
  operation.ioprio = IORING_RECV_MULTISHOT | IORING_RECVSEND_POLL_FIRST;
  operation.flags = IOSQE_BUFFER_SELECT;
  operation.buf_group = ReceiveBuffers::kGroup;
}

std::uint64_t UringSelector::nameOfRepeated(const Slot& slot) const noexcept {
  return nameOf(slot.repeats, slot.sequence, slots_.placeOf(slot));
}

void UringSelector::stop(std::uint64_t id) noexcept {
  Slot* slot = find(id);
  if (slot == nullptr || !slot->wanted) return;
  slot->wanted = false;
  if (slot->repeating) cancel(nameOfRepeated(*slot), id);
}

// The kernel is told and its last word awaited: no connection is lost.
std::vector<Fd> UringSelector::stopAccepting(std::uint64_t id) {
  std::vector<Fd> taken;
  Slot* slot = find(id);
  if (slot == nullptr) return taken;
  const std::uint64_t name = nameOf(Kind::accept, slot->sequence, slots_.placeOf(*slot));
  slot->wanted = false;
  endNow(*slot);
  for (std::size_t i = delivered_; i < done_.size(); ++i) {
    if (done_[i].what != name) continue;
    const Done done = std::exchange(done_[i], Done{0, 0, IORING_CQE_F_MORE});
    if (done.result >= 0) taken.emplace_back(done.result);
    static_cast<void>(goesOn(*slot, done));
  }
  return taken;
}

// --- ending ---

// By name: the number may be another file's, or nobody's. The kernel says nothing if it has found the
// operation, else `refused` (0: that is of no interest).
void UringSelector::cancel(std::uint64_t name, std::uint64_t refused) noexcept {
  if (!isUsable()) return;
  io_uring_sqe& operation = entry();
  operation.opcode = IORING_OP_ASYNC_CANCEL;
  operation.fd = -1;
  operation.addr = name;
  operation.flags = IOSQE_CQE_SKIP_SUCCESS;
  operation.user_data = refused;
}

// Most often the operation was over by itself. But a send whose socket became writable just when the kernel
// was about to watch it is on its way in between, and cannot be found.
void UringSelector::cancelAgain() noexcept {
  std::vector<std::uint64_t> ids = std::exchange(refused_, {});
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const std::uint64_t id : ids) {
    const Slot* slot = find(id);
    if (slot == nullptr) continue;
    if (slot->repeating && !slot->hasEnded && !slot->wanted) cancel(nameOfRepeated(*slot), id);
    const Send* send = slot->send;
    if (send != nullptr && send->doneAt == 0 && (send->stopped || slot->client == nullptr)) {
      cancel(nameOf(*send), id);
    }
  }
}

// What a client has begun is cancelled and over, and so does not keep its file open any more. One call does
// it, unless a cancel finds nothing (see above), or another processor is just waking the operation and has
// to hand it over first: that is waited for.
void UringSelector::endNow(const Slot& slot) noexcept {
  if (slot.inFlight == 0 || !isUsable()) return;
  collect(later_);
  if (isOver(slot)) return;
  const std::int64_t until = saturatingAdd(Clock::real().nanos(), kPatienceNanos);
  for (bool first = true;; first = false) {
    if (first || ring_.queued() == 0) {
      if (slot.repeating && !slot.hasEnded) cancel(nameOfRepeated(slot), 0);
      if (slot.send != nullptr && slot.send->doneAt == 0) cancel(nameOf(*slot.send), 0);
    }
    flushAndCollect();
    if (isOver(slot)) return;
    if (Clock::real().nanos() >= until) break;
    static_cast<void>(ring_.enter(kLastLookNanos));
  }
  log(LogLevel::warn, "loop", "the kernel does not end an operation of fd ", slot.fd,
      ": its file stays open until it has");
  refused_.push_back(idOf(slot));
}

bool UringSelector::isOver(const Slot& slot) noexcept {
  return (!slot.repeating || slot.hasEnded) && (slot.send == nullptr || slot.send->doneAt != 0);
}

// --- completions ---

void UringSelector::deliver(IoLoop& loop) {
  // Clients may begin operations meanwhile, and so find more: those wait for the next turn.
  const std::size_t end = done_.size();
  while (delivered_ < end) {
    const Done done = done_[delivered_++];
    if (__builtin_expect(done.what == 0, 0)) continue;  // finishSend() has it
    // The end, or a failure, is not part of what comes before it.
    const bool moreNow =
        delivered_ < end && done_[delivered_].what == done.what && done_[delivered_].result > 0;
    deliverOne(done, moreNow, loop);
  }
  // What clients sent does not wait for tasks.
  if (ring_.queued() != 0 && loop.hasTasks()) static_cast<void>(ring_.submit());
}

void UringSelector::over(Slot& slot) noexcept {
  --slot.inFlight;
  --inFlight_;
}

void UringSelector::deliverOne(const Done& done, bool moreNow, IoLoop& loop) {
  RingCompletion completion{};
  if (kindOf(done) == Kind::receive) {
    Slot& slot = slotOf(done);
    if (received(slot, done, completion)) {
      completion.moreNow = moreNow;
      tell(slot, completion, loop);
    }
    return;
  }
  if (kindOf(done) == Kind::accept) {
    Slot& slot = slotOf(done);
    if (!accepted(slot, done, completion)) return;
    completion.moreNow = moreNow;
    tell(slot, completion, loop);
    return;
  }
  ByteBuf rest;
  Slot& slot = slotOf(done);
  if (sent(sendOf(done), done, completion, rest)) tell(slot, completion, loop);
}

// The client of an operation, who may have left.
inline UringSelector::Slot& UringSelector::slotOf(const Done& done) noexcept {
  const auto place = static_cast<std::uint32_t>(done.what);
  if (kindOf(done) == Kind::sendInPlace) return slots_[inPlace_[place]->client];
  Slot& slot = slots_[place];
  MR_CHECK(clientId(slot.sequence, place) ==
               clientId(static_cast<std::uint32_t>(done.what >> 32), place),
           "a completion of an operation that has ended");
  return slot;
}

inline void UringSelector::tell(Slot& slot, const RingCompletion& completion, IoLoop& loop) {
  IoClient& client = *slot.client;
  loop.callbackBegins(typeid(client));
  client.completed(completion);
  loop.callbackEnded();
}

// True if it goes on, or was begun anew because only the kernel had ended it.
inline bool UringSelector::goesOn(Slot& slot, const Done& done) {
  if (__builtin_expect((done.flags & IORING_CQE_F_MORE) != 0, 1)) return true;
  over(slot);
  slot.repeating = false;
  slot.hasEnded = false;
  if (done.result == -ENOBUFS && kindOf(done) == Kind::receive) buffers_.ranDry();
  if (slot.client == nullptr || !slot.wanted) return false;
  const bool brought = done.result > 0 || (done.result == 0 && kindOf(done) == Kind::accept);
  // Cancelled, but wanted again since.
  const bool again = brought || done.result == -ECANCELED || done.result == -EINTR ||
                     (done.result == -ENOBUFS && kindOf(done) == Kind::receive);
  if (again) {
    beginRepeating(slot);
  } else {
    slot.wanted = false;
  }
  return again;
}

// True if the client is to hear of it.
inline bool UringSelector::received(Slot& slot, const Done& done, RingCompletion& completion) {
  completion.kind = RingCompletion::received;
  completion.result = done.result;
  if ((done.flags & IORING_CQE_F_BUFFER) != 0) {
    const auto number = static_cast<std::uint16_t>(done.flags >> IORING_CQE_BUFFER_SHIFT);
    completion.block = buffers_.take(number);
    // Never more than there is room for, whatever stands between us and the kernel says.
    completion.result = std::min(completion.result, static_cast<int>(ReceiveBuffers::kSize));
  }
  completion.last = !goesOn(slot, done);
  const bool isTold = slot.client != nullptr && (completion.last || done.result > 0);
  if (__builtin_expect(completion.block != nullptr && (!isTold || done.result <= 0), 0)) {
    std::exchange(completion.block, nullptr)->drop();
  }
  // It was told to stop, and found no buffer, or was disturbed, before it did.
  if (done.result == -ENOBUFS || done.result == -EINTR) completion.result = -ECANCELED;
  if (slot.client == nullptr) freeIfUnused(slot);
  return isTold;
}

// The same for a connection. Whoever comes when the client has left is closed.
bool UringSelector::accepted(Slot& slot, const Done& done, RingCompletion& completion) {
  completion.kind = RingCompletion::accepted;
  completion.result = done.result;
  completion.last = !goesOn(slot, done);
  if (slot.client != nullptr) return completion.last || done.result >= 0;
  dropAccepted(done);
  freeIfUnused(slot);
  return false;
}

void UringSelector::dropAccepted(const Done& done) noexcept {
  if (kindOf(done) == Kind::accept && done.result >= 0) Fd(done.result).reset();
}

}  // namespace millrace
