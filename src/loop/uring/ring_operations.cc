// SPDX-License-Identifier: Apache-2.0
// The operations of clients: receiving and sending.
#include "loop/uring/uring_selector.h"

#include <millrace/base/check.h>
#include <millrace/base/log.h>
#include <millrace/buffer/buffer_pool.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/readiness_io.h>

#include <algorithm>
#include <cerrno>
#include <typeinfo>
#include <utility>

namespace millrace {

namespace {

/// For the end of a send, however much comes meanwhile.
constexpr int kSendLooks = 1000;

bool wasStopped(int result) noexcept {
  return result == -ECANCELED || result == -EAGAIN || result == -EINTR;
}

}  // namespace

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

inline UringSelector::Slot* UringSelector::find(std::uint64_t id) noexcept {
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
  if (slot->inFlight != 0 && isUsable()) {
    io_uring_sqe& operation = entry();
    operation.opcode = IORING_OP_ASYNC_CANCEL;
    operation.fd = slot->fd;
    operation.cancel_flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
    flush();
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

inline io_uring_sqe& UringSelector::begin(Slot& slot, Kind kind, std::uint8_t operation) {
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
  if (!slot->receiving) beginReceive(*slot);
  return true;
}

void UringSelector::beginReceive(Slot& slot) {
  slot.receiving = true;
  io_uring_sqe& operation = begin(slot, Kind::receive, IORING_OP_RECV);
  operation.ioprio = IORING_RECV_MULTISHOT | IORING_RECVSEND_POLL_FIRST;
  operation.flags = IOSQE_BUFFER_SELECT;
  operation.buf_group = ReceiveBuffers::kGroup;
}

void UringSelector::stop(std::uint64_t id) noexcept {
  Slot* slot = find(id);
  if (slot == nullptr || !slot->wanted) return;
  slot->wanted = false;
  if (slot->receiving) cancel(*slot, Kind::receive);
}

void UringSelector::cancel(Slot& slot, Kind kind) noexcept {
  if (!isUsable()) return;
  io_uring_sqe& operation = entry();
  operation.opcode = IORING_OP_ASYNC_CANCEL;
  operation.fd = -1;
  operation.addr = nameOf(kind, slot.sequence, slots_.placeOf(slot));
  operation.flags = IOSQE_CQE_SKIP_SUCCESS;
}

// --- sending ---

void UringSelector::Send::release() noexcept {
  single = ByteBuf();
  stopped = false;
  sent = 0;
  total = 0;
  left = 0;
  for (internal::Block* block : kept) block->drop();
  kept.clear();
  parts.clear();
}

UringSelector::Send* UringSelector::takeSend() {
  Send* send = spareSends_;
  if (send == nullptr) return new Send;
  spareSends_ = send->next;
  return send;
}

void UringSelector::send(std::uint64_t id, ByteBuf&& bytes) {
  Slot* slot = find(id);
  MR_CHECK(slot != nullptr && slot->send == nullptr, "send() of a client that sends already");
  Send* send = slot->send = takeSend();
  send->left = bytes.readableBytes();
  send->single = std::move(bytes);
  sendRest(*slot);
}

void UringSelector::send(std::uint64_t id, std::span<const ByteBuf* const> parts) {
  Slot* slot = find(id);
  MR_CHECK(slot != nullptr && slot->send == nullptr, "send() of a client that sends already");
  Send* send = slot->send = takeSend();
  for (const ByteBuf* each : parts) {
    const std::span<const std::byte> data = each->data();
    if (data.empty()) continue;
    send->parts.push_back({const_cast<std::byte*>(data.data()), data.size()});  // NOLINT: only read
    send->left += data.size();
    each->block()->share();
    send->kept.push_back(each->block());
  }
  sendRest(*slot);
}

void UringSelector::sendRest(Slot& slot) {
  Send& send = *slot.send;
  if (send.parts.empty()) {
    const std::span<const std::byte> data = send.single.data().subspan(send.sent);
    io_uring_sqe& operation = begin(slot, Kind::send, IORING_OP_SEND);
    operation.addr = reinterpret_cast<std::uintptr_t>(data.data());
    operation.len = static_cast<std::uint32_t>(data.size());
    operation.msg_flags = MSG_NOSIGNAL;
    return;
  }
  std::size_t skip = send.sent;
  std::size_t first = 0;
  while (skip >= send.parts[first].iov_len) skip -= send.parts[first++].iov_len;
  send.parts.erase(send.parts.begin(), send.parts.begin() + static_cast<std::ptrdiff_t>(first));
  iovec& part = send.parts.front();
  part = {static_cast<std::byte*>(part.iov_base) + skip, part.iov_len - skip};
  send.message = {};
  send.message.msg_iov = send.parts.data();
  send.message.msg_iovlen = send.parts.size();
  io_uring_sqe& operation = begin(slot, Kind::send, IORING_OP_SENDMSG);
  operation.addr = reinterpret_cast<std::uintptr_t>(&send.message);
  operation.len = 1;
  operation.msg_flags = MSG_NOSIGNAL;
}

void UringSelector::stopSending(std::uint64_t id) noexcept {
  Slot* slot = find(id);
  if (slot == nullptr || slot->send == nullptr || std::exchange(slot->send->stopped, true)) return;
  cancel(*slot, Kind::send);
}

// False if the kernel took only a part of it, and the rest was begun.
inline bool UringSelector::sendEnded(Slot& slot, RingCompletion& completion, ByteBuf& rest) {
  Send* send = slot.send;
  if (__builtin_expect(completion.result > 0, 1)) {
    const std::size_t sent = std::min(static_cast<std::size_t>(completion.result), send->left);
    send->left -= sent;
    send->total += sent;
    send->sent = send->parts.empty() ? send->sent + sent : sent;
    if (__builtin_expect(send->left != 0, 0) && slot.client != nullptr && !send->stopped) {
      sendRest(slot);
      return false;
    }
    completion.result = static_cast<int>(send->total);
  } else if (send->total != 0 || wasStopped(completion.result)) {
    // What has gone counts; whoever writes next meets the failure.
    completion.result = static_cast<int>(send->total);
  }
  const bool goesOn =
      completion.result >= 0 || completion.result == -ENOBUFS || completion.result == -ENOMEM;
  if (__builtin_expect(goesOn && send->left != 0 && send->parts.empty(), 0)) {
    rest = std::move(send->single);
    rest.skipBytes(send->total);
    completion.rest = &rest;
  }
  slot.send = nullptr;
  send->release();
  send->next = std::exchange(spareSends_, send);
  return true;
}

bool UringSelector::finishSend(std::uint64_t id, RingCompletion& completion, ByteBuf& rest) {
  Slot* slot = find(id);
  if (slot == nullptr || slot->send == nullptr || !isUsable()) return false;
  // Its completion may be behind others for which there was no room.
  for (int look = 0; look < kSendLooks; ++look) {
    flush();
    collect(later_);
    if (!ring_.hasCompletions() && !ring_.wantsCall()) break;
  }
  const std::uint64_t name = nameOf(Kind::send, slot->sequence, slots_.placeOf(*slot));
  for (std::size_t i = delivered_; i < done_.size(); ++i) {
    if (done_[i].what != name) continue;
    const Done done = std::exchange(done_[i], Done{0, 0, IORING_CQE_F_MORE});
    completion.kind = RingCompletion::sent;
    completion.result = done.result;
    completion.last = ended(*slot, Kind::send, done);
    return sendEnded(*slot, completion, rest);
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

// True if the operation is over for its client; false if it goes on, or was begun anew because only
// the kernel had ended it.
inline bool UringSelector::ended(Slot& slot, Kind kind, const Done& done) {
  if (__builtin_expect((done.flags & IORING_CQE_F_MORE) != 0, 1)) return false;
  --slot.inFlight;
  --inFlight_;
  if (kind == Kind::send) return true;
  slot.receiving = false;
  if (slot.client == nullptr || !slot.wanted) return true;
  // Cancelled, but wanted again since.
  const bool again = done.result > 0 || done.result == -ENOBUFS || done.result == -ECANCELED ||
                     done.result == -EINTR;
  if (!again) {
    slot.wanted = false;
    return true;
  }
  if (done.result == -ENOBUFS) buffers_.ranDry();
  beginReceive(slot);
  return false;
}

void UringSelector::deliverOne(const Done& done, bool moreNow, IoLoop& loop) {
  const auto kind = static_cast<Kind>(done.what >> 60);
  const auto place = static_cast<std::uint32_t>(done.what);
  Slot& slot = slots_[place];
  MR_CHECK(clientId(slot.sequence, place) ==
               clientId(static_cast<std::uint32_t>(done.what >> 32), place),
           "a completion of an operation that has ended");
  RingCompletion completion{};
  completion.result = done.result;
  completion.moreNow = moreNow;
  if ((done.flags & IORING_CQE_F_BUFFER) != 0) {
    const auto number = static_cast<std::uint16_t>(done.flags >> IORING_CQE_BUFFER_SHIFT);
    completion.block = buffers_.take(number);
    // Never more than there is room for, whatever stands between us and the kernel says.
    completion.result = std::min(completion.result, static_cast<int>(ReceiveBuffers::kSize));
  }
  completion.last = ended(slot, kind, done);
  ByteBuf rest;
  if (kind == Kind::send && !sendEnded(slot, completion, rest)) return;
  IoClient* client = slot.client;
  if (__builtin_expect(client == nullptr, 0)) {
    if (completion.block != nullptr) completion.block->drop();
    freeIfUnused(slot);
    return;
  }
  if (kind == Kind::receive) {
    // Nothing for the client: it goes on, with more buffers.
    if (!completion.last && done.result <= 0) {
      if (completion.block != nullptr) completion.block->drop();
      return;
    }
    if (done.result <= 0 && completion.block != nullptr) {
      std::exchange(completion.block, nullptr)->drop();
    }
    // It was told to stop, and found no buffer before it did.
    if (done.result == -ENOBUFS) {
      buffers_.ranDry();
      completion.result = -ECANCELED;
    }
    completion.kind = RingCompletion::received;
  } else {
    completion.kind = RingCompletion::sent;
  }
  loop.callbackBegins(typeid(*client));
  client->completed(completion);
  loop.callbackEnded();
}

}  // namespace millrace
