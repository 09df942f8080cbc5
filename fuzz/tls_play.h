// SPDX-License-Identifier: Apache-2.0
// What tls_server_fuzz.cc and tls_client_fuzz.cc share: an end under test, and what is done to it.
//
//   input: mode, then   raw:    size of pieces, bytes that come instead of a peer's
//                       edited: changes to what a real peer sends, four bytes each
//
// Whatever comes: the end closes or has a reason to wait, it gives its buffers back, nobody hears a message before
// the handshake is done, and what it delivers is the beginning of what its peer wrote. Without a change
// everything arrives.
#pragma once

#include "tls/test_ca.h"
#include "tls_editor.h"

#include <millrace/base/log.h>
#include <millrace/buffer/byte_buf.h>
#include <millrace/channel/channel_pipeline.h>
#include <millrace/channel/context.h>
#include <millrace/channel/message.h>
#include <millrace/tls/tls_context.h>
#include <millrace/tls/tls_events.h>
#include <millrace/tls/tls_handler.h>
#include <millrace/transport/embedded_channel.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <openssl/rand.h>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace millrace::fuzz {

inline void require(bool condition, const char* text) {
  if (condition) return;
  std::fprintf(stderr, "not true: %s\n", text);
  std::abort();
}

// --- random numbers that are the same every time ---

inline std::uint64_t randomState = 0;

inline int fakeRandom(unsigned char* into, int size) {
  for (int i = 0; i < size; ++i) {
    randomState = randomState * 6364136223846793005ULL + 1442695040888963407ULL;
    into[i] = static_cast<unsigned char>(randomState >> 56);
  }
  return 1;
}
inline int alwaysReady() { return 1; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
/// OpenSSL's newer way to do this is a whole provider.
inline void makeOpenSslDeterministic() {
  static const RAND_METHOD method = {nullptr, &fakeRandom, nullptr,
                                     nullptr, &fakeRandom, &alwaysReady};
  require(RAND_set_rand_method(&method) == 1, "OpenSSL takes our random numbers");
}
#pragma GCC diagnostic pop

// --- modes and contexts ---

struct Mode {
  explicit Mode(std::uint8_t bits)
      : isEdited((bits & 1) != 0),
        isTls12((bits & 2) != 0),
        asksForCertificate((bits & 4) != 0),
        resumes((bits & 8) != 0),
        closes((bits & 16) != 0),
        isSmall((bits & 32) != 0),
        closesEarly((bits & 64) != 0),
        endsOutput((bits & 128) != 0) {}

  bool isEdited;
  bool isTls12;
  bool asksForCertificate;
  bool resumes;      ///< a first connection, which nobody disturbs, leaves a session for the second
  bool closes;       ///< both ends close when they have written
  bool isSmall;      ///< one byte at a time
  bool closesEarly;  ///< the tested end closes in its handshake
  bool endsOutput;   ///< the tested end says that it writes no more
};

struct Credentials {
  const test::TestAuthority root{"root"};
  const test::TestCertificate server = root.issue({.names = "DNS:localhost"});
  const test::TestCertificate client = root.issue({.commonName = "client"});
};

inline const Credentials& credentials() {
  static const Credentials made;
  return made;
}

struct Contexts {
  TlsContext server;
  TlsContext client;

  static Contexts make(const Mode& mode) {
    const TlsTrust trust = TlsTrust::fromPem(credentials().root.pem());
    const TlsVersion newest = mode.isTls12 ? TlsVersion::tls12 : TlsVersion::tls13;
    TlsContextBuilder server = TlsContextBuilder::forServer(credentials().server.identity());
    server.versions(TlsVersion::tls12, newest).alpn({"one", "two"});
    server.identity("*.example.org", credentials().server.identity());
    if (mode.asksForCertificate) server.clientAuth(TlsClientAuth::required).trust(trust);
    TlsContextBuilder client = TlsContextBuilder::forClient();
    client.trust(trust).alpn({"two"}).resumption(mode.resumes);
    client.identity(credentials().client.identity());
    return {server.build(), client.build()};
  }
  /// Those that keep no sessions are the same for every input.
  static Contexts of(const Mode& mode) {
    if (mode.resumes) return make(mode);
    static std::optional<Contexts> kept[4];
    auto& place = kept[(mode.isTls12 ? 1 : 0) + (mode.asksForCertificate ? 2 : 0)];
    if (!place) place = make(mode);
    return *place;
  }
};

// --- one end ---

/// What is behind the TlsHandler: checks the order of what comes.
class Listener : public ChannelHandler {
 public:
  struct Heard {
    int handshakes = 0;
    int failures = 0;
    int closes = 0;
    std::string text;
  };
  explicit Listener(Heard& heard) : heard_(heard) {}

  void channelRead(Context&, Message&& msg) override {
    require(heard_.handshakes == 1 && heard_.failures == 0, "a message follows a good handshake");
    require(heard_.closes == 0, "no message follows the peer's end");
    const ByteBuf bytes = msg.take<ByteBuf>();
    require(bytes.isReadable(), "a message has bytes");
    heard_.text += bytes.text();
  }
  void userEventTriggered(Context&, Message&& event) override {
    if (const auto* end = event.as<TlsHandshakeCompletion>()) {
      require(++heard_.handshakes == 1, "a handshake ends once");
      if (!end->isSuccess()) ++heard_.failures;
    } else if (event.is<TlsCloseCompletion>()) {
      require(++heard_.closes == 1, "a peer ends once");
      require(heard_.handshakes == 1, "an end follows a handshake");
    }
  }
  void exceptionCaught(Context&, const Error&) override {}

 private:
  Heard& heard_;
};

class End {
 public:
  explicit End(const TlsContext& context)
      : channel_([&](Channel& channel) {
          if (context.isServer()) {
            channel.pipeline().emplaceLast<TlsHandler>(context);
          } else {
            channel.pipeline().emplaceLast<TlsHandler>(context, "localhost");
          }
          channel.pipeline().emplaceLast<Listener>(heard);
        }) {}
  ~End() {
    channel_.close();
    channel_.advanceTimeBy(std::chrono::seconds(20));
    require(!channel_.isOpen(), "a close ends in the close timeout");
    channel_.outboundText();
    require(channel_.liveBuffers() == 0, "all buffers were given back");
  }

  EmbeddedChannel& channel() { return channel_; }
  bool isOpen() const { return channel_.isOpen(); }
  bool isDone() const { return heard.handshakes == 1 && heard.failures == 0; }

  void feed(std::string_view bytes, std::size_t piece) {
    while (!bytes.empty() && channel_.isOpen()) {
      const std::size_t count = std::min(piece, bytes.size());
      channel_.writeInbound(ByteBuf::of(bytes.substr(0, count)));
      bytes.remove_prefix(count);
    }
    channel_.runPendingTasks();
  }
  std::string takeOutput() {
    channel_.runPendingTasks();
    return channel_.outboundText();
  }
  void endOutput() {
    channel_.run([this] {
      if (auto* handler = channel_.pipeline().get<TlsHandler>()) handler->closeOutbound();
    });
  }
  void write(const std::string& text) {
    if (!channel_.isOpen()) return;
    channel_.writeOneOutbound(ByteBuf::of(text));
    channel_.flushOutbound();
  }
  /// Time goes on: an end without a handshake has no reason to wait any longer.
  void wait() {
    channel_.advanceTimeBy(std::chrono::seconds(11));
    channel_.runPendingTasks();
    require(!channel_.isOpen() || isDone(), "a handshake ends in the handshake timeout");
    require(channel_.isOpen() || heard.handshakes == 1, "a closed end says how its handshake was");
  }

  Listener::Heard heard;

 private:
  EmbeddedChannel channel_;
};

// --- the play ---

/// If one end has closed the other one hears of it. True if that is news.
inline bool tellEnd(End& closed, End& other) {
  if (closed.isOpen() || !other.isOpen()) return false;
  other.channel().endInput();
  require(!other.isOpen(), "an end without half closure closes with its peer");
  return true;
}

/// Carries bytes both ways until nobody has any; `editor` sees what goes to `tested`.
inline void carry(End& tested, End& peer, Editor& editor, std::size_t piece) {
  constexpr int kMostRounds = 1000;
  for (int round = 0;; ++round) {
    require(round < kMostRounds, "two ends do not talk for ever");
    const std::string there = peer.takeOutput();
    const std::string back = tested.takeOutput();
    if (there.empty() && back.empty() && !tellEnd(tested, peer) && !tellEnd(peer, tested)) return;
    tested.feed(editor.edit(there), piece);
    if (editor.takeEnd() && tested.isOpen()) tested.channel().endInput();
    peer.feed(back, SIZE_MAX);
  }
}

inline bool isBeginning(const std::string& part, const std::string& whole) {
  return whole.compare(0, part.size(), part) == 0;
}

inline void playEdited(const Mode& mode, const Contexts& contexts, bool testsServer,
                       std::span<const std::uint8_t> script) {
  End tested(testsServer ? contexts.server : contexts.client);
  End peer(testsServer ? contexts.client : contexts.server);
  Editor editor(script);
  const std::size_t piece = mode.isSmall ? 1 : SIZE_MAX;
  const std::string question = "a question";
  const std::string answer(mode.isSmall ? 100 : 20'000, 'a');  // several records
  // Written at once: it waits for the handshake.
  peer.write(question);
  tested.write(answer);
  if (mode.closesEarly) {
    tested.feed(editor.edit(peer.takeOutput()), piece);
    if (tested.isOpen()) tested.channel().close();
  }
  carry(tested, peer, editor, piece);
  if (mode.endsOutput) tested.endOutput();
  peer.write(answer);
  carry(tested, peer, editor, piece);
  require(isBeginning(tested.heard.text, question + answer), "the tested end hears no lies");
  require(isBeginning(peer.heard.text, answer), "the peer hears no lies");
  if (!editor.hasChanged() && !mode.closesEarly) {
    require(tested.isDone() && peer.isDone(), "an undisturbed handshake is done");
    require(tested.heard.text == question + answer && peer.heard.text == answer,
            "what nobody disturbs arrives");
  }
  if (mode.closes) {
    if (peer.isOpen()) peer.channel().close();
    carry(tested, peer, editor, piece);
    if (!editor.hasChanged()) require(!tested.isOpen() && !peer.isOpen(), "an end is answered");
  }
  tested.wait();
  peer.wait();
}

inline void playRaw(const Contexts& contexts, bool testsServer,
                    std::span<const std::uint8_t> input) {
  const std::size_t piece = input.empty() || input[0] == 0 ? SIZE_MAX : input[0];
  if (!input.empty()) input = input.subspan(1);
  End tested(testsServer ? contexts.server : contexts.client);
  tested.write("too early");
  tested.feed({reinterpret_cast<const char*>(input.data()), input.size()}, piece);
  require(!tested.isDone(), "nobody guesses a handshake");
  require(tested.heard.text.empty(), "nobody is heard without a handshake");
  tested.wait();
}

inline void playTls(bool testsServer, std::span<const std::uint8_t> input) {
  static const bool isReady = [] {
    setLogFilter("off");
    makeOpenSslDeterministic();
    return true;
  }();
  require(isReady, "it is set up");
  randomState = 1;
  if (input.empty()) return;
  const Mode mode(input[0]);
  const Contexts contexts = Contexts::of(mode);
  randomState = 2;  // whether the contexts are new or not
  input = input.subspan(1);
  if (!mode.isEdited) return playRaw(contexts, testsServer, input);
  if (mode.resumes) playEdited(mode, contexts, testsServer, {});
  playEdited(mode, contexts, testsServer, input);
}

}  // namespace millrace::fuzz
