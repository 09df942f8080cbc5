// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/datagram.h>
#include <millrace/channel/fd_message.h>
#include <millrace/channel/file_region.h>
#include <millrace/channel/outbound_buffer.h>

#include <sys/uio.h>

namespace millrace {

namespace {

constexpr std::size_t kInitial = 8;

}  // namespace

OutboundBuffer::OutboundBuffer()
    : ring_(std::make_unique<Entry[]>(kInitial)), mask_(kInitial - 1) {}

const ByteBuf* OutboundBuffer::bytesOf(const Message& msg) noexcept {
  if (const auto* bytes = msg.as<ByteBuf>()) return bytes;
  if (const auto* datagram = msg.as<Datagram>()) return &datagram->bytes;
  if (const auto* withFds = msg.as<FdMessage>()) return &withFds->bytes;
  return nullptr;
}

void OutboundBuffer::grow() {
  const std::size_t size = capacity() * 2;
  auto larger = std::make_unique<Entry[]>(size);
  for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move(at(i));
  ring_ = std::move(larger);
  mask_ = size - 1;
  head_ = 0;
}

void OutboundBuffer::putBack(ByteBuf&& rest) {
  if (count_ > mask_) grow();
  head_ = (head_ - 1) & mask_;
  ++count_;
  ++flushed_;
  compacted_ = 0;
  Entry& entry = at(0);
  entry.cost = static_cast<std::uint32_t>(kOverhead + rest.pinnedBytes());
  entry.cancelled = false;
  entry.msg = Message(std::move(rest));
  pending_ += entry.cost;
}

void OutboundBuffer::flushWithPromises() {
  for (; flushed_ < count_; ++flushed_) {
    Entry& entry = at(flushed_);
    // Cancelled: an empty message stands in its place.
    if (!entry.done.valid() || entry.done.setUncancellable()) continue;
    entry.msg = ByteBuf();
    entry.cancelled = true;
    lastBlock_ = nullptr;
  }
}

std::size_t OutboundBuffer::readableBytes() const noexcept {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (const ByteBuf* bytes = bytesOf(at(i).msg)) sum += bytes->readableBytes();
    if (const auto* file = at(i).msg.as<FileRegion>()) sum += file->count();
  }
  return sum;
}

std::size_t OutboundBuffer::gather(iovec* parts, std::size_t maxParts, std::size_t maxBytes,
                                   std::size_t& bytes) noexcept {
  std::size_t used = 0;
  bytes = 0;
  for (std::size_t i = 0; i < flushed_ && used < maxParts && bytes < maxBytes; ++i) {
    const ByteBuf* each = at(i).msg.as<ByteBuf>();
    if (each == nullptr) break;
    const std::span<const std::byte> data = each->data();
    if (data.empty()) continue;
    parts[used++] = {const_cast<std::byte*>(data.data()), data.size()};  // NOLINT: only read
    bytes += data.size();
  }
  return used;
}

void OutboundBuffer::removeBytes(std::size_t count) noexcept {
  while (flushed_ != 0) {
    ByteBuf* first = at(0).msg.as<ByteBuf>();
    if (first == nullptr) break;
    const std::size_t readable = first->readableBytes();
    if (readable > count) {
      if (count != 0) first->skipBytes(count);
      break;
    }
    count -= readable;
    removeFront();
  }
}

void OutboundBuffer::removeFront(const Result<void>& outcome) noexcept {
  Entry& entry = at(0);
  head_ = (head_ + 1) & mask_;
  --count_;
  if (flushed_ != 0) --flushed_;
  if (compacted_ != 0) --compacted_;
  pending_ -= entry.cost;
  if (count_ == 0) lastBlock_ = nullptr;
  entry.msg.reset();
  if (!entry.done.valid()) {
    if (!outcome.ok()) ++failures_;
    return;
  }
  // Out of the ring before its listeners run: they may add to it.
  --promises_;
  const Promise<void> done = std::move(entry.done);
  done.tryComplete(outcome);
}

void OutboundBuffer::failAll(const Error& why) noexcept {
  for (std::size_t left = count_; left != 0 && count_ != 0; --left) removeFront(why);
}

std::size_t OutboundBuffer::compact() {
  std::size_t copies = 0;
  for (; compacted_ < count_; ++compacted_) {
    Entry& entry = at(compacted_);
    ByteBuf* bytes = bytesOf(entry.msg);
    if (bytes == nullptr || !bytes->compact()) continue;
    ++copies;
    const auto cost = static_cast<std::uint32_t>(kOverhead + bytes->pinnedBytes());
    pending_ = pending_ - entry.cost + cost;
    entry.cost = cost;
    lastBlock_ = nullptr;
  }
  return copies;
}

}  // namespace millrace
