// SPDX-License-Identifier: Apache-2.0
// What is written: records, those who wait for it, water marks, order.
#include "tls/tls_fixture.h"

#include <millrace/channel/channel_option.h>
#include <millrace/channel/file_region.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::HasSubstr;

class TlsWrite : public testing::Test {
 protected:
  void SetUp() override { server.talk(client); }
  Future<void> write(std::string_view text) {
    return server.channel().writeOneOutbound(ByteBuf::of(text));
  }
  std::string received() {
    client.feed(server.sent());
    return client.read();
  }
  /// How many records, by their headers.
  static std::size_t records(std::string_view bytes) {
    std::size_t count = 0;
    while (bytes.size() >= 5) {
      const std::size_t length =
          static_cast<std::uint8_t>(bytes[3]) * 256u + static_cast<std::uint8_t>(bytes[4]);
      bytes.remove_prefix(std::min(bytes.size(), 5 + length));
      ++count;
    }
    return count;
  }

  TlsEnd server;
  RawTls client{RawTls::Role::client};
};

TEST_F(TlsWrite, GathersSmallWritesIntoARecord) {
  for (int i = 0; i < 100; ++i) write("0123456789");
  server.channel().flushOutbound();
  const std::string bytes = server.sent();
  EXPECT_EQ(records(bytes), 1u);
  client.feed(bytes);
  EXPECT_EQ(client.read().size(), 1000u);
}

TEST_F(TlsWrite, FillsRecordsWhateverTheSizes) {
  std::string all;
  for (std::size_t size = 1; size < 40'000; size = size * 3 + 1) {
    const std::string text(size, static_cast<char>('a' + size % 26));
    all += text;
    write(text);
  }
  server.channel().flushOutbound();
  EXPECT_EQ(received(), all);
}

TEST_F(TlsWrite, SendsNothingBeforeAFlush) {
  const Future<void> written = write("later");
  EXPECT_EQ(server.sent(), "");
  EXPECT_FALSE(written.isDone());
  server.channel().flushOutbound();
  EXPECT_TRUE(written.isSuccess());
  EXPECT_EQ(received(), "later");
}

TEST_F(TlsWrite, IsDoneWhenItsLastByteIsWritten) {
  server.channel().stall();
  const Future<void> first = write(std::string(20'000, 'a'));
  const Future<void> second = write("b");
  server.channel().flushOutbound();
  EXPECT_FALSE(first.isDone());
  server.channel().takeBytes(20'000);
  EXPECT_FALSE(second.isDone());
  server.channel().resume();
  EXPECT_TRUE(first.isSuccess());
  EXPECT_TRUE(second.isSuccess());
}

TEST_F(TlsWrite, OfNothingIsDoneInItsTurn) {
  const Future<void> before = write("x");
  const Future<void> empty = write("");
  server.channel().flushOutbound();
  EXPECT_TRUE(before.isSuccess());
  EXPECT_TRUE(empty.isSuccess());
  EXPECT_EQ(received(), "x");
  const Future<void> alone = write("");
  server.channel().flushOutbound();
  EXPECT_TRUE(alone.isSuccess());
}

TEST_F(TlsWrite, ThatIsCancelledInTimeIsNotSent) {
  const Future<void> first = write("a");
  const Future<void> second = write("b");
  const Future<void> third = write("c");
  EXPECT_TRUE(second.cancel());
  server.channel().flushOutbound();
  EXPECT_EQ(received(), "ac");
  EXPECT_TRUE(third.isSuccess());
  EXPECT_FALSE(first.cancel());
}

TEST_F(TlsWrite, CountsAgainstTheWaterMarks) {
  EXPECT_TRUE(server.channel().isWritable());
  write(std::string(100'000, 'x'));
  EXPECT_FALSE(server.channel().isWritable());
  server.channel().stall();
  server.channel().flushOutbound();
  EXPECT_FALSE(server.channel().isWritable()) << "encrypted, it counts as well";
  server.channel().resume();
  EXPECT_TRUE(server.channel().isWritable());
  EXPECT_EQ(server.channel().run([this] { return server.channel().pendingBytes(); }), 0u);
}

TEST_F(TlsWrite, IsEncryptedOnlyAsFarAsThePeerTakesIt) {
  server.channel().stall();
  const std::string much(5'000'000, 'm');
  const Future<void> written = write(much);
  server.channel().flushOutbound();
  const std::size_t pending =
      server.channel().run([this] { return server.channel().pendingBytes(); });
  EXPECT_LT(pending, much.size() + 600'000) << "plaintext and a round of ciphertext";
  server.channel().resume();
  EXPECT_TRUE(written.isSuccess());
  EXPECT_EQ(received().size(), much.size());
}

TEST_F(TlsWrite, KeepsItsOrderWhenRoundsAndFlushesMix) {
  server.channel().stall();
  std::string all;
  for (int i = 0; i < 40; ++i) {
    const std::string text(50'000, static_cast<char>('a' + i % 26));
    all += text;
    write(text);
    if (i % 3 == 0) server.channel().flushOutbound();
  }
  server.channel().flushOutbound();
  server.channel().resume();
  EXPECT_EQ(received(), all);
}

TEST_F(TlsWrite, TakesBytesOnly) {
  const Future<void> refused = server.channel().writeOneOutbound(Message(std::string("text")));
  EXPECT_TRUE(refused.cause().is(Errc::notSupported));
  EXPECT_THAT(refused.cause().message(), HasSubstr("TLS carries bytes only"));
  EXPECT_TRUE(server.channel().isOpen());
}

TEST_F(TlsWrite, FailsWhatIsLeftWhenTheConnectionBreaks) {
  server.channel().stall();
  const Future<void> sealed = write(std::string(100'000, 'x'));
  server.channel().flushOutbound();
  const Future<void> held = write("held");
  server.channel().breakWith(Error::fromErrno(ECONNRESET, "read", "peer"));
  EXPECT_EQ(sealed.cause().errnoValue(), ECONNRESET);
  EXPECT_EQ(held.cause().errnoValue(), ECONNRESET);
  EXPECT_EQ(server.channel().liveBuffers(), 0);
}

TEST_F(TlsWrite, SharesBuffersWithoutChangingThem) {
  ByteBuf one = ByteBuf::of("shared bytes");
  ByteBuf other = one.share();
  server.channel().writeOneOutbound(Message(std::move(other)));
  server.channel().flushOutbound();
  EXPECT_EQ(received(), "shared bytes");
  EXPECT_EQ(one.text(), "shared bytes");
}

}  // namespace
}  // namespace millrace
