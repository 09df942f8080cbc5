// SPDX-License-Identifier: Apache-2.0
// Connection: what TlsHandler does. Brings a Session and a channel together.
//
//   idle ─active─> hello ─────> queued ──> handshaking <──> working         hello: of servers only
//                    └────────────┴──────────> │  └─────────> open ──> failed, gone
//
//   queued: waits for its turn in the HandshakeGate      working: a thread of the pool has the session
//
// Threads: loop thread only, but for the session while it is `working`. Ownership: its handler, and whoever
// will call it: timers, the gate, listeners of writes. After the handler has left ctx_ is null, and nothing
// happens any more.
#pragma once

#include "tls/client_hello.h"
#include "tls/context_core.h"
#include "tls/held_writes.h"
#include "tls/session.h"
#include "tls/warm_sessions.h"

#include <millrace/base/attribute_map.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/tls/tls_context.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace millrace::tls {

/// On a channel whose handshake failed: why. The handler is gone when somebody asks late.
extern const AttributeKey<Error> kHandshakeFailure;

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  /// Without a host it is a server's end.
  Connection(const TlsContext& context, std::string host, std::uint16_t port);

  // --- what happens to the handler ---
  void added(Context& ctx);
  void removed();
  void active();
  void inactive();
  void read(ByteBuf&& ciphertext);
  void readComplete();
  /// True if the event goes no further.
  bool inputShutdown();
  /// No input follows: a handshake that is not done never will be.
  void closingGracefully();
  void write(ByteBuf&& plaintext, Promise<void>&& done);
  void flush();
  void close(Promise<void>&& done);
  /// What was flushed, then close_notify; nothing can be written afterwards.
  void endOutput();
  /// The same, when the handshake is done.
  void endOutputLater();
  /// By the gate: it is this one's turn. False if it does not need it any more.
  bool admitted();

  Future<void> handshakeFuture();
  bool isHandshakeDone() const noexcept { return stage_ == Stage::open || wasOpen_; }
  TlsInfo info() const;
  std::string applicationProtocol() const {
    return isHandshakeDone() && session_ ? session_->applicationProtocol() : std::string();
  }

 private:
  enum class Stage : std::uint8_t { idle, hello, queued, handshaking, working, open, failed, gone };
  /// Plaintext that is encrypted before the kernel has taken what was encrypted before.
  static constexpr std::size_t kRound = 256 * 1024;

  Channel& channel() const noexcept;
  bool isClient() const noexcept { return !host_.empty(); }
  const Settings& settings() const noexcept { return snapshot_->settings; }
  std::string who() const;
  /// What this handler wishes of Channel::changeReadPause().
  void setReadPause(Channel::ReadPause when);

  // --- connection.cc: the handshake ---
  void begin();
  void beginClient();
  void lookAtHello(ByteBuf&& bytes);
  void makeServer();
  void enterGate();
  bool offload();
  void stepHere();
  void worked(Session::Step step);
  void finishStep(Session::Step step);
  void handshakeDone();
  void abandon(const Error& why);
  void giveUp(const Error& why);
  void fail(const Error& why);
  void alert(std::uint8_t description);
  void setTimer(Duration limit, void (Connection::*then)());
  void handshakeTimedOut();

  // --- connection_data.cc: afterwards ---
  void useSession();
  void readPlaintext();
  bool afterRead(Session::Step step);
  void peerClosed();
  void seal(std::size_t budget);
  bool sealFront(std::size_t& budget);
  bool gather(std::size_t& budget);
  void popSealed();
  void dropCancelled();
  void sendSealed(bool goesOn);
  /// False if the handler has left meanwhile.
  [[nodiscard]] bool sendOutput();
  bool isGone() const noexcept { return ctx_ == nullptr || stage_ != Stage::open; }
  void sayClose();
  void closeIfOver();
  void finishClose();
  void failHeld(const Error& why);

  TlsContext context_;
  const std::string host_;
  const std::uint16_t port_;
  std::shared_ptr<const Snapshot> snapshot_;  // shared with other connections of its time
  Context* ctx_ = nullptr;
  std::unique_ptr<ClientHelloReader> hello_;
  std::optional<Session> session_;
  WarmSessions::Place warm_;
  ByteBuf early_;             // came while the session was away
  std::size_t inRecord_ = 0;  // ciphertext that has brought no plaintext yet
  HeldWrites held_;
  std::vector<Promise<void>> sealed_;  // those whose bytes are in the session's output
  Promise<void> handshake_;            // made when asked for
  std::vector<Promise<void>> closers_;
  ScheduledFuture timer_;  // of the handshake, or of the close
  Error failure_;
  Stage stage_ = Stage::idle;
  bool wasOpen_ = false;
  Channel::ReadPause pause_ = Channel::ReadPause::automatic;
  bool hasAlerted_ = false;     // without a session
  bool isSending_ = false;      // ciphertext, and handlers in front of us have a word
  bool roundUnderWay_ = false;  // enough is encrypted
  bool inBurst_ = false;        // channelReadComplete() follows
  bool hasFired_ = false;       // a message, in this burst
  bool isClosing_ = false;
  bool isLeaving_ = false;   // by our own will: what the peer has not said is no loss
  bool inputEnded_ = false;  // the stream is over, close_notify or not
  bool endsLater_ = false;   // endOutput() follows the handshake
  bool saidClose_ = false;
  bool closeIsSent_ = false;
  bool gotClose_ = false;
};

}  // namespace millrace::tls
