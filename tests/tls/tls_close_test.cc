// SPDX-License-Identifier: Apache-2.0
// How a TLS connection ends: close_notify both ways, time limits, truncation, half closure.
#include "tls/tls_fixture.h"

#include <millrace/channel/channel_option.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

/// A server that has shaken hands with a peer that the test plays.
class TlsClose : public testing::Test {
 protected:
  void SetUp() override {
    server.talk(client);
    ASSERT_TRUE(server.saw.has("handshake"));
    server.saw.log.clear();
  }
  /// Closes by the pipeline, without running what follows.
  Future<void> close() {
    return server.channel().run([this] { return server.channel().Channel::close(); });
  }

  TlsEnd server{serverBuilder().closeTimeout(3s)};
  RawTls client{RawTls::Role::client};
};

// T9
TEST_F(TlsClose, SaysCloseNotifyAndWaitsForThePeers) {
  const Future<void> closed = close();
  client.feed(server.sent());
  EXPECT_TRUE(client.sawClose());
  EXPECT_TRUE(server.channel().isOpen());
  EXPECT_FALSE(closed.isDone());

  client.closeNotify();
  server.receive(client.take());
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_TRUE(closed.isSuccess());
  EXPECT_THAT(server.saw.log, ElementsAre("close", "readComplete", "inactive"));
}

TEST_F(TlsClose, WaitsNoLongerThanItsLimit) {
  const Future<void> closed = close();
  server.channel().advanceTimeBy(2999ms);
  EXPECT_TRUE(server.channel().isOpen());
  server.channel().advanceTimeBy(1ms);
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_TRUE(closed.isSuccess());
}

TEST_F(TlsClose, EndsWhenThePeerJustGoes) {
  const Future<void> closed = close();
  server.channel().endInput();
  EXPECT_FALSE(server.channel().isOpen());
  EXPECT_TRUE(closed.isSuccess());
  EXPECT_TRUE(server.saw.errors.empty());
}

TEST_F(TlsClose, DoesNotWaitWithALimitOfZero) {
  TlsEnd hasty(serverBuilder().closeTimeout(0s));
  RawTls peer(RawTls::Role::client);
  hasty.talk(peer);
  hasty.channel().close();
  EXPECT_FALSE(hasty.channel().isOpen());
  peer.feed(hasty.sent());
  EXPECT_TRUE(peer.sawClose());
}

TEST_F(TlsClose, ASecondTimeWaitsForTheFirst) {
  const Future<void> first = close();
  const Future<void> second = close();
  EXPECT_FALSE(second.isDone());
  server.channel().advanceTimeBy(3s);
  EXPECT_TRUE(first.isSuccess());
  EXPECT_TRUE(second.isSuccess());
}

TEST_F(TlsClose, SendsWhatWasFlushedAndFailsTheRest) {
  const Future<void> flushed = server.channel().writeOneOutbound(ByteBuf::of("flushed"));
  server.channel().flushOutbound();
  const Future<void> left = server.channel().writeOneOutbound(ByteBuf::of("left"));
  close();
  client.feed(server.sent());
  EXPECT_EQ(client.read(), "flushed");
  EXPECT_TRUE(client.sawClose());
  EXPECT_TRUE(flushed.isSuccess());
  EXPECT_TRUE(left.cause().is(Errc::closed));
  const Future<void> later = server.channel().writeOneOutbound(ByteBuf::of("later"));
  EXPECT_TRUE(later.cause().is(Errc::closed));
}

// T9: pending writes go before close_notify, however slowly the peer takes them
TEST_F(TlsClose, WaitsForAPeerThatReadsSlowly) {
  server.channel().stall();
  const std::string much(500'000, 'm');
  const Future<void> written = server.channel().writeOneOutbound(ByteBuf::of(much));
  server.channel().flushOutbound();
  close();
  EXPECT_TRUE(server.channel().isOpen());
  server.channel().resume();
  client.feed(server.sent());
  EXPECT_EQ(client.read().size(), much.size());
  EXPECT_TRUE(client.sawClose());
  EXPECT_TRUE(written.isSuccess());
}

TEST_F(TlsClose, IgnoresWhatComesMeanwhile) {
  close();
  client.write("too late");
  server.receive(client.take());
  EXPECT_EQ(server.saw.text, "");
  EXPECT_TRUE(server.channel().isOpen());
}

TEST_F(TlsClose, AnswersThePeersCloseNotify) {
  client.write("last words");
  client.closeNotify();
  server.receive(client.take());
  EXPECT_EQ(server.saw.text, "last words");
  EXPECT_THAT(server.saw.log, ElementsAre("read", "close", "readComplete", "inactive"));
  EXPECT_FALSE(server.channel().isOpen());
  client.feed(server.sent());
  EXPECT_TRUE(client.sawClose());
}

// T9
TEST_F(TlsClose, TellsOfAStreamThatIsCutOff) {
  client.write("half a sent");
  server.receive(client.take());
  server.channel().endInput();
  EXPECT_FALSE(server.channel().isOpen());
  ASSERT_EQ(server.saw.errors.size(), 1u);
  EXPECT_EQ(server.saw.errors[0].code(), TlsErrc::truncated);
  EXPECT_THAT(server.saw.log, ElementsAre("read", "readComplete", "exception", "inactive"));
}

TEST_F(TlsClose, ByAResetIsToldOnce) {
  server.channel().breakWith(Error::fromErrno(ECONNRESET, "read", "peer"));
  ASSERT_EQ(server.saw.errors.size(), 1u);
  EXPECT_EQ(server.saw.errors[0].errnoValue(), ECONNRESET);
}

// T9
TEST_F(TlsClose, IgnoresWhatComesAfterCloseNotify) {
  server.channel().run([this] { server.channel().setOption(options::allowHalfClosure, true); });
  client.write("before");
  client.closeNotify();
  const std::string end = client.take();
  SSL_set_shutdown(client.ssl(), 0);
  client.write("behind");
  server.receive(end + client.take());
  EXPECT_EQ(server.saw.text, "before");
}

TEST_F(TlsClose, LetsUsWriteOnWithHalfClosure) {
  server.channel().run([this] { server.channel().setOption(options::allowHalfClosure, true); });
  client.closeNotify();
  server.receive(client.take());
  EXPECT_TRUE(server.channel().isOpen());
  EXPECT_THAT(server.saw.log, ElementsAre("close", "input shutdown", "readComplete"));
  server.channel().writeOutbound(ByteBuf::of("answer"));
  client.feed(server.sent());
  EXPECT_EQ(client.read(), "answer");

  server.channel().endInput();  // its end of the stream follows
  EXPECT_EQ(std::count(server.saw.log.begin(), server.saw.log.end(), "input shutdown"), 1);
  EXPECT_TRUE(server.saw.errors.empty());
  close();
  EXPECT_FALSE(server.channel().isOpen());
}

TEST_F(TlsClose, TellsOfATruncatedStreamWithHalfClosureToo) {
  server.channel().run([this] { server.channel().setOption(options::allowHalfClosure, true); });
  server.channel().endInput();
  EXPECT_TRUE(server.channel().isOpen());
  EXPECT_THAT(server.saw.log, ElementsAre("exception", "input shutdown"));
  EXPECT_EQ(server.saw.errors.at(0).code(), TlsErrc::truncated);
}

TEST_F(TlsClose, OfTheOutputSaysCloseNotifyAndReadsOn) {
  server.channel().writeOneOutbound(ByteBuf::of("all"));
  server.channel().flushOutbound();
  server.channel().run([this] { server.channel().shutdownOutput(); });
  client.feed(server.sent());
  EXPECT_EQ(client.read(), "all");
  EXPECT_TRUE(client.sawClose());
  EXPECT_TRUE(server.channel().isOutputShutdown());
  client.write("more");
  server.receive(client.take());
  EXPECT_EQ(server.saw.text, "more");
}

TEST_F(TlsClose, OfTheOutboundByTheHandlerReadsOn) {
  server.channel().run([this] { server.channel().pipeline().get<TlsHandler>()->closeOutbound(); });
  client.feed(server.sent());
  EXPECT_TRUE(client.sawClose());
  const Future<void> late = server.channel().writeOneOutbound(ByteBuf::of("x"));
  EXPECT_TRUE(late.cause().is(Errc::closed));
  client.write("more");
  server.receive(client.take());
  EXPECT_EQ(server.saw.text, "more");
}

// T9: whoever has said that he writes no more still wants to know whether the answer is whole
TEST_F(TlsClose, TellsOfAStreamThatIsCutOffAfterOurOwnEnd) {
  server.channel().run([this] { server.channel().pipeline().get<TlsHandler>()->closeOutbound(); });
  server.channel().endInput();
  ASSERT_EQ(server.saw.errors.size(), 1u);
  EXPECT_EQ(server.saw.errors[0].code(), TlsErrc::truncated);
}

TEST_F(TlsClose, DoesNotWaitForAPeerWhoseStreamHasEnded) {
  server.channel().run([this] { server.channel().setOption(options::allowHalfClosure, true); });
  server.channel().endInput();
  ASSERT_TRUE(server.channel().isOpen());
  const Future<void> closed = close();
  server.channel().runPendingTasks();
  EXPECT_TRUE(closed.isSuccess());
  EXPECT_FALSE(server.channel().isOpen());
}

TEST_F(TlsClose, GracefullySaysCloseNotify) {
  server.channel().writeOneOutbound(ByteBuf::of("all"));
  server.channel().flushOutbound();
  server.channel().run([this] { server.channel().closeGracefully(); });
  client.feed(server.sent());
  EXPECT_EQ(client.read(), "all");
  EXPECT_TRUE(client.sawClose());
  EXPECT_TRUE(server.saw.errors.empty());
}

TEST_F(TlsClose, LeavesNothingBehind) {
  client.write(std::string(50'000, 'x'));
  const std::string bytes = client.take();
  server.receive(std::string_view(bytes).substr(0, 30'000));
  server.channel().close();
  server.channel().advanceTimeBy(3s);
  server.sent();
  EXPECT_EQ(server.channel().liveBuffers(), 0);
}

TEST(TlsEnds, TellATruncationOnce) {
  TlsEnd server;
  RawTls client(RawTls::Role::client);
  server.talk(client);
  server.channel().run([&] {
    server.channel().setOption(options::allowHalfClosure, true);
    return 0;
  });

  server.channel().endInput();
  server.channel().run([&] {
    server.channel().shutdownOutput();
    return 0;
  });
  server.channel().runPendingTasks();

  ASSERT_EQ(server.saw.errors.size(), 1U);
  EXPECT_EQ(server.saw.errors[0].code(), TlsErrc::truncated);
}

TEST(TlsEnds, OfAPeerInTheHandshakeAreNoExceptionWithOrWithoutHalfClosure) {
  for (const bool half : {false, true}) {
    TlsEnd server;
    server.channel().run([&] {
      server.channel().setOption(options::allowHalfClosure, half);
      return 0;
    });
    RawTls client(RawTls::Role::client);
    client.handshake();
    server.receive(client.take());

    server.channel().endInput();

    EXPECT_TRUE(server.saw.errors.empty()) << half;
    EXPECT_TRUE(server.saw.has("handshake failed")) << half;
    EXPECT_FALSE(server.channel().isOpen()) << half;
  }
}

}  // namespace
}  // namespace millrace
