// SPDX-License-Identifier: Apache-2.0
// The operations of clients: who they are, what they receive. ring_sends.cc has the rest.
#include "loop/uring/uring_selector.h"

#include <millrace/base/check.h>
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
  return clientId(slot.sequence, place);
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
  if (slot->inFlight != 0) {
    endNow(*slot, slot->repeating ? nameOfRepeated(*slot) : 0,
           slot->send != nullptr ? nameOf(*slot->send) : 0);
  }
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
  if (slot->repeating) cancel(*slot, nameOfRepeated(*slot));
}

// The kernel is told and asked for its last word at once: no connection is lost.
std::vector<Fd> UringSelector::stopAccepting(std::uint64_t id) {
  std::vector<Fd> taken;
  Slot* slot = find(id);
  if (slot == nullptr) return taken;
  const std::uint64_t name = nameOf(Kind::accept, slot->sequence, slots_.placeOf(*slot));
  slot->wanted = false;
  if (slot->repeating) endNow(*slot, name, 0);
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
// operation, else whose it was.
void UringSelector::cancel(const Slot& slot, std::uint64_t name) noexcept {
  if (!isUsable()) return;
  io_uring_sqe& operation = entry();
  operation.opcode = IORING_OP_ASYNC_CANCEL;
  operation.fd = -1;
  operation.addr = name;
  operation.flags = IOSQE_CQE_SKIP_SUCCESS;
  operation.user_data = clientId(slot.sequence, slots_.placeOf(slot));
}

// Most often it was over by itself. But a send whose socket became writable just when the kernel was
// about to watch it is on its way in between, and cannot be found.
void UringSelector::cancelAgain() noexcept {
  for (const std::uint64_t id : std::exchange(refused_, {})) {
    const Slot* slot = find(id);
    if (slot == nullptr || slot->inFlight == 0) continue;
    if (slot->repeating && !slot->wanted) cancel(*slot, nameOfRepeated(*slot));
    const bool isUnwanted =
        slot->client == nullptr || (slot->send != nullptr && slot->send->stopped);
    if (slot->send != nullptr && isUnwanted) cancel(*slot, nameOf(*slot->send));
  }
}

// Operations of that name (0: none) are cancelled and over, and so do not keep their file open any more. One
// call does it, unless a cancel finds nothing (see above), or another processor is just waking the
// operation: then that one has to hand it over first.
void UringSelector::endNow(const Slot& slot, std::uint64_t one, std::uint64_t other) noexcept {
  for (int look = 0; look < kLastLooks && isUsable(); ++look) {
    if (one != 0) cancel(slot, one);
    if (other != 0) cancel(slot, other);
    if (look != 0) static_cast<void>(ring_.enter(kLastLookNanos));
    flushAndCollect();
    if (one != 0 && hasEnded(one)) one = 0;
    if (other != 0 && hasEnded(other)) other = 0;
    if (one == 0 && other == 0) return;
  }
}

// Looks at the newest first: that is where it is.
bool UringSelector::hasEnded(std::uint64_t name) const noexcept {
  for (std::size_t i = done_.size(); i > delivered_; --i) {
    const Done& done = done_[i - 1];
    if (done.what != name) continue;
    // Behind the end of a send without a copy comes a notice about its memory.
    const bool isSend = kindOf(done) == Kind::sendInPlace;
    if (isSend ? (done.flags & IORING_CQE_F_NOTIF) == 0 : (done.flags & IORING_CQE_F_MORE) == 0) {
      return true;
    }
  }
  return false;
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
