// SPDX-License-Identifier: Apache-2.0
// EmbeddedChannel: a channel without a network, to test handlers with.
//
//   EmbeddedChannel channel([](Channel& ch) { ch.pipeline().emplaceLast<LineDecoder>(); });
//   channel.writeInbound(ByteBuf::of("hello\nwor"));            // as if the peer had sent it
//   EXPECT_EQ(channel.readInbound<std::string>(), "hello");     // what came out at the end
//   EXPECT_FALSE(channel.readInbound<std::string>());
//   channel.writeOutbound(std::string("bye"));                  // as if the program had written it
//   EXPECT_EQ(channel.outboundText(), "bye\n");                 // what the peer would get
//
// It has a loop of its own without a thread: time stands still until advanceTimeBy(), and tasks run
// inside the calls below. Calls of Channel itself hop to that loop as they always do, and take effect
// with the next call from here; run() does things on the loop at once, and may look at the pipeline.
//
// Threads: the thread that made it, but for what Channel allows to any. Ownership: an ordinary
// object; its destructor closes it and ends its loop. No ChannelPtr to it may outlive it.
// Failure: an error that no handler took is thrown by the call that brought it about, see
// checkException().
#pragma once

#include <millrace/channel/channel.h>
#include <millrace/channel/message.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace millrace {

class ManualClock;

/// How an EmbeddedChannel begins.
struct EmbeddedSetup {
  bool registered = true;  ///< false: start() registers it
  bool connected = true;   ///< false: bind() or connect() makes it active
};

/// See the top of this file.
class MILLRACE_API EmbeddedChannel final : public Channel {
 public:
  using Fill = std::function<void(Channel& channel)>;

  /// Registered and active, with the handlers that `fill` adds.
  explicit EmbeddedChannel(const Fill& fill = {});
  EmbeddedChannel(EmbeddedSetup setup, const Fill& fill = {});
  ~EmbeddedChannel() override;

  /// Registers it, if the setup left that for later.
  Future<void> start();

  // --- inbound: what the peer sends ---
  /// Each message is read, then comes channelReadComplete(). While nobody wants to read (auto read
  /// is off, the channel is not writable) they wait, as in a socket. True if something is there for
  /// readInbound().
  template <class... M>
  bool writeInbound(M&&... messages) {
    (arrive(Message(std::forward<M>(messages))), ...);
    return deliver();
  }
  /// One message is read now, whoever wants it; flushInbound() ends the burst.
  void writeOneInbound(Message msg);
  /// channelReadComplete().
  bool flushInbound();
  /// The next message that came to the end of the pipeline. Throws std::logic_error if it is not a T.
  template <class T>
  std::optional<T> readInbound() {
    return take<T>(nextInbound(typeid(T), &isA<T>));
  }
  /// The same, whatever it is; empty if there is none.
  Message readInbound() { return nextInbound(typeid(void), nullptr); }
  /// All the bytes that came to the end. Throws std::logic_error if there is something else.
  std::string inboundText();
  std::size_t inboundSize() const noexcept;
  /// Messages that wait until somebody wants to read.
  std::size_t waitingSize() const noexcept;
  /// The next user event that came to the end of the pipeline; empty if there is none.
  Message readUserEvent();
  /// The peer has ended its stream.
  void endInput();
  /// The connection is broken.
  void breakWith(const Error& error);

  // --- outbound: what the peer gets ---
  /// Each message is written, then all are flushed, through the whole pipeline. A write that fails
  /// counts as an error that no handler took. True if something is there for readOutbound().
  template <class... M>
  bool writeOutbound(M&&... messages) {
    (writeAndNote(Message(std::forward<M>(messages))), ...);
    return flushOutbound();
  }
  /// Writes without a flush.
  Future<void> writeOneOutbound(Message msg);
  bool flushOutbound();
  /// The next message that reached the peer. Throws std::logic_error if it is not a T.
  template <class T>
  std::optional<T> readOutbound() {
    return take<T>(nextOutbound(typeid(T), &isA<T>));
  }
  Message readOutbound() { return nextOutbound(typeid(void), nullptr); }
  /// All the bytes that reached the peer. Throws std::logic_error if there is something else.
  std::string outboundText();
  std::size_t outboundSize() const noexcept;
  /// The peer takes no more: what is written stays in the channel, which becomes unwritable above
  /// its high water mark.
  void stall();
  /// The peer takes `bytes` more, of ByteBufs; with the last one it stalls again.
  void takeBytes(std::size_t bytes);
  /// The peer takes everything again.
  void resume();
  /// The next `count` messages fail with `error`; the channel stays open.
  void failNextWrites(const Error& error, std::size_t count = 1);
  /// The next write to the peer fails with this errno, which closes the channel.
  void breakNextWrite(int errnoValue);
  bool isOutputShutdown() const noexcept;

  // --- connecting ---
  /// connect() waits for finishConnect().
  void holdConnects();
  /// The connect under way ends, well or not.
  void finishConnect(const Error& failure = {});

  // --- time and tasks ---
  /// Runs `fn` on the loop, then what waits there. Gives, or throws, what `fn` does. In the loop it
  /// just calls `fn`.
  template <class F>
  auto run(F&& fn) -> std::invoke_result_t<F&> {
    using R = std::invoke_result_t<F&>;
    if constexpr (std::is_void_v<R>) {
      runOnLoop([&fn] { fn(); });
    } else {
      std::optional<R> result;
      runOnLoop([&fn, &result] { result.emplace(fn()); });
      return std::move(*result);
    }
  }
  /// Runs what waits, and what follows from it. Throws std::logic_error if that does not end.
  void runPendingTasks();
  /// Time goes on by `step`: timers that are due run, in the order of their deadlines.
  void advanceTimeBy(Duration step);
  /// The clock of its loop.
  ManualClock& clock() noexcept;

  // --- the end ---
  /// Closes it through the pipeline, and runs what follows from it.
  Future<void> close();
  /// The same, and throws an error that no handler took. True if messages are left to be read.
  bool finish();
  /// Throws the first error that came to the end of the pipeline since the last call, if any.
  void checkException();
  /// The same, as a value; no error if there is none.
  Error takeException();

  // --- looking ---
  const char* kind() const noexcept override { return "embedded"; }
  SocketAddress localAddress() const override;
  SocketAddress remoteAddress() const override;
  /// The first handler that was added as an `H`, or null.
  template <class H>
  H* handler() {
    return run([this] { return pipeline().template get<H>(); });
  }
  /// Buffers from the loop's pool that somebody still has: 0 when nothing is left behind.
  std::int64_t liveBuffers();

 private:
  struct Parts;

  EmbeddedChannel(std::unique_ptr<Parts> parts, bool connected);

  // --- Channel ---
  Result<void> doRegister() override;
  void doDeregister() noexcept override {}
  Result<void> doBind(const SocketAddress& local) override;
  Result<bool> doConnect(const SocketAddress& remote, const SocketAddress& local) override;
  void doClose() noexcept override;
  Result<void> doShutdownOutput() override;
  void doBeginRead() override;
  int doWrite(OutboundBuffer& out) override;
  bool acceptsMessage(const Message&) const override { return true; }
  bool isActiveNow() const noexcept override;
  void unhandledRead(Message& msg) noexcept override;
  void unhandledEvent(Message& event) noexcept override;
  void unhandledError(const Error& error) noexcept override;

  template <class T>
  static bool isA(const Message& msg) noexcept {
    return msg.is<T>();
  }
  template <class T>
  static std::optional<T> take(Message msg) {
    if (!msg) return std::nullopt;
    return std::optional<T>(msg.take<T>());
  }
  using Question = bool (*)(const Message& msg) noexcept;
  Message nextInbound(const std::type_info& wanted, Question isWanted);
  Message nextOutbound(const std::type_info& wanted, Question isWanted);
  void arrive(Message msg);
  bool deliver();
  void readWaiting();
  void writeAndNote(Message msg);
  void writeBytes(OutboundBuffer& out);
  void runOnLoop(const std::function<void()>& fn);
  void endLoop();

  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace
