// SPDX-License-Identifier: Apache-2.0
// ByteBuf: a window of bytes with a reader and a writer index. A move-only value that releases
// itself: no retain, no release.
//
//   0 <= readerIndex() <= writerIndex() <= capacity()
//   | read already | readable: data() | writable: writable() |
//
//   ByteBuf line = buf.readSlice(n);     // the same bytes, another owner: nothing is copied
//   BAD  auto view = buf.data(); buf.writeInt(1); use(view);     // writing may move the bytes
//
// Several ByteBufs may own the same bytes (share(), slice(), readSlice()). A write to bytes that
// have other owners copies them first, so nobody sees bytes change under him.
//
// Threads: a ByteBuf belongs to one thread at a time; owners of the same bytes may be on several.
// Failure: reading or writing outside throws std::out_of_range in every build and changes nothing.
// Memory that cannot be had ends the process; more than kMaxCapacity throws std::length_error.
#pragma once

#include <millrace/base/export.h>
#include <millrace/base/task.h>
#include <millrace/buffer/block.h>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace millrace {

class MILLRACE_API ByteBuf {
 public:
  static constexpr std::size_t kMaxCapacity = std::numeric_limits<std::int32_t>::max();
  static constexpr std::size_t npos = std::numeric_limits<std::size_t>::max();

  /// No bytes and no memory; writing to it makes some.
  ByteBuf() noexcept = default;
  /// Empty, with room for `capacity` bytes from the heap. On a loop, BufferPool::allocate is
  /// better.
  explicit ByteBuf(std::size_t capacity);
  /// A copy of `text`.
  static ByteBuf of(std::string_view text);
  static ByteBuf of(std::span<const std::byte> bytes);
  /// The bytes of somebody else, all readable, not to be written: a write copies them first.
  /// `release` runs once, on the thread of the last owner; it must not throw. Without one the
  /// memory must outlive every owner.
  static ByteBuf wrap(const void* memory, std::size_t size, Task release = nullptr);

  ByteBuf(ByteBuf&& other) noexcept { takeFrom(other); }
  ByteBuf& operator=(ByteBuf&& other) noexcept {
    if (this != &other) {
      if (block_ != nullptr) block_->drop();
      takeFrom(other);
    }
    return *this;
  }
  ByteBuf(const ByteBuf&) = delete;
  ByteBuf& operator=(const ByteBuf&) = delete;
  ~ByteBuf() {
    if (block_ != nullptr) block_->drop();
  }
  void swap(ByteBuf& other) noexcept;

  /// For the library: takes over a block into which `written` bytes were written.
  static ByteBuf ofBlock(internal::Block* block, std::size_t written) noexcept {
    ByteBuf made(block);
    made.writer_ = static_cast<std::uint32_t>(written);
    return made;
  }
  /// For the library: what it owns.
  internal::Block* block() const noexcept { return block_; }

  // --- where it stands ---
  std::size_t capacity() const noexcept { return capacity_; }
  std::size_t readerIndex() const noexcept { return reader_; }
  std::size_t writerIndex() const noexcept { return writer_; }
  std::size_t readableBytes() const noexcept { return writer_ - reader_; }
  std::size_t writableBytes() const noexcept { return capacity_ - writer_; }
  bool isReadable() const noexcept { return writer_ != reader_; }
  /// True if there is something to read: `while (ByteBuf bytes = co_await stream.read())`.
  explicit operator bool() const noexcept { return isReadable(); }
  /// True if others own the same bytes.
  bool isShared() const noexcept { return block_ != nullptr && block_->isShared(); }
  /// Bytes of memory that it keeps from being freed; at least capacity().
  std::size_t pinnedBytes() const noexcept { return block_ == nullptr ? 0 : block_->capacity; }

  /// Which memory it keeps: equal for owners of the same bytes, null without memory.
  const void* storage() const noexcept { return block_; }

  ByteBuf& setReaderIndex(std::size_t index);
  ByteBuf& setWriterIndex(std::size_t index);
  ByteBuf& skipBytes(std::size_t count);
  /// Forgets the bytes, keeps the memory.
  void clear() noexcept { reader_ = writer_ = 0; }
  /// Moves what is readable to the front.
  void discardReadBytes();
  /// For bytes that are kept for later: copies them if they use under a quarter of the memory they
  /// keep. True if it did.
  bool compact();
  /// Makes room for `count` more bytes, by moving or by new memory, which grows by doubling.
  void ensureWritable(std::size_t count);

  // --- whole ranges ---
  /// What is readable; valid until the next write, or until this ByteBuf goes.
  std::span<const std::byte> data() const noexcept { return {base_ + reader_, readableBytes()}; }
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(base_) + reader_, readableBytes()};
  }
  /// Where to write, at least `count` bytes; then tell by advance(). Copies if it is shared.
  std::span<std::byte> writable(std::size_t count = 0);
  /// `count` bytes were written to writable().
  void advance(std::size_t count);

  /// Another owner of what is readable.
  ByteBuf share() const { return slice(reader_, readableBytes()); }
  /// Another owner of `count` bytes from `index` on.
  ByteBuf slice(std::size_t index, std::size_t count) const;
  /// The next `count` bytes as a ByteBuf of their own, without a copy.
  ByteBuf readSlice(std::size_t count);
  /// A copy of what is readable in memory of its own.
  ByteBuf copy() const;
  std::string toString() const { return std::string(text()); }

  ByteBuf& readBytes(std::span<std::byte> into);
  std::string readString(std::size_t count);
  ByteBuf& writeBytes(std::span<const std::byte> bytes);
  ByteBuf& writeBytes(std::string_view text);
  ByteBuf& writeZero(std::size_t count);
  void getBytes(std::size_t index, std::span<std::byte> into) const;
  ByteBuf& setBytes(std::size_t index, std::span<const std::byte> bytes);

  // --- numbers, big endian unless the name ends in LE ---
  std::uint8_t readByte() { return read<std::uint8_t>("readByte"); }
  std::int16_t readShort() { return static_cast<std::int16_t>(readUnsignedShort()); }
  std::uint16_t readUnsignedShort() { return read<std::uint16_t>("readShort"); }
  std::uint32_t readUnsignedMedium();
  std::int32_t readInt() { return static_cast<std::int32_t>(readUnsignedInt()); }
  std::uint32_t readUnsignedInt() { return read<std::uint32_t>("readInt"); }
  std::int64_t readLong() { return static_cast<std::int64_t>(readUnsignedLong()); }
  std::uint64_t readUnsignedLong() { return read<std::uint64_t>("readLong"); }
  float readFloat() { return std::bit_cast<float>(readUnsignedInt()); }
  double readDouble() { return std::bit_cast<double>(readUnsignedLong()); }
  bool readBoolean() { return readByte() != 0; }
  std::uint16_t readShortLE() { return swapped(readUnsignedShort()); }
  std::uint32_t readIntLE() { return swapped(readUnsignedInt()); }
  std::uint64_t readLongLE() { return swapped(readUnsignedLong()); }

  std::uint8_t getByte(std::size_t index) const { return get<std::uint8_t>("getByte", index); }
  std::uint16_t getShort(std::size_t index) const { return get<std::uint16_t>("getShort", index); }
  std::uint32_t getMedium(std::size_t index) const;
  std::uint32_t getInt(std::size_t index) const { return get<std::uint32_t>("getInt", index); }
  std::uint64_t getLong(std::size_t index) const { return get<std::uint64_t>("getLong", index); }
  std::uint16_t getShortLE(std::size_t index) const { return swapped(getShort(index)); }
  std::uint32_t getIntLE(std::size_t index) const { return swapped(getInt(index)); }
  std::uint64_t getLongLE(std::size_t index) const { return swapped(getLong(index)); }

  ByteBuf& writeByte(std::uint32_t value) { return write(static_cast<std::uint8_t>(value)); }
  ByteBuf& writeShort(std::uint32_t value) { return write(static_cast<std::uint16_t>(value)); }
  ByteBuf& writeMedium(std::uint32_t value);
  ByteBuf& writeInt(std::uint32_t value) { return write(value); }
  ByteBuf& writeLong(std::uint64_t value) { return write(value); }
  ByteBuf& writeFloat(float value) { return write(std::bit_cast<std::uint32_t>(value)); }
  ByteBuf& writeDouble(double value) { return write(std::bit_cast<std::uint64_t>(value)); }
  ByteBuf& writeBoolean(bool value) { return writeByte(value ? 1 : 0); }
  ByteBuf& writeShortLE(std::uint32_t value) {
    return write(swapped(static_cast<std::uint16_t>(value)));
  }
  ByteBuf& writeIntLE(std::uint32_t value) { return write(swapped(value)); }
  ByteBuf& writeLongLE(std::uint64_t value) { return write(swapped(value)); }

  ByteBuf& setByte(std::size_t index, std::uint32_t value) {
    return set("setByte", index, static_cast<std::uint8_t>(value));
  }
  ByteBuf& setShort(std::size_t index, std::uint32_t value) {
    return set("setShort", index, static_cast<std::uint16_t>(value));
  }
  ByteBuf& setInt(std::size_t index, std::uint32_t value) { return set("setInt", index, value); }
  ByteBuf& setLong(std::size_t index, std::uint64_t value) { return set("setLong", index, value); }

  // --- search, from the reader index on; gives the distance from it, or npos ---
  std::size_t indexOf(std::uint8_t byte) const noexcept;
  std::size_t indexOf(std::string_view bytes) const noexcept;

  friend bool operator==(const ByteBuf& a, const ByteBuf& b) noexcept {
    return a.text() == b.text();
  }
  /// Rows of 16 bytes with offsets and characters, as LoggingHandler prints them.
  std::string hexDump() const;

 private:
  friend class BufferPool;
  explicit ByteBuf(internal::Block* block) noexcept
      : block_(block), base_(block->bytes), capacity_(block->capacity) {}

  template <std::unsigned_integral T>
  static T swapped(T value) noexcept {
    if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
    if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
    if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
    return value;
  }
  template <std::unsigned_integral T>
  T load(std::size_t index) const noexcept {
    T value;
    std::memcpy(&value, base_ + index, sizeof value);
    return std::endian::native == std::endian::big ? value : swapped(value);
  }
  template <std::unsigned_integral T>
  void store(std::size_t index, T value) noexcept {
    if (std::endian::native != std::endian::big) value = swapped(value);
    std::memcpy(base_ + index, &value, sizeof value);
  }
  template <std::unsigned_integral T>
  T read(const char* call) {
    if (readableBytes() < sizeof(T)) notReadable(call, sizeof(T));
    const T value = load<T>(reader_);
    reader_ += static_cast<std::uint32_t>(sizeof(T));
    return value;
  }
  template <std::unsigned_integral T>
  T get(const char* call, std::size_t index) const {
    checkIndex(call, index, sizeof(T));
    return load<T>(index);
  }
  template <std::unsigned_integral T>
  ByteBuf& write(T value) {
    makeWritable(sizeof(T));
    store(writer_, value);
    writer_ += static_cast<std::uint32_t>(sizeof(T));
    return *this;
  }
  template <std::unsigned_integral T>
  ByteBuf& set(const char* call, std::size_t index, T value) {
    checkIndex(call, index, sizeof(T));
    makeOwn();
    store(index, value);
    return *this;
  }

  void takeFrom(ByteBuf& other) noexcept {
    block_ = std::exchange(other.block_, nullptr);
    base_ = std::exchange(other.base_, nullptr);
    reader_ = std::exchange(other.reader_, 0u);
    writer_ = std::exchange(other.writer_, 0u);
    capacity_ = std::exchange(other.capacity_, 0u);
  }
  /// Room for `count` bytes that only we own.
  void makeWritable(std::size_t count) {
    if (writableBytes() < count || !isOwn()) ensureWritable(count);
  }
  bool isOwn() const noexcept {
    return block_ != nullptr && !block_->isShared() && !block_->external;
  }
  void makeOwn() {
    if (!isOwn()) moveTo(capacity_);
  }
  void moveTo(std::size_t capacity);
  void checkIndex(const char* call, std::size_t index, std::size_t count) const {
    if (index > capacity_ || count > capacity_ - index) outside(call, index, count);
  }
  [[noreturn]] void notReadable(const char* call, std::size_t count) const;
  [[noreturn]] void outside(const char* call, std::size_t index, std::size_t count) const;

  internal::Block* block_ = nullptr;
  std::byte* base_ = nullptr;  // of the window
  std::uint32_t capacity_ = 0;
  std::uint32_t reader_ = 0;
  std::uint32_t writer_ = 0;
};

}  // namespace millrace
