// SPDX-License-Identifier: Apache-2.0
#include "tls/client_hello.h"

#include "support/heap_count.h"
#include "tls/hello_bytes.h"
#include "tls/tls_fixture.h"

#include <gtest/gtest.h>

namespace millrace::tls {
namespace {

using test::bigEndian;
using test::counted;
using test::extension;
using test::heapBytes;
using test::heapCallsOfThread;
using test::helloFor;
using test::helloMessage;
using test::inRecords;
using test::nameEntry;
using test::serverNames;
using State = ClientHelloReader::State;

constexpr std::size_t kLimit = 64 * 1024;

/// Feeds `bytes` in pieces until it knows.
State feed(ClientHelloReader& reader, std::string_view bytes, std::size_t piece = SIZE_MAX) {
  while (!bytes.empty() && reader.state() == State::more) {
    const std::size_t count = std::min(piece, bytes.size());
    reader.feed(ByteBuf::of(bytes.substr(0, count)));
    bytes.remove_prefix(count);
  }
  return reader.state();
}

std::optional<std::string> nameIn(const std::string& message) {
  ClientHelloReader reader(kLimit);
  EXPECT_EQ(feed(reader, inRecords(message)), State::whole);
  return reader.serverName();
}

State stateOf(std::string_view bytes, std::size_t limit = kLimit) {
  ClientHelloReader reader(limit);
  return feed(reader, bytes);
}

// --- how it is cut ---

// T1
TEST(ClientHello, IsReadHoweverItIsCutIntoRecordsAndReads) {
  const std::string message = helloFor("www.example.org");
  for (std::size_t record = 1; record <= message.size(); ++record) {
    const std::string bytes = inRecords(message, record);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{7}, SIZE_MAX}) {
      ClientHelloReader reader(kLimit);
      ASSERT_EQ(feed(reader, bytes, piece), State::whole) << record << " " << piece;
      EXPECT_EQ(reader.serverName(), "www.example.org");
      EXPECT_EQ(reader.takeBytes().text(), bytes);
    }
  }
}

// T1
TEST(ClientHello, IsReadWhereverItIsCutInTwo) {
  const std::string bytes = inRecords(helloFor("www.example.org"), 10);
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    ClientHelloReader reader(kLimit);
    ASSERT_EQ(reader.feed(ByteBuf::of(bytes.substr(0, cut))), State::more) << cut;
    ASSERT_EQ(reader.feed(ByteBuf::of(bytes.substr(cut))), State::whole) << cut;
    EXPECT_EQ(reader.serverName(), "www.example.org");
    EXPECT_EQ(reader.size(), bytes.size());
  }
}

TEST(ClientHello, KeepsWhatComesBehindItForOpenSsl) {
  const std::string bytes = inRecords(helloFor("a.org")) + "more";
  ClientHelloReader reader(kLimit);

  EXPECT_EQ(feed(reader, bytes), State::whole);

  EXPECT_EQ(reader.takeBytes().text(), bytes);
}

// T1: a byte is looked at once. Reading everything again with each byte would be 10^9 steps here.
TEST(ClientHello, OneBytePerRecordAndReadIsLinearWork) {
  const std::string padding = extension(21, std::string(10'000, '\0'));
  const std::string bytes = inRecords(helloMessage(padding + serverNames(nameEntry("a.org"))), 1);
  ASSERT_GT(bytes.size(), 60'000U);
  ClientHelloReader reader(kLimit);
  std::uint64_t own = 0;

  for (const char& byte : bytes) {
    ByteBuf piece = ByteBuf::of(std::string_view(&byte, 1));
    const std::uint64_t start = heapCallsOfThread();
    reader.feed(std::move(piece));
    own += heapCallsOfThread() - start;
  }

  EXPECT_EQ(reader.state(), State::whole);
  EXPECT_EQ(reader.serverName(), "a.org");
  EXPECT_LE(own, 40U);  // memory grows by doubling
}

// T1
TEST(TlsServer, ShakesHandsWithAClientThatSendsOneBytePerRecord) {
  EmbeddedChannel client([](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(clientBuilder().build(), "localhost");
  });
  const std::string hello = client.outboundText();
  ASSERT_GT(hello.size(), 100U);
  Saw saw;
  const TlsContext context = serverBuilder().build();
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(context);
    channel.pipeline().emplaceLast<Witness>(saw);
  });

  const std::string bytes = inRecords(std::string_view(hello).substr(5), 1);
  for (const char& byte : bytes) server.writeInbound(ByteBuf::of(std::string_view(&byte, 1)));
  client.writeInbound(ByteBuf::of(server.outboundText()));
  server.writeInbound(ByteBuf::of(client.outboundText()));

  EXPECT_TRUE(saw.has("handshake")) << (saw.errors.empty() ? "" : saw.errors[0].message());
}

// --- limits ---

// T2
TEST(ClientHello, AnAnnouncedLengthOfSixteenMebibytesAllocatesNothing) {
  ClientHelloReader reader(kLimit);
  ByteBuf bytes = ByteBuf::of(std::string_view("\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9));
  const std::int64_t before = heapBytes();

  EXPECT_EQ(reader.feed(std::move(bytes)), State::tooLong);

  EXPECT_LE(heapBytes(), before);
}

// T2
TEST(TlsServer, RefusesAnAnnouncedLengthOfSixteenMebibytesWithoutMemoryForIt) {
  Saw saw;
  const TlsContext context = serverBuilder().build();
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(context);
    channel.pipeline().emplaceLast<Witness>(saw);
  });
  const std::int64_t before = heapBytes();

  server.writeInbound(ByteBuf::of(std::string_view("\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9)));

  EXPECT_LT(heapBytes() - before, 4096);
  EXPECT_FALSE(server.isOpen());
  ASSERT_EQ(saw.errors.size(), 1U);
  EXPECT_EQ(saw.errors[0].code(), TlsErrc::handshake);
  EXPECT_NE(saw.errors[0].message().find("its ClientHello is longer than 65536 bytes, see "
                                         "TlsContextBuilder::maxClientHello()"),
            std::string::npos)
      << saw.errors[0].message();
  EXPECT_EQ(server.outboundText(), std::string("\x15\x03\x01\x00\x02\x02\x32", 7));  // decode_error
  EXPECT_EQ(context.figures().failed, 1U);
}

// T2
TEST(TlsServer, ClosesAClientThatFallsSilentInItsHelloWhenTheTimeIsOver) {
  Saw saw;
  const TlsContext context = serverBuilder().build();
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(context);
    channel.pipeline().emplaceLast<Witness>(saw);
  });
  server.writeInbound(ByteBuf::of(std::string_view("\x16\x03\x01\x40\x00\x01\x00\x3f\xff", 9)));

  server.advanceTimeBy(std::chrono::milliseconds(9'999));
  EXPECT_TRUE(server.isOpen());
  server.advanceTimeBy(std::chrono::milliseconds(1));

  EXPECT_FALSE(server.isOpen());
  ASSERT_EQ(saw.errors.size(), 1U);
  EXPECT_EQ(saw.errors[0].code(), Errc::timedOut);
  EXPECT_EQ(context.figures().timedOut, 1U);
}

TEST(ClientHello, HasTheLengthOfTheLimitAtMost) {
  const std::string padding = extension(21, std::string(900, '\0'));
  const std::string bytes = inRecords(helloMessage(padding));

  EXPECT_EQ(stateOf(bytes, bytes.size()), State::whole);
  EXPECT_EQ(stateOf(bytes, bytes.size() - 1), State::tooLong);
}

// The records around it count, whether they come at once or one by one.
TEST(ClientHello, IsTooLongHoweverItIsCut) {
  const std::string bytes = inRecords(helloMessage(extension(21, std::string(500, '\0'))), 1);
  ASSERT_GT(bytes.size(), 2'000U);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{100}, SIZE_MAX}) {
    ClientHelloReader reader(1000);
    EXPECT_EQ(feed(reader, bytes, piece), State::tooLong) << piece;
  }
}

// --- what is no ClientHello ---

TEST(ClientHello, TheFirstBytesTellWhatIsNotTls) {
  EXPECT_EQ(stateOf("G"), State::notTls);
  EXPECT_EQ(stateOf("GET / HTTP/1.1\r\n"), State::notTls);
  EXPECT_EQ(stateOf("SSH-2.0-x"), State::notTls);
  EXPECT_EQ(stateOf("\x16"), State::more);
  EXPECT_EQ(stateOf("\x16\x02"), State::notTls);
  EXPECT_EQ(stateOf("\x80\x2e\x01\x03\x01"), State::notTls);  // SSL 2
}

TEST(ClientHello, AnotherMessageOrRecordIsBroken) {
  using namespace std::string_view_literals;
  EXPECT_EQ(stateOf("\x16\x03\x01\x00\x00"sv), State::broken);  // empty
  EXPECT_EQ(stateOf("\x16\x03\x01\x40\x01"sv), State::broken);  // longer than a record may be
  EXPECT_EQ(stateOf("\x16\x03\x01\x00\x04\x02"sv), State::broken);
  EXPECT_EQ(stateOf("\x16\x03\x01\x00\x01\x01\x15"sv), State::broken);
  EXPECT_EQ(stateOf("\x16\x03\x01\x00\x01\x01\x16\x04"sv), State::broken);
}

// --- names ---

// T3
TEST(ClientHello, GivesTheNameAsItStandsThere) {
  using namespace std::string_view_literals;
  for (const std::string_view name :
       {"example.org"sv, "EXAMPLE.org"sv, "example.org."sv, ""sv, "a\0b.org"sv, "127.0.0.1"sv,
        "::1"sv, "b\xc3\xbc.example"sv, "*.example.org"sv}) {
    EXPECT_EQ(nameIn(helloFor(name)), std::string(name));
  }
  const std::string longest(60'000, 'x');
  EXPECT_EQ(nameIn(helloFor(longest)), longest);
}

// T3
TEST(ClientHello, HasNoNameWithoutExactlyOneOfTheRightType) {
  const auto nameOf = [](std::string_view content) {
    return nameIn(helloMessage(extension(0, content)));
  };
  EXPECT_EQ(nameIn(helloMessage("")), std::nullopt);
  EXPECT_EQ(nameIn(helloMessage(extension(16, "abc"))), std::nullopt);
  EXPECT_EQ(nameOf(counted(nameEntry("a.org") + nameEntry("b.org"), 2)), std::nullopt);
  EXPECT_EQ(nameOf(counted(nameEntry("a.org", 7), 2)), std::nullopt);
  EXPECT_EQ(nameOf(""), std::nullopt);
  EXPECT_EQ(nameOf(counted("", 2)), std::nullopt);
  EXPECT_EQ(nameOf(counted(nameEntry("a.org"), 2) + "x"), std::nullopt);
  EXPECT_EQ(nameOf(bigEndian(99, 2) + nameEntry("a.org")), std::nullopt);
  EXPECT_EQ(nameOf(counted(bigEndian(0, 1) + bigEndian(65'535, 2) + "a.org", 2)), std::nullopt);
}

TEST(ClientHello, FindsTheNameBehindOtherExtensions) {
  const std::string others = extension(16, "abc") + extension(43, "") + extension(21, "xyz");

  EXPECT_EQ(nameIn(helloMessage(others + serverNames(nameEntry("a.org")) + others)), "a.org");
}

TEST(ClientHello, HasNoNameIfItIsDamagedBeforeOne) {
  const std::string good = helloFor("a.org");
  std::size_t found = 0;
  for (std::size_t size = 0; size + 4 < good.size(); ++size) {
    if (nameIn("\x01" + counted(good.substr(4, size), 3))) ++found;
  }

  EXPECT_EQ(found, 0U);
}

/// What a server does with a client that asks for `name`: the certificate it shows, or the error.
std::string serve(const TlsContext& context, std::string_view entries) {
  EmbeddedChannel client([](Channel& channel) {
    const TlsContext any = TlsContextBuilder::forClient().trust(TlsTrust::insecure()).build();
    channel.pipeline().emplaceLast<TlsHandler>(any, "replace.me");
  });
  std::string hello = client.outboundText();
  const std::string mine = serverNames(nameEntry("replace.me"));
  const std::size_t at = hello.find(mine);
  if (at == std::string::npos) return "the client asks for nothing";
  hello.replace(at, mine.size(), serverNames(entries));
  // The three lengths around it: record, message, extensions.
  std::string message = hello.substr(5);
  std::size_t start = 4 + 2 + 32;
  start += 1 + static_cast<unsigned char>(message[start]);
  start += 2 + (std::size_t{static_cast<unsigned char>(message[start])} << 8 |
                static_cast<unsigned char>(message[start + 1]));
  start += 1 + static_cast<unsigned char>(message[start]);
  message.replace(start, 2, bigEndian(message.size() - start - 2, 2));
  message.replace(1, 3, bigEndian(message.size() - 4, 3));
  Saw saw;
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(context);
    channel.pipeline().emplaceLast<Witness>(saw);
  });
  server.writeInbound(ByteBuf::of(inRecords(message)));
  if (!saw.errors.empty()) return saw.errors[0].message();
  return server.outboundText().substr(0, 1) == "\x16" ? "goes on" : "says nothing";
}

// T3
TEST(TlsServer, StrangeNamesGetTheDefaultCertificateOrAnErrorAndNeverMore) {
  using namespace std::string_view_literals;
  const TlsContext context = serverBuilder().identity("named.example", testIdentity()).build();
  for (const std::string_view good : {"named.example"sv, "NAMED.example"sv, "other.example"sv,
                                      "named.example."sv, "127.0.0.1"sv, "b\xc3\xbc.example"sv}) {
    EXPECT_EQ(serve(context, nameEntry(good)), "goes on") << good;
  }
  EXPECT_EQ(serve(context, nameEntry("")), "goes on");
  // OpenSSL refuses these.
  for (const std::string& bad : {nameEntry("a.org") + nameEntry("b.org"), nameEntry("a\0b.org"sv),
                                 nameEntry(std::string(300, 'a')), nameEntry("a.org", 7),
                                 nameEntry(std::string(60'000, 'a')), std::string()}) {
    const std::string answer = serve(context, bad);
    EXPECT_NE(answer.find("TLS handshake"), std::string::npos) << bad.substr(0, 40) << answer;
  }
}

// T3
TEST(TlsServer, RefusesNamesThatNobodyHasIfItShall) {
  const TlsContext context =
      serverBuilder().identity("named.example", testIdentity()).refuseUnknownNames().build();

  EXPECT_EQ(serve(context, nameEntry("Named.Example.")), "goes on");
  const std::string answer = serve(context, nameEntry("127.0.0.1"));
  EXPECT_NE(answer.find("asks for \"127.0.0.1\", for which there is no certificate"),
            std::string::npos)
      << answer;
}

}  // namespace
}  // namespace millrace::tls
