// SPDX-License-Identifier: Apache-2.0
#include <millrace/buffer/byte_buf.h>

#include <algorithm>
#include <stdexcept>

namespace millrace {

namespace {

constexpr std::size_t kFirstCapacity = 256;

std::size_t checkedCapacity(std::size_t capacity) {
  if (capacity > ByteBuf::kMaxCapacity) {
    throw std::length_error("ByteBuf: " + std::to_string(capacity) +
                            " bytes are more than a buffer may have (" +
                            std::to_string(ByteBuf::kMaxCapacity) + "); use several");
  }
  return capacity;
}

}  // namespace

ByteBuf::ByteBuf(std::size_t capacity)
    : ByteBuf(internal::Block::fromHeap(checkedCapacity(capacity))) {}

ByteBuf ByteBuf::of(std::string_view text) {
  ByteBuf made(text.size());
  made.writeBytes(text);
  return made;
}

ByteBuf ByteBuf::of(std::span<const std::byte> bytes) {
  ByteBuf made(bytes.size());
  made.writeBytes(bytes);
  return made;
}

ByteBuf ByteBuf::wrap(const void* memory, std::size_t size, Task release) {
  // Never written: isOwn() is false for external memory.
  ByteBuf made(internal::Block::around(const_cast<void*>(memory), checkedCapacity(size),  // NOLINT
                                       std::move(release)));
  made.writer_ = made.capacity_;
  return made;
}

void ByteBuf::swap(ByteBuf& other) noexcept {
  std::swap(block_, other.block_);
  std::swap(base_, other.base_);
  std::swap(capacity_, other.capacity_);
  std::swap(reader_, other.reader_);
  std::swap(writer_, other.writer_);
}

// --- indices ---

ByteBuf& ByteBuf::setReaderIndex(std::size_t index) {
  if (index > writer_) outside("setReaderIndex", index, 0);
  reader_ = static_cast<std::uint32_t>(index);
  return *this;
}

ByteBuf& ByteBuf::setWriterIndex(std::size_t index) {
  if (index < reader_ || index > capacity_) outside("setWriterIndex", index, 0);
  writer_ = static_cast<std::uint32_t>(index);
  return *this;
}

ByteBuf& ByteBuf::skipBytes(std::size_t count) {
  if (count > readableBytes()) notReadable("skipBytes", count);
  reader_ += static_cast<std::uint32_t>(count);
  return *this;
}

void ByteBuf::discardReadBytes() {
  if (reader_ == 0) return;
  if (!isOwn()) {
    *this = copy();
    return;
  }
  std::memmove(base_, base_ + reader_, readableBytes());
  writer_ -= reader_;
  reader_ = 0;
}

bool ByteBuf::compact() {
  if (block_ == nullptr || readableBytes() >= pinnedBytes() / 4) return false;
  *this = copy();
  return true;
}

void ByteBuf::ensureWritable(std::size_t count) {
  if (writableBytes() >= count && isOwn()) return;
  if (isOwn() && capacity_ - readableBytes() >= count && reader_ >= capacity_ / 2) {
    discardReadBytes();  // moving less than half is cheaper than new memory
    return;
  }
  const std::size_t wanted = checkedCapacity(writer_ + count);
  const std::size_t grown = wanted <= capacity_ ? wanted : std::size_t{capacity_} * 2;
  moveTo(std::max({wanted, std::min(grown, kMaxCapacity), kFirstCapacity}));
}

// The bytes up to the writer index, at the same indices, in memory of their own.
void ByteBuf::moveTo(std::size_t capacity) {
  ByteBuf fresh(std::max<std::size_t>(capacity, writer_));
  if (writer_ != 0) std::memcpy(fresh.base_, base_, writer_);
  fresh.reader_ = reader_;
  fresh.writer_ = writer_;
  swap(fresh);
}

// --- ranges ---

std::span<std::byte> ByteBuf::writable(std::size_t count) {
  makeWritable(count);
  return {base_ + writer_, writableBytes()};
}

void ByteBuf::advance(std::size_t count) {
  if (count > writableBytes()) outside("advance", writer_, count);
  writer_ += static_cast<std::uint32_t>(count);
}

ByteBuf ByteBuf::slice(std::size_t index, std::size_t count) const {
  checkIndex("slice", index, count);
  ByteBuf made;
  if (block_ == nullptr) return made;
  block_->share();
  made.block_ = block_;
  made.base_ = base_ + index;
  made.capacity_ = made.writer_ = static_cast<std::uint32_t>(count);
  return made;
}

ByteBuf ByteBuf::readSlice(std::size_t count) {
  if (count > readableBytes()) notReadable("readSlice", count);
  ByteBuf made = slice(reader_, count);
  reader_ += static_cast<std::uint32_t>(count);
  return made;
}

ByteBuf ByteBuf::copy() const { return of(data()); }

ByteBuf& ByteBuf::readBytes(std::span<std::byte> into) {
  if (into.size() > readableBytes()) notReadable("readBytes", into.size());
  getBytes(reader_, into);
  reader_ += static_cast<std::uint32_t>(into.size());
  return *this;
}

std::string ByteBuf::readString(std::size_t count) {
  if (count > readableBytes()) notReadable("readString", count);
  std::string made(text().substr(0, count));
  reader_ += static_cast<std::uint32_t>(count);
  return made;
}

ByteBuf& ByteBuf::writeBytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return *this;
  makeWritable(bytes.size());
  std::memcpy(base_ + writer_, bytes.data(), bytes.size());
  writer_ += static_cast<std::uint32_t>(bytes.size());
  return *this;
}

ByteBuf& ByteBuf::writeBytes(std::string_view bytes) {
  return writeBytes(std::as_bytes(std::span(bytes)));
}

ByteBuf& ByteBuf::writeZero(std::size_t count) {
  if (count == 0) return *this;
  makeWritable(count);
  std::memset(base_ + writer_, 0, count);
  writer_ += static_cast<std::uint32_t>(count);
  return *this;
}

void ByteBuf::getBytes(std::size_t index, std::span<std::byte> into) const {
  checkIndex("getBytes", index, into.size());
  if (!into.empty()) std::memcpy(into.data(), base_ + index, into.size());
}

ByteBuf& ByteBuf::setBytes(std::size_t index, std::span<const std::byte> bytes) {
  checkIndex("setBytes", index, bytes.size());
  if (bytes.empty()) return *this;
  makeOwn();
  std::memcpy(base_ + index, bytes.data(), bytes.size());
  return *this;
}

// --- three bytes ---

std::uint32_t ByteBuf::getMedium(std::size_t index) const {
  checkIndex("getMedium", index, 3);
  return (static_cast<std::uint32_t>(load<std::uint16_t>(index)) << 8) |
         load<std::uint8_t>(index + 2);
}

std::uint32_t ByteBuf::readUnsignedMedium() {
  if (readableBytes() < 3) notReadable("readMedium", 3);
  const std::uint32_t value = getMedium(reader_);
  reader_ += 3;
  return value;
}

ByteBuf& ByteBuf::writeMedium(std::uint32_t value) {
  makeWritable(3);
  writeShort(value >> 8);
  return writeByte(value);
}

// --- search ---

std::size_t ByteBuf::indexOf(std::uint8_t byte) const noexcept {
  if (!isReadable()) return npos;
  const void* found = std::memchr(base_ + reader_, byte, readableBytes());
  if (found == nullptr) return npos;
  return static_cast<std::size_t>(static_cast<const std::byte*>(found) - (base_ + reader_));
}

std::size_t ByteBuf::indexOf(std::string_view bytes) const noexcept {
  if (bytes.empty()) return 0;
  if (!isReadable()) return npos;
  const void* found = ::memmem(base_ + reader_, readableBytes(), bytes.data(), bytes.size());
  if (found == nullptr) return npos;
  return static_cast<std::size_t>(static_cast<const std::byte*>(found) - (base_ + reader_));
}

// --- text ---

std::string ByteBuf::hexDump() const {
  constexpr std::size_t kRow = 16;
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::span<const std::byte> bytes = data();
  std::string out;
  for (std::size_t row = 0; row < bytes.size(); row += kRow) {
    for (int shift = 28; shift >= 0; shift -= 4) out += kDigits[(row >> shift) & 15];
    out += " ";
    std::string characters;
    for (std::size_t i = row; i < row + kRow; ++i) {
      if (i == row + kRow / 2) out += ' ';
      if (i >= bytes.size()) {
        out += "   ";
        continue;
      }
      const auto byte = std::to_integer<unsigned>(bytes[i]);
      out += ' ';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
      characters += byte >= 32 && byte < 127 ? static_cast<char>(byte) : '.';
    }
    out += "  |" + characters + "|\n";
  }
  return out;
}

void ByteBuf::notReadable(const char* call, std::size_t count) const {
  throw std::out_of_range(std::string(call) + "(): " + std::to_string(count) + " bytes wanted, " +
                          std::to_string(readableBytes()) + " readable");
}

void ByteBuf::outside(const char* call, std::size_t index, std::size_t count) const {
  throw std::out_of_range(std::string(call) + "(): index " + std::to_string(index) +
                          (count == 0 ? "" : " and " + std::to_string(count) + " bytes") +
                          " are outside; reader index " + std::to_string(reader_) +
                          ", writer index " + std::to_string(writer_) + ", capacity " +
                          std::to_string(capacity_));
}

}  // namespace millrace
