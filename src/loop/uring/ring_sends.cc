// SPDX-License-Identifier: Apache-2.0
// What clients send.
//
// A send owns the memory that the kernel reads, and begins what is left after a part has gone. Without a
// copy (SendMode::inPlace) an operation completes twice: when the kernel has taken the bytes, and when
// it does not look at them any more. The client hears of the first; the memory waits for the second, in
// a place of its own, because the client may send on meanwhile.
#include "loop/uring/uring_selector.h"

#include <millrace/base/check.h>
#include <millrace/loop/readiness_io.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace millrace {

namespace {

bool wasStopped(int result) noexcept {
  return result == -ECANCELED || result == -EAGAIN || result == -EINTR;
}

bool isShortage(int result) noexcept { return result == -ENOBUFS || result == -ENOMEM; }

}  // namespace

// --- beginning ---

UringSelector::Send& UringSelector::newSend(std::uint64_t id, SendMode mode) {
  Slot* slot = find(id);
  MR_CHECK(slot != nullptr && slot->send == nullptr, "send() of a client that sends already");
  Send* send = spareSends_;
  if (send == nullptr) {
    send = new Send;
  } else {
    spareSends_ = send->next;
  }
  slot->send = send;
  send->client = slots_.placeOf(*slot);
  if (__builtin_expect(mode == SendMode::inPlace && !refusesInPlace_, 0)) {
    send->inPlace = true;
    send->place = inPlace_.take();
    inPlace_[send->place] = send;
  }
  return *send;
}

void UringSelector::send(std::uint64_t id, ByteBuf&& bytes, SendMode mode) {
  Send& send = newSend(id, mode);
  send.left = bytes.readableBytes();
  send.single = std::move(bytes);
  sendRest(send);
}

void UringSelector::send(std::uint64_t id, std::span<const ByteBuf* const> parts, SendMode mode) {
  Send& send = newSend(id, mode);
  for (const ByteBuf* each : parts) {
    const std::span<const std::byte> data = each->data();
    if (data.empty()) continue;
    send.parts.push_back({const_cast<std::byte*>(data.data()), data.size()});  // NOLINT: only read
    send.left += data.size();
    each->block()->share();
    send.kept.push_back(each->block());
  }
  sendRest(send);
}

std::uint64_t UringSelector::nameOf(const Send& send) const noexcept {
  if (send.inPlace) return nameOf(Kind::sendInPlace, 0, send.place);
  return nameOf(Kind::send, slots_[send.client].sequence, send.client);
}

void UringSelector::sendRest(Send& send) {
  Slot& slot = slots_[send.client];
  if (send.parts.empty()) {
    const std::span<const std::byte> data = send.single.data().subspan(send.sent);
    io_uring_sqe& operation =
        begin(slot, Kind::send, send.inPlace ? IORING_OP_SEND_ZC : IORING_OP_SEND);
    operation.addr = reinterpret_cast<std::uintptr_t>(data.data());
    operation.len = static_cast<std::uint32_t>(data.size());
    operation.msg_flags = MSG_NOSIGNAL;
    operation.user_data = nameOf(send);
    return;
  }
  std::size_t skip = send.sent;
  std::size_t first = 0;
  while (skip >= send.parts[first].iov_len) skip -= send.parts[first++].iov_len;
  send.parts.erase(send.parts.begin(), send.parts.begin() + static_cast<std::ptrdiff_t>(first));
  iovec& part = send.parts.front();
  part = {static_cast<std::byte*>(part.iov_base) + skip, part.iov_len - skip};
  send.sent = 0;
  send.message = {};
  send.message.msg_iov = send.parts.data();
  send.message.msg_iovlen = send.parts.size();
  io_uring_sqe& operation =
      begin(slot, Kind::send, send.inPlace ? IORING_OP_SENDMSG_ZC : IORING_OP_SENDMSG);
  operation.addr = reinterpret_cast<std::uintptr_t>(&send.message);
  operation.len = 1;
  operation.msg_flags = MSG_NOSIGNAL;
  operation.user_data = nameOf(send);
}

void UringSelector::stopSending(std::uint64_t id) noexcept {
  Slot* slot = find(id);
  if (slot == nullptr || slot->send == nullptr || std::exchange(slot->send->stopped, true)) return;
  cancel(nameOf(*slot->send), id);
}

// --- ending ---

// One operation has come to something. True if the client is to hear of it: then the send is over, and
// `completion` says what became of it.
bool UringSelector::sent(Send& send, const Done& done, RingCompletion& completion, ByteBuf& rest) {
  Slot& slot = slots_[send.client];
  if (__builtin_expect((done.flags & IORING_CQE_F_NOTIF) != 0, 0)) {
    --send.notices;
    over(slot);
    if (send.isTold) retire(send);
    freeIfUnused(slot);
    return false;
  }
  send.doneAt = 0;
  if (__builtin_expect((done.flags & IORING_CQE_F_MORE) != 0, 0)) {
    ++send.notices;
  } else {
    over(slot);
  }
  if (done.result > 0) {
    const std::size_t count = std::min(static_cast<std::size_t>(done.result), send.left);
    send.left -= count;
    send.total += count;
    send.sent += count;
  }
  if (__builtin_expect(send.left != 0, 0) && mayGoOn(send, done.result)) {
    sendRest(send);
    return false;
  }
  describe(send, done.result, completion, rest);
  slot.send = nullptr;
  send.isTold = true;
  retire(send);
  if (__builtin_expect(slot.client != nullptr, 1)) return true;
  freeIfUnused(slot);
  return false;
}

// What is left can be sent by another operation, of which the client need not know.
bool UringSelector::mayGoOn(Send& send, int result) noexcept {
  if (slots_[send.client].client == nullptr || send.stopped) return false;
  if (result > 0) return true;
  if (!send.inPlace) return false;
  // The kernel cannot: it does not know the operation, or may not pin so much memory. It copies then.
  const bool isUnknown = result == -EINVAL || result == -EOPNOTSUPP;
  if (!isUnknown && !isShortage(result)) return false;
  if (isUnknown) refusesInPlace_ = true;
  send.inPlace = false;
  return true;
}

void UringSelector::describe(Send& send, int result, RingCompletion& completion, ByteBuf& rest) {
  completion.kind = RingCompletion::sent;
  completion.last = true;
  completion.result = result;
  // What has gone counts; whoever writes next meets the failure.
  if (send.total != 0 || wasStopped(result)) completion.result = static_cast<int>(send.total);
  const bool isLost = completion.result < 0 && !isShortage(completion.result);
  if (send.left == 0 || isLost || !send.parts.empty()) return;
  rest = send.notices == 0 ? std::move(send.single) : send.single.share();
  rest.skipBytes(send.total);
  completion.rest = &rest;
}

// Nobody waits for it any more but the kernel, perhaps.
void UringSelector::retire(Send& send) noexcept {
  if (send.notices != 0) return;
  if (send.place != 0) {
    inPlace_[send.place] = nullptr;
    inPlace_.give(send.place);
  }
  send.release();
  send.next = std::exchange(spareSends_, &send);
}

void UringSelector::Send::release() noexcept {
  for (internal::Block* block : kept) block->drop();
  kept.clear();
  parts.clear();
  single = ByteBuf();
  sent = 0;
  total = 0;
  left = 0;
  doneAt = 0;
  place = 0;
  notices = 0;
  stopped = false;
  isTold = false;
  inPlace = false;
}

bool UringSelector::finishSend(std::uint64_t id, RingCompletion& completion, ByteBuf& rest) {
  Slot* slot = find(id);
  if (slot == nullptr || slot->send == nullptr || !isUsable()) return false;
  Send& send = *slot->send;
  if (send.doneAt == 0) flushAndCollect();
  if (send.doneAt == 0) return false;
  Done& there = done_[static_cast<std::size_t>(send.doneAt - doneBefore_ - 1)];
  const Done done = std::exchange(there, Done{0, 0, IORING_CQE_F_MORE});
  return sent(send, done, completion, rest);
}

std::size_t UringSelector::unsentBytes(std::uint64_t id) const noexcept {
  const Slot& slot = slots_[static_cast<std::uint32_t>(id)];
  return idOf(slot) != id || slot.send == nullptr ? 0 : slot.send->left;
}

// --- the end of the ring ---

// Of a ring that could not be waited for. What the kernel may still send without a copy must not become
// somebody else's memory: it is nobody's from now on.
void UringSelector::dropSends() noexcept {
  for (Slot& slot : slots_) {
    Send* send = std::exchange(slot.send, nullptr);
    if (send == nullptr || send->place != 0) continue;
    send->release();
    delete send;
  }
  for (Send*& each : inPlace_) {
    Send* send = std::exchange(each, nullptr);
    if (send == nullptr) continue;
    if (send->notices != 0 || !send->isTold) {
      keepForGood(send);
      continue;
    }
    send->release();
    delete send;
  }
}

void UringSelector::keepForGood(Send* send) noexcept {
  static std::atomic<Send*> all{nullptr};
  send->next = all.load(std::memory_order_relaxed);
  while (!all.compare_exchange_weak(send->next, send)) {
  }
}

}  // namespace millrace
