// SPDX-License-Identifier: Apache-2.0
#include <millrace/buffer/byte_buf.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {
namespace {

using testing::HasSubstr;

std::string textOfRangeError(const auto& call) {
  try {
    call();
  } catch (const std::out_of_range& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(ByteBuf, IsEmptyAndOwnsNothingAtFirst) {
  const ByteBuf buf;
  EXPECT_FALSE(buf.isReadable());
  EXPECT_FALSE(buf);
  EXPECT_EQ(buf.capacity(), 0U);
  EXPECT_EQ(buf.pinnedBytes(), 0U);
  EXPECT_EQ(buf.data().size(), 0U);
  EXPECT_EQ(buf.share().readableBytes(), 0U);
}

TEST(ByteBuf, MakesMemoryWhenItIsWrittenTo) {
  ByteBuf buf;
  buf.writeBytes("abc");
  EXPECT_EQ(buf.toString(), "abc");
  EXPECT_GE(buf.capacity(), 3U);
}

TEST(ByteBuf, NumbersComeBackAndAreBigEndian) {
  ByteBuf buf(8);
  buf.writeByte(0xfe).writeShort(0x1234).writeMedium(0xabcdef).writeInt(0x01020304);
  buf.writeLong(0x1122334455667788).writeFloat(1.5F).writeDouble(-2.25).writeBoolean(true);
  EXPECT_EQ(buf.getByte(1), 0x12);
  EXPECT_EQ(buf.getShort(1), 0x1234);
  EXPECT_EQ(buf.getMedium(3), 0xabcdefU);
  EXPECT_EQ(buf.getInt(6), 0x01020304U);
  EXPECT_EQ(buf.getLong(10), 0x1122334455667788U);
  EXPECT_EQ(buf.readByte(), 0xfe);
  EXPECT_EQ(buf.readShort(), 0x1234);
  EXPECT_EQ(buf.readUnsignedMedium(), 0xabcdefU);
  EXPECT_EQ(buf.readInt(), 0x01020304);
  EXPECT_EQ(buf.readLong(), 0x1122334455667788);
  EXPECT_EQ(buf.readFloat(), 1.5F);
  EXPECT_EQ(buf.readDouble(), -2.25);
  EXPECT_TRUE(buf.readBoolean());
  EXPECT_FALSE(buf.isReadable());
}

TEST(ByteBuf, LittleEndianNumbersAreTheOtherWayRound) {
  ByteBuf buf(32);
  buf.writeShortLE(0x1234).writeIntLE(0x01020304).writeLongLE(0x1122334455667788);
  EXPECT_EQ(buf.getByte(0), 0x34);
  EXPECT_EQ(buf.getShortLE(0), 0x1234);
  EXPECT_EQ(buf.getIntLE(2), 0x01020304U);
  EXPECT_EQ(buf.getLongLE(6), 0x1122334455667788U);
  EXPECT_EQ(buf.readShortLE(), 0x1234);
  EXPECT_EQ(buf.readIntLE(), 0x01020304U);
  EXPECT_EQ(buf.readLongLE(), 0x1122334455667788U);
}

TEST(ByteBuf, NegativeNumbersKeepTheirSign) {
  ByteBuf buf(32);
  buf.writeShort(0xffff).writeInt(0xffffffff).writeLong(~0ULL);
  EXPECT_EQ(buf.readShort(), -1);
  EXPECT_EQ(buf.readInt(), -1);
  EXPECT_EQ(buf.readLong(), -1);
}

TEST(ByteBuf, ReadingTooMuchThrowsAndChangesNothing) {
  ByteBuf buf = ByteBuf::of("ab");
  std::array<std::byte, 3> three{};
  EXPECT_THAT(textOfRangeError([&] { buf.readInt(); }), "readInt(): 4 bytes wanted, 2 readable");
  EXPECT_THROW(buf.readUnsignedMedium(), std::out_of_range);
  EXPECT_THROW(buf.readBytes(three), std::out_of_range);
  EXPECT_THROW(buf.readString(3), std::out_of_range);
  EXPECT_THROW(buf.readSlice(3), std::out_of_range);
  EXPECT_THROW(buf.skipBytes(3), std::out_of_range);
  EXPECT_EQ(buf.toString(), "ab");
}

TEST(ByteBuf, IndicesOutsideThrowAndSayWhereItStands) {
  ByteBuf buf(8);
  buf.writeInt(1);
  EXPECT_THAT(
      textOfRangeError([&] { static_cast<void>(buf.getLong(1)); }),
      "getLong(): index 1 and 8 bytes are outside; reader index 0, writer index 4, capacity "
      "8");
  EXPECT_THROW(static_cast<void>(buf.getByte(8)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(buf.getByte(ByteBuf::npos)), std::out_of_range);
  EXPECT_THROW(buf.setInt(5, 1), std::out_of_range);
  EXPECT_THROW(static_cast<void>(buf.slice(7, 2)), std::out_of_range);
  EXPECT_THROW(buf.setReaderIndex(5), std::out_of_range);
  EXPECT_THROW(buf.setWriterIndex(9), std::out_of_range);
  EXPECT_THROW(buf.advance(5), std::out_of_range);
  EXPECT_EQ(buf.readableBytes(), 4U);
}

TEST(ByteBuf, MoreThanABufferMayHaveIsAnError) {
  EXPECT_THROW(ByteBuf(ByteBuf::kMaxCapacity + 1), std::length_error);
  ByteBuf buf = ByteBuf::of("x");
  EXPECT_THROW(buf.ensureWritable(ByteBuf::kMaxCapacity), std::length_error);
  EXPECT_EQ(buf.toString(), "x");
}

TEST(ByteBuf, SlicesOwnTheSameBytes) {
  ByteBuf whole = ByteBuf::of("hello world");
  ByteBuf hello = whole.readSlice(5);
  EXPECT_EQ(hello.data().data() + 6, whole.skipBytes(1).data().data());
  EXPECT_TRUE(whole.isShared() && hello.isShared());
  whole = ByteBuf();
  EXPECT_FALSE(hello.isShared());
  EXPECT_EQ(hello.toString(), "hello");
  EXPECT_GE(hello.pinnedBytes(), 11U);
}

TEST(ByteBuf, AWriteToSharedBytesIsSeenByNobodyElse) {
  ByteBuf first = ByteBuf::of("abcdef");
  ByteBuf second = first.share();
  second.setByte(0, 'X');
  first.setByte(1, 'Y');
  second.writeBytes("more");
  EXPECT_EQ(first.toString(), "aYcdef");
  EXPECT_EQ(second.toString(), "Xbcdefmore");
}

TEST(ByteBuf, AppendingToASliceDoesNotOverwriteWhatFollowsIt) {
  ByteBuf whole = ByteBuf::of("abcdef");
  ByteBuf front = whole.readSlice(3);
  front.writeBytes("XYZ");
  EXPECT_EQ(front.toString(), "abcXYZ");
  EXPECT_EQ(whole.toString(), "def");
}

TEST(ByteBuf, WrappedMemoryIsReadInPlaceAndNeverWritten) {
  const char memory[] = "constant";
  int released = 0;
  {
    ByteBuf wrapped = ByteBuf::wrap(memory, 8, [&released] { ++released; });
    ByteBuf second = wrapped.share();
    EXPECT_EQ(static_cast<const void*>(wrapped.data().data()), memory);
    wrapped.setByte(0, 'X');
    wrapped.writeBytes("!");
    EXPECT_EQ(wrapped.toString(), "Xonstant!");
    EXPECT_EQ(released, 0);
    EXPECT_EQ(second.toString(), "constant");
  }
  EXPECT_EQ(released, 1);
  EXPECT_STREQ(memory, "constant");
  EXPECT_EQ(ByteBuf::wrap(memory, 4).toString(), "cons");
}

TEST(ByteBuf, FindsBytesAndWords) {
  ByteBuf buf = ByteBuf::of("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(buf.indexOf(' '), 3U);
  EXPECT_EQ(buf.indexOf("\r\n\r\n"), 14U);
  buf.skipBytes(4);
  EXPECT_EQ(buf.indexOf(' '), 1U);
  EXPECT_EQ(buf.indexOf('G'), ByteBuf::npos);
  EXPECT_EQ(buf.indexOf("nothing"), ByteBuf::npos);
  EXPECT_EQ(buf.indexOf(""), 0U);
  EXPECT_EQ(ByteBuf().indexOf('x'), ByteBuf::npos);
  EXPECT_EQ(ByteBuf().indexOf("x"), ByteBuf::npos);
}

TEST(ByteBuf, DiscardingReadBytesMovesTheRestToTheFront) {
  ByteBuf buf = ByteBuf::of("abcdef");
  buf.skipBytes(4).discardReadBytes();
  EXPECT_EQ(buf.readerIndex(), 0U);
  EXPECT_EQ(buf.toString(), "ef");
  ByteBuf other = buf.skipBytes(1).share();
  buf.discardReadBytes();
  EXPECT_EQ(buf.readerIndex(), 0U);
  EXPECT_EQ(buf.toString(), "f");
  EXPECT_FALSE(other.isShared());
}

TEST(ByteBuf, MakesRoomByMovingWhenHalfWasRead) {
  ByteBuf buf(256);
  buf.writeZero(200).skipBytes(190).writeZero(56);
  const std::size_t pinned = buf.pinnedBytes();
  buf.ensureWritable(100);
  EXPECT_EQ(buf.pinnedBytes(), pinned);
  EXPECT_EQ(buf.readableBytes(), 66U);
  EXPECT_GE(buf.writableBytes(), 100U);
}

TEST(ByteBuf, DumpsRowsOfSixteen) {
  EXPECT_EQ(ByteBuf::of(std::string_view("0123456789abcdef\n\0z", 19)).hexDump(),
            "00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|\n"
            "00000010  0a 00 7a                                          |..z|\n");
  EXPECT_EQ(ByteBuf().hexDump(), "");
}

TEST(ByteBuf, MovesLeaveAnEmptyOneBehind) {
  ByteBuf first = ByteBuf::of("abc");
  ByteBuf second = std::move(first);
  EXPECT_FALSE(first.isReadable());  // NOLINT: that is the question
  EXPECT_EQ(second, ByteBuf::of("abc"));
  second = ByteBuf::of("d");
  EXPECT_EQ(second.toString(), "d");
  EXPECT_EQ(second.copy(), second);
}

TEST(ByteBuf, LetsGoOfEveryBlock) {
  const std::int64_t before = internal::liveHeapBlocks();
  {
    ByteBuf a = ByteBuf::of("abc");
    ByteBuf b = a.share();
    ByteBuf c = b.slice(1, 1);
    c.writeBytes("more");
    a = std::move(c);
    EXPECT_GT(internal::liveHeapBlocks(), before);
  }
  EXPECT_EQ(internal::liveHeapBlocks(), before);
}

}  // namespace
}  // namespace millrace
