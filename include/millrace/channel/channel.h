// SPDX-License-Identifier: Apache-2.0
// Channel: a connection, a listening socket, or anything else that reads and writes messages.
//
// A channel belongs to one loop for life. Its handlers (see channel_pipeline.h) do the work there.
//
// Threads: every call from any thread unless a line says "loop thread"; from another thread it takes
// effect a little later, in the order of the calls. Ownership: its registration keeps it alive while
// it is open; ChannelPtr keeps the object alive, but not open.
// Failure: what the network does is a failed future or exceptionCaught(); docs/design/channel-life.md
// tells which events come in which order.
#pragma once

#include <millrace/base/atomic.h>
#include <millrace/base/export.h>
#include <millrace/base/ref.h>
#include <millrace/channel/channel_option.h>
#include <millrace/channel/channel_pipeline.h>
#include <millrace/concurrent/future.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace millrace {

class AttributeMap;
class BufferPool;
class Channel;
class EventLoop;
class LoopChannels;
class Message;
class OutboundBuffer;
class SocketAddress;

/// Keeps a channel's memory. Copies share it.
using ChannelPtr = Ref<Channel>;

/// See the top of this file. Transports derive from it; users get one from a bootstrap.
class MILLRACE_API Channel : public RefCounted<Channel> {
 public:
  virtual ~Channel();

  // --- who it is ---
  /// Different for every channel of this process; never 0.
  std::uint64_t id() const noexcept { return id_; }
  EventLoop& loop() const noexcept { return *loop_; }
  ChannelPipeline& pipeline() noexcept { return pipeline_; }
  const ChannelPipeline& pipeline() const noexcept { return pipeline_; }
  /// The listening channel that accepted it, or null.
  const ChannelPtr& parent() const noexcept { return parent_; }
  /// What it is: "tcp", "tcp server", "udp"…
  virtual const char* kind() const noexcept = 0;
  /// No address before it is bound; once it is closed, only listening channels still tell it. Any
  /// thread.
  virtual SocketAddress localAddress() const;
  /// No address before it is connected, and for those that have no peer. Any thread.
  virtual SocketAddress remoteAddress() const;
  /// The kernel's number, for what Millrace has no name for; -1 without one and once it is closed.
  /// Loop thread.
  virtual int descriptor() const noexcept { return -1; }
  /// "[17 tcp 127.0.0.1:8007 <- 127.0.0.1:40000]", for logs.
  std::string describe() const;
  /// Values that others hang on it.
  AttributeMap& attributes();

  // --- where it stands ---
  bool isOpen() const noexcept { return has(kOpen); }
  bool isRegistered() const noexcept { return has(kRegistered); }
  /// Connected, or bound and listening.
  bool isActive() const noexcept { return has(kActive); }
  /// False while more is queued than the high water mark, until it falls below the low one.
  bool isWritable() const noexcept { return has(kWritableBit) && isOpen(); }
  /// How much may be written before isWritable() becomes false, and how much has to go before it
  /// becomes true. Loop thread.
  std::size_t bytesBeforeUnwritable() const noexcept;
  std::size_t bytesBeforeWritable() const noexcept;
  /// Bytes of memory that wait to be written. Loop thread.
  std::size_t pendingBytes() const noexcept;
  /// Done when it is closed and its descriptor too, so that its port is free; never fails. Any thread.
  Future<void> closeFuture();
  /// Why it closed; no error if it was asked to, or the peer ended the stream. Loop thread.
  Error closeCause() const;

  // --- operations; they go through the whole pipeline, from the last handler on ---
  Future<void> bind(const SocketAddress& local);
  Future<void> connect(const SocketAddress& remote);
  Future<void> connect(const SocketAddress& remote, const SocketAddress& local);
  Future<void> disconnect();
  /// One last attempt to write what was flushed, then it is closed; what is left fails.
  Future<void> close();
  /// Leaves the loop without closing; registerChannel() on the same loop brings it back.
  Future<void> deregister();
  /// Asks for one message, or one connection; with auto read (the default) nobody needs to.
  void read();
  /// Queues `msg` until flush(). Without a promise a failure is counted and becomes the close cause.
  void write(Message&& msg, Promise<void> done = {});
  /// Sends what is queued, when the handlers of the current event have returned.
  void flush();
  void writeAndFlush(Message&& msg, Promise<void> done = {});
  /// The same with a future: done when the bytes have reached the kernel.
  Future<void> send(Message&& msg);
  /// Sends what is queued at once, as far as the kernel takes it. Loop thread.
  void flushNow();
  /// Ends the stream to the peer after what was flushed; reading goes on. Streams only.
  Future<void> shutdownOutput();
  /// Tells the handlers (the user event ClosingGracefully; close() of handlers is not called), stops
  /// reading, writes what was flushed, ends the stream, waits for the peer to end it too (at most
  /// options::lingerOnDrain) and closes: no answer is lost to a reset. A peer that takes nothing for
  /// that long is cut off.
  Future<void> closeGracefully();

  // --- options ---
  /// Fails with Errc::notSupported if this kind of channel has no such option, else with what the
  /// kernel says.
  template <class T>
  Future<void> setOption(const ChannelOption<T>& option, std::type_identity_t<T> value) {
    return setOptionValue(option, OptionValue(std::move(value)));
  }
  template <class T>
  Future<T> option(const ChannelOption<T>& option) {
    const Future<OptionValue> found = optionValue(option);
    if (found.isDone()) return Future<T>::of(valueOf<T>(found.result()));
    Promise<T> promise(found.executor());
    Future<T> future = promise.future();
    found.addListener([done = std::move(promise)](const Result<OptionValue>& result) {
      done.tryComplete(valueOf<T>(result));
    });
    return future;
  }
  bool isAutoRead() const noexcept { return has(kAutoRead); }
  /// False: input comes only when read() asks for it.
  void setAutoRead(bool on);

  // --- for handlers that hold messages back, see pending_writes.h ---
  /// So many bytes more, or less, count against the water marks. Loop thread.
  void countHeld(std::ptrdiff_t bytes) noexcept;
  /// When reading pauses, for handlers whose own work decides about it.
  enum class ReadPause : std::uint8_t {
    automatic,  ///< while the channel is not writable, as options::pauseReadsWhenUnwritable says
    never,      ///< what is held back waits for input, such as the end of a handshake
    always      ///< input that came now would have to be kept
  };
  /// `from` is what this handler has asked for so far, at first `automatic`. Of several handlers' wishes
  /// `always` goes first, then `never`. Loop thread.
  void changeReadPause(ReadPause from, ReadPause to);

  // --- for handlers that go on outside of an event: timers, listeners, work of other threads ---
  /// Calls `fn` as an event of this channel: what is closed or removed in it goes when it ends. Loop thread.
  template <class F>
  void inEvent(F&& fn) {
    const Ref<Channel> alive(this);  // outlives the scope
    const Scope scope(*this);
    fn();
  }

  // --- for bootstraps and transports ---
  /// Applies an option here and now. Loop thread, or before the registration.
  virtual Result<void> applyOption(const OptionKey& key, const OptionValue& value);
  virtual Result<OptionValue> lookUpOption(const OptionKey& key) const;
  void setParent(ChannelPtr parent) noexcept { parent_ = std::move(parent); }
  /// As registerChannel(); `fill`, if any, adds handlers once the channel is registered, and closes
  /// it by throwing. Loop thread. False if it could not be registered, and is closed.
  bool registerNow(const std::function<void(Channel&)>& fill, Promise<void> done = {});

 protected:
  /// Belongs to `loop` from now on; not registered yet.
  explicit Channel(EventLoop& loop);

  // --- what a transport does; loop thread ---
  /// Registers with the engine; interest begins with doBeginRead().
  virtual Result<void> doRegister() = 0;
  virtual void doDeregister() noexcept = 0;
  virtual Result<void> doBind(const SocketAddress& local);
  /// True: connected at once. False: under way, connectDone() follows.
  virtual Result<bool> doConnect(const SocketAddress& remote, const SocketAddress& local);
  virtual Result<void> doDisconnect();
  /// Releases the socket. Called once.
  virtual void doClose() noexcept = 0;
  virtual Result<void> doShutdownOutput();
  /// Input is wanted; called again after each batch.
  virtual void doBeginRead() = 0;
  /// Input is not wanted any more, for now.
  virtual void doStopRead() {}
  /// Writes what is flushed, as far as it goes, and takes it out. When the kernel is full it calls
  /// kernelIsFull() and arranges for flushAgain().
  /// Gives 0, or the errno that ends the channel.
  virtual int doWrite(OutboundBuffer& out) = 0;
  /// A last look at a write that is under way: true if it is over, and flushAgain() came.
  virtual bool doFinishWrite() { return false; }
  /// Bytes of a message that was handed over (handedOver()) and has not gone.
  virtual std::size_t doCountUnsent() const noexcept { return 0; }
  /// False: such messages cannot be written. ByteBufs need not be asked for.
  virtual bool acceptsMessage(const Message& msg) const;
  /// True once connected or bound, for a channel that was so before it was registered.
  virtual bool isActiveNow() const noexcept = 0;
  /// Lingering: no more input for the pipeline; end the output when everything is written.
  virtual bool canLinger() const noexcept { return false; }
  /// Reads and discards. At the end of input lingerDone() follows, but not before the output is ended
  /// (isOutputEnded(); it is called again then).
  virtual void doLinger() {}
  /// A message came to the end of the pipeline; what is left of it is dropped and counted.
  virtual void unhandledRead(Message& msg) noexcept;
  /// A user event came there.
  virtual void unhandledEvent(Message& event) noexcept;
  /// An error came there; it is logged.
  virtual void unhandledError(const Error& error) noexcept;

  // --- what a transport calls; loop thread ---
  /// For the length of a callback: what is closed or removed in it goes when it ends.
  class Scope {
   public:
    explicit Scope(Channel& channel) noexcept : channel_(channel) { ++channel_.depth_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      if (--channel_.depth_ == 0 && channel_.mustSettle_) channel_.settle();
    }

   private:
    Channel& channel_;
  };
  friend class Scope;
  /// For the length of an event of the channel itself: what its handlers flush goes when it ends,
  /// by `Write`, which says whether it took all of it.
  template <class Transport, bool (Transport::*Write)(ByteBuf&) noexcept>
  class EventScope;

  void connectDone(const Error& failure);
  /// In doWrite(): the kernel takes no more for now; flushAgain() follows.
  void kernelIsFull();
  /// The kernel takes bytes again.
  void flushAgain();
  /// The peer has ended its stream.
  void inputEnded();
  /// The connection is broken: exceptionCaught(), then closed.
  void failWith(const Error& error);
  void closeNow(const Error& cause);
  void lingerDone();
  void becomeActive();
  /// In writing a message from the loop's place: it is taken, and under way. It counts as pending
  /// until handOverDone(), which is false if there was none; flushAgain() follows.
  void handedOver(std::size_t cost) noexcept {
    unsent_ = static_cast<std::uint32_t>(cost);
    mark(kFullKernel);
  }
  bool handOverDone() noexcept { return std::exchange(unsent_, 0u) != 0; }
  /// After handOverDone(): what is left of the message goes before everything else.
  void handBack(ByteBuf&& rest);
  /// Auto read, and no handler that has a word in it.
  bool readsByItself() const noexcept {
    constexpr auto kSeesRead = static_cast<EventMask>(Event::read);
    return isAutoRead() && (pipeline_.events_ & kSeesRead) == 0;
  }
  /// True if input is wanted now.
  bool mayReadOn() const noexcept {
    return (flags_ & (kReadWanted | kPaused | kInputEnded)) == kReadWanted && isOpen();
  }
  /// Nothing is out of the ordinary; see channel_fast.h.
  bool isUsual() const noexcept;
  /// What its handlers write in this event may wait in the loop's place. REQUIRES: isUsual(), in an
  /// EventScope
  void allowSolo() noexcept { flags_ |= kMayWriteSolo; }
  /// A burst of reads begins; false if input is not wanted.
  bool beginBurst() noexcept {
    constexpr auto kSeesRead = static_cast<EventMask>(Event::read);
    if (!mayReadOn()) return false;
    if (!isAutoRead() || (pipeline_.events_ & kSeesRead) != 0) flags_ &= ~kReadWanted;
    return true;
  }
  /// Between the reads of a burst: false if it ends here.
  bool mayContinueBurst() const noexcept {
    return (flags_ & (kPaused | kInputEnded)) == 0 &&
           (state_.load(std::memory_order_relaxed) & (kOpen | kAutoRead)) == (kOpen | kAutoRead);
  }
  /// A message was read. Within a Scope.
  void passRead(Message&& msg) noexcept { pipeline_.passRead(std::move(msg)); }
  /// After a burst: channelReadComplete() if it brought something, and the next read() if it is
  /// automatic.
  void endBurst(bool hasRead) {
    if (hasRead) pipeline_.passReadComplete();
    if (!hasRead || (flags_ & kReadWanted) == 0) askForMore(hasRead);
  }
  /// The addresses kept in members are set, for good: any thread may read them from now on.
  void addressesAreKnown() noexcept { set(kAddressed); }
  bool mayReadAddresses() const noexcept { return has(kAddressed) || inLoop(); }
  /// Calls `look`, from any thread, while the descriptor cannot be closed; gives an empty value if
  /// it is closed already. close() waits for it, so it must be short.
  template <class F>
  auto whileOpen(F&& look) const;  // in channel_fast.h
  /// Between the reads of a burst: a flush that was asked for does not wait for the end of one that
  /// takes long. `began`: 0 at first.
  void flushLongBurst(std::int64_t& began) {
    if ((flags_ & kFlushWanted) != 0) flushIfLong(began);
  }
  bool isLingering() const noexcept { return (flags_ & kLingering) != 0; }
  /// Everything was written, and the peer told so.
  bool isOutputEnded() const noexcept { return (flags_ & kOutputEnded) != 0; }
  bool isConnecting() const noexcept { return (flags_ & kConnecting) != 0; }
  BufferPool& pool() const noexcept;
  LoopChannels& local() const noexcept { return *local_; }
  const ChannelSettings& settings() const noexcept { return *settings_; }
  bool hasFlushed() const noexcept;
  /// Something is flushed, or under way to the kernel.
  bool hasUnsent() const noexcept { return unsent_ != 0 || hasFlushed(); }
  bool isPaused() const noexcept { return (flags_ & kPaused) != 0; }
  bool isInputEnded() const noexcept { return (flags_ & kInputEnded) != 0; }

 private:
  friend class ChannelPipeline;
  friend class Context;
  friend class LoopChannels;
  friend Future<void> registerChannel(EventLoop& loop, const ChannelPtr& channel);

  // state_: read by any thread, written by the loop.
  static constexpr std::uint32_t kOpen = 1u << 0;
  static constexpr std::uint32_t kRegistered = 1u << 1;
  static constexpr std::uint32_t kActive = 1u << 2;
  static constexpr std::uint32_t kWritableBit = 1u << 3;
  static constexpr std::uint32_t kAutoRead = 1u << 4;
  static constexpr std::uint32_t kTouched = 1u << 5;    // a registration has begun, once
  static constexpr std::uint32_t kAddressed = 1u << 6;  // addresses do not change any more
  static constexpr std::uint32_t kPinned = 1u << 7;     // somebody looks at the descriptor
  static constexpr std::uint32_t kClosed = 1u << 8;     // it is closed, and so is the descriptor

  // flags_: loop thread.
  static constexpr std::uint32_t kReadWanted = 1u << 0;
  static constexpr std::uint32_t kPaused = 1u << 1;  // reads wait until it is writable again
  static constexpr std::uint32_t kInputEnded = 1u << 2;
  static constexpr std::uint32_t kOutputEnded = 1u << 3;
  static constexpr std::uint32_t kEndOutputAfterFlush = 1u << 4;
  static constexpr std::uint32_t kInFlush = 1u << 5;
  static constexpr std::uint32_t kCloseAfterFlush = 1u << 6;
  static constexpr std::uint32_t kDirty = 1u << 7;  // in the loop's list
  static constexpr std::uint32_t kFlushWanted = 1u << 8;
  static constexpr std::uint32_t kToldWritable = 1u << 9;  // what handlers believe
  static constexpr std::uint32_t kEverActive = 1u << 10;
  static constexpr std::uint32_t kLingering = 1u << 11;
  static constexpr std::uint32_t kTellInactive = 1u << 12;
  static constexpr std::uint32_t kFinished = 1u << 13;
  static constexpr std::uint32_t kLeaveWhenClean = 1u << 14;
  static constexpr std::uint32_t kFullKernel = 1u << 15;  // a write waits for the kernel
  static constexpr std::uint32_t kDeregistering = 1u << 16;
  static constexpr std::uint32_t kDirtyHere = 1u << 17;  // the EventScope on the stack does it
  static constexpr std::uint32_t kInEvent = 1u << 18;    // an EventScope is on the stack
  static constexpr std::uint32_t kConnecting = 1u << 19;
  static constexpr std::uint32_t kMayWriteSolo = 1u << 20;  // in its event; see channel_fast.h
  static constexpr std::uint32_t kTellWritable = 1u << 21;  // it was unwritable, untold

  /// With so much waiting, flush() does not wait for the end of the event.
  static constexpr std::size_t kFlushAtOnce = 64 * 1024;
  /// Nor does it once the burst has run for so long.
  static constexpr std::int64_t kLongBurstNanos = 200'000;

  struct Rare;  // what few channels need

  bool has(std::uint32_t bit) const noexcept {
    return (state_.load(std::memory_order_acquire) & bit) != 0;
  }
  void set(std::uint32_t bits) noexcept { state_.fetch_or(bits, std::memory_order_acq_rel); }
  void unset(std::uint32_t bits) noexcept { state_.fetch_and(~bits, std::memory_order_seq_cst); }
  void mark(std::uint32_t bits) noexcept { flags_ |= bits; }
  void unmark(std::uint32_t bits) noexcept { flags_ &= ~bits; }
  bool inLoop() const noexcept;

  template <class Call>
  void hop(Call&& call);
  template <class Call>
  Future<void> hopWithFuture(Call&& call);
  Future<void> setOptionValue(const OptionKey& key, OptionValue value);
  Future<OptionValue> optionValue(const OptionKey& key);
  template <class T>
  static Result<T> valueOf(const Result<OptionValue>& result) {
    if (!result) return result.error();
    return std::get<T>(result.value());
  }
  bool isSettled(Event event) const noexcept;
  void enterRead();
  void enterWrite(Message&& msg, Promise<void>&& done);
  void enterFlush();

  // The channel's end of the pipeline: what outbound operations come to.
  void bindInLoop(const SocketAddress& local, Promise<void>&& done);
  void connectInLoop(const SocketAddress& remote, const SocketAddress& local, Promise<void>&& done);
  void disconnectInLoop(Promise<void>&& done);
  void closeInLoop(Promise<void>&& done);
  void deregisterInLoop(Promise<void>&& done);
  void readInLoop();
  void writeInLoop(Message&& msg);
  void writeInLoop(Message&& msg, Promise<void>&& done);
  void flushInLoop();
  void shutdownOutputInLoop(Promise<void>&& done);
  void lingerInLoop();
  void lingerWithLoop();
  void watchLinger(std::size_t pending);

  bool registerInLoop(Promise<void>&& done, const std::function<void(Channel&)>* fill);
  void fillPipeline(const std::function<void(Channel&)>& fill);
  void stopRegistering(const Error& why, Promise<void>& done);
  void writePending();
  void flushIfLong(std::int64_t& began);
  bool mayWrite(Message& msg, Promise<void>& done);
  void writeSlowly(Message& msg);
  void writeSlowly(Message& msg, Promise<void>& done);
  void flushSlowly();
  void spill() noexcept;
  void spillNow() noexcept;
  void afterWrite(int error);
  void endOutput();
  void writeLastTime();
  void takeAwayOutbound(const Error& why);
  void updateWritability() noexcept;
  void updatePause();
  void tellWritability();
  void makeDirty() noexcept;
  void cleaned() noexcept;
  void writeAfterEvent() noexcept;
  void settle() noexcept;
  bool leaveLoop() noexcept;
  void beginLinger();
  void refuseWrite(const Error& why, Message& msg, Promise<void>& done);
  void readAgainIfAutomatic();
  void askForMore(bool hasRead);
  void dropped(Message& msg) noexcept;
  Rare& rare();
  Error closedError(const char* operation) const;
  void replaceSettings(const ChannelSettings& settings);

  EventLoop* const loop_;  // counted
  LoopChannels* local_ = nullptr;
  const std::uint64_t id_;
  mutable Atomic<std::uint32_t> state_{kOpen | kWritableBit | kAutoRead};
  std::uint32_t flags_ = kToldWritable;
  std::uint32_t depth_ = 0;        // callbacks on the stack
  std::uint32_t index_ = 0;        // in the loop's table
  bool mustSettle_ = false;        // something waits for depth 0
  std::uint8_t readsAsked_ = 0;    // handlers that want ReadPause::never
  std::uint8_t readsRefused_ = 0;  // and ReadPause::always
  std::uint32_t unsent_ = 0;       // what a message under way costs; see handedOver()
  ChannelPipeline pipeline_;
  OutboundBuffer* outbound_ = nullptr;  // only while something is queued
  Channel* nextDirty_ = nullptr;
  Context* buried_ = nullptr;        // removed, to be freed at depth 0
  const ChannelSettings* settings_;  // its own, or the default ones
  ChannelPtr parent_;
  std::unique_ptr<Rare> rare_;
  Atomic<internal::ResultState<void>*> closeState_{nullptr};  // counted; made when asked for
  Atomic<AttributeMap*> attributes_{nullptr};                 // owned; made when asked for
};

/// Registers `channel` with its loop: handlerAdded(), the future, channelRegistered(), and
/// channelActive() if it is connected or bound already. Fails, and closes the channel, if the loop
/// cannot have it; fails and leaves it alone if it is registered, or belongs to another loop.
MILLRACE_API Future<void> registerChannel(EventLoop& loop, const ChannelPtr& channel);

}  // namespace millrace
