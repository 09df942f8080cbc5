// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/channel.h>
#include <millrace/channel/context.h>
#include <millrace/channel/outbound_buffer.h>
#include <millrace/channel/pending_writes.h>

#include <utility>

namespace millrace {

PendingWrites::~PendingWrites() {
  if (empty()) return;
  removeAndFailAll(Error(Errc::closed, "write", "its handler is gone, and held it back"));
}

void PendingWrites::add(Message&& msg, Promise<void>&& done) {
  std::size_t cost = OutboundBuffer::kOverhead;
  if (const ByteBuf* bytes = msg.as<ByteBuf>()) cost += bytes->pinnedBytes();
  entries_.push_back({std::move(msg), std::move(done), cost});
  bytes_ += cost;
  ctx_.channel().countHeld(static_cast<std::ptrdiff_t>(cost));
}

// It counts as held until here, and from its write on as queued.
PendingWrites::Entry PendingWrites::takeFront() noexcept {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  bytes_ -= entry.cost;
  ctx_.channel().countHeld(-static_cast<std::ptrdiff_t>(entry.cost));
  return entry;
}

bool PendingWrites::removeAndWrite() {
  if (empty()) return false;
  Entry entry = takeFront();
  if (!entry.done.isCancelled()) ctx_.write(std::move(entry.msg), std::move(entry.done));
  return true;
}

void PendingWrites::removeAndWriteAll() {
  while (removeAndWrite()) {
  }
}

bool PendingWrites::removeAndFail(const Error& why) {
  if (empty()) return false;
  Entry entry = takeFront();
  entry.msg.reset();
  entry.done.tryFailure(why);
  return true;
}

void PendingWrites::removeAndFailAll(const Error& why) {
  while (removeAndFail(why)) {
  }
}

Promise<void> PendingWrites::remove() { return takeFront().done; }

}  // namespace millrace
