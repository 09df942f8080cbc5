// SPDX-License-Identifier: Apache-2.0
// Users' code runs inside of ours: handlers and listeners that remove, close, write and cancel at any moment.
#include "support/heap_count.h"
#include "tls/held_writes.h"
#include "tls/tls_fixture.h"

#include <millrace/channel/channel_option.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/loop/event_loop.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;

Future<void> shaken(EmbeddedChannel& channel) {
  return channel.run([&] { return channel.pipeline().get<TlsHandler>()->handshakeFuture(); });
}
void removeTls(Channel& channel) { channel.pipeline().removeIfExists<TlsHandler>(); }

TEST(TlsReentrancy, AListenerOfTheHandshakeMayRemoveTheHandler) {
  TlsPair pair;
  shaken(pair.server()).addListener([&] { removeTls(pair.server()); });
  pair.carry();
  EXPECT_FALSE(pair.serverSaw.has("handshake"));
  EXPECT_TRUE(pair.server().isOpen());
}

TEST(TlsReentrancy, AListenerMayCloseWhenAPoolDidTheWork) {
  ThreadPool pool(1);
  TlsPair pair(serverBuilder().offloadHandshakes(pool).closeTimeout(0s), clientBuilder());
  shaken(pair.server()).addListener([&] { pair.server().Channel::close(); });
  const Deadline until = Deadline::after(30s);
  while (pair.server().isOpen() && !until.isDue(Clock::real().nanos())) {
    pair.carry();
    std::this_thread::yield();
  }
  EXPECT_FALSE(pair.server().isOpen());
}

/// In front of TLS: does what the test says when ciphertext passes.
struct Front : ChannelHandler {
  explicit Front(std::function<void(Context&)> f) : act(std::move(f)) {}
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
    ctx.write(std::move(msg), std::move(done));
    act(ctx);
  }
  std::function<void(Context&)> act;
};

TEST(TlsReentrancy, AHandlerInFrontMayRemoveUsAtAnyWrite) {
  for (int at = 1; at <= 6; ++at) {
    int writes = 0;
    Saw saw;
    EmbeddedChannel server([&](Channel& channel) {
      channel.pipeline().emplaceLast<Front>([&](Context& ctx) {
        if (++writes == at) removeTls(ctx.channel());
      });
      channel.pipeline().emplaceLast<TlsHandler>(serverBuilder().build());
      channel.pipeline().emplaceLast<Witness>(saw);
    });
    RawTls client(RawTls::Role::client);
    for (int i = 0; i < 3; ++i) {
      if (client.handshake()) client.write("text");
      server.writeInbound(ByteBuf::of(client.take()));
      client.feed(server.outboundText());
    }
    SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED);
    client.write("more");
    server.writeInbound(ByteBuf::of(client.take()));
    server.writeOneOutbound(ByteBuf::of(std::string(40'000, 'x')));
    server.flushOutbound();
    EXPECT_TRUE(server.isOpen());
  }
}

TEST(TlsReentrancy, AHandlerInFrontMayWriteInTheMiddleOfUs) {
  int left = 3;
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<Front>([&](Context& ctx) {
      if (!channel.pipeline().get<TlsHandler>()->isHandshakeDone() || --left < 0) return;
      ctx.channel().write(ByteBuf::of(std::string(300'000, static_cast<char>('a' + left))));
      ctx.channel().flush();
    });
    channel.pipeline().emplaceLast<TlsHandler>(serverBuilder().build());
  });
  RawTls client(RawTls::Role::client);
  for (int i = 0; i < 3; ++i) {
    client.handshake();
    server.writeInbound(ByteBuf::of(client.take()));
    client.feed(server.outboundText());
  }
  server.writeOneOutbound(ByteBuf::of("first"));
  server.flushOutbound();
  server.runPendingTasks();
  client.feed(server.outboundText());
  const std::string text = client.read();
  EXPECT_FALSE(client.isBroken());
  EXPECT_NE(text.find("first"), std::string::npos);
  EXPECT_NE(text.find("aaa"), std::string::npos);
}

TEST(TlsReentrancy, TlsInTlsDoesNotWaitForItself) {
  Saw serverSaw;
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(serverBuilder().build());
    channel.pipeline().emplaceLast<TlsHandler>(serverBuilder().build());
    channel.pipeline().emplaceLast<Witness>(serverSaw);
  });
  EmbeddedChannel client([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(clientBuilder().build(), "localhost");
    channel.pipeline().emplaceLast<TlsHandler>(clientBuilder().build(), "localhost");
  });
  client.writeOneOutbound(ByteBuf::of(std::string(1'000'000, 'x')));
  client.flushOutbound();
  for (int i = 0; i < 40; ++i) {
    TlsPair::move(client, server);
    TlsPair::move(server, client);
  }
  EXPECT_EQ(serverSaw.text.size(), 1'000'000u);
}

TEST(TlsReentrancy, NobodyCancelsTheHandshakeOfOthers) {
  TlsPair pair;
  const Future<void> one = shaken(pair.server());
  EXPECT_FALSE(one.cancel());
  pair.carry();
  EXPECT_TRUE(one.isSuccess());
}

TEST(TlsReentrancy, AHandlerWithoutAPipelineSaysSo) {
  TlsHandler alone(serverBuilder().build());
  EXPECT_THROW(alone.handshakeFuture(), std::logic_error);
}

// What is written while the rest fails must fail at once: held again, it would be failed again, for ever.
TEST(TlsReentrancy, AWriterThatTriesAgainAtTheEndIsRefusedAtOnce) {
  TlsPair pair;
  pair.carry();
  bool isRefused = false;
  pair.client().run([&] {
    Promise<void> first(pair.client().loop());
    first.future().addListener([&] {
      Promise<void> second(pair.client().loop());
      const Future<void> again = second.future();
      pair.client().write(ByteBuf::of("again"), std::move(second));
      isRefused = again.isDone() && !again.isSuccess();
    });
    pair.client().write(ByteBuf::of("held"), std::move(first));
  });
  pair.client().breakWith(Error::fromErrno(ECONNRESET, "read", "peer"));
  EXPECT_TRUE(isRefused);
}

TEST(TlsReentrancy, AFailureOfTheTimerMayCloseFirst) {
  struct Closer : ChannelHandler {
    void exceptionCaught(Context& ctx, const Error&) override { ctx.close(); }
  };
  EmbeddedChannel server([&](Channel& channel) {
    channel.pipeline().emplaceLast<OptionalTlsHandler>(serverBuilder().build(),
                                                       [](Channel&, bool) {});
    channel.pipeline().emplaceLast<Closer>();
  });
  server.writeInbound(ByteBuf::of("\x16"));
  server.advanceTimeBy(10s);
  EXPECT_FALSE(server.isOpen());
}

// A close that somebody has asked for is done, though the handler goes first.
TEST(TlsReentrancy, ACloseIsNotForgottenWithTheHandler) {
  TlsPair pair;
  pair.carry();
  EmbeddedChannel& channel = pair.client();
  const Future<void> closed = channel.run([&] { return channel.Channel::close(); });
  ASSERT_FALSE(closed.isDone());  // it waits for the peer's close_notify

  channel.run([&] {
    channel.pipeline().remove<TlsHandler>();
    return 0;
  });
  channel.runPendingTasks();

  EXPECT_FALSE(channel.isOpen());
  EXPECT_TRUE(closed.isSuccess());
}

/// Removes TLS as soon as it hears that it has failed.
class RemovesTls : public ChannelHandler {
 public:
  void userEventTriggered(Context& ctx, Message&& event) override {
    const auto* end = event.as<TlsHandshakeCompletion>();
    if (end != nullptr && !end->isSuccess()) ctx.pipeline().removeIfExists<TlsHandler>();
  }
  void exceptionCaught(Context& ctx, const Error&) override {
    ctx.pipeline().removeIfExists<TlsHandler>();
  }
};

TEST(TlsReentrancy, WhoeverRemovesTlsThatFailedDoesNotGoOnInTheClear) {
  const TlsContext client = clientBuilder().build();
  EmbeddedChannel closing([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(client, "localhost");
    channel.pipeline().emplaceLast<RemovesTls>();
  });
  const Future<void> closed = closing.run([&] { return closing.Channel::close(); });
  closing.runPendingTasks();
  EXPECT_FALSE(closing.isOpen());
  EXPECT_TRUE(closed.isSuccess());

  const TlsContext server = serverBuilder().build();
  EmbeddedChannel failing([&](Channel& channel) {
    channel.pipeline().emplaceLast<TlsHandler>(server);
    channel.pipeline().emplaceLast<RemovesTls>();
  });
  failing.writeInbound(ByteBuf::of("GET / HTTP/1.1\r\n"));
  failing.runPendingTasks();
  EXPECT_FALSE(failing.isOpen());
}

TEST(TlsReentrancy, AListenerMayEndTheOutputOfAHandlerThatIsBeingRemoved) {
  TlsPair pair;
  pair.carry();
  EmbeddedChannel& channel = pair.client();
  channel.stall();
  bool wasCalled = false;
  channel.run([&] {
    auto* handler = channel.pipeline().get<TlsHandler>();
    for (int i = 0; i < 3; ++i) {  // more than is encrypted at a time
      Promise<void> done(channel.loop());
      done.future().addListener([&, handler](const Result<void>&) {
        if (!std::exchange(wasCalled, true)) handler->closeOutbound();
      });
      channel.Channel::write(Message(ByteBuf::of(std::string(300'000, 'x'))), std::move(done));
    }
    channel.Channel::flush();
    return 0;
  });

  channel.run([&] {
    channel.pipeline().remove<TlsHandler>();
    return 0;
  });

  EXPECT_TRUE(wasCalled);
}

TEST(HeldWrites, DoNotGrowWhileTheyAreNeverQuiteEmpty) {
  EmbeddedChannel channel;
  channel.run([&] {
    tls::HeldWrites held;
    for (int i = 0; i < 100; ++i) held.add(channel, ByteBuf(), {});
    const auto before = test::heapBytes();
    for (int i = 0; i < 100'000; ++i) {
      held.add(channel, ByteBuf(), {});
      held.flush();
      held.pop(channel);
    }
    EXPECT_LT(test::heapBytes() - before, 100'000);
    while (!held.empty()) held.pop(channel);
  });
}

TEST(TlsIdle, KeepsNoReceiveBuffer) {
  TlsEnd server;
  RawTls client(RawTls::Role::client);
  server.talk(client);
  client.write("short");
  server.receive(client.take());
  EXPECT_EQ(server.saw.text, "short");
  EXPECT_EQ(server.channel().liveBuffers(), 0);
}

}  // namespace
}  // namespace millrace
