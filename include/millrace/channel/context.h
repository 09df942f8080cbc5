// SPDX-License-Identifier: Apache-2.0
// Context: the place of a handler in a pipeline, and its way to the neighbours.
//
//   ctx.fireChannelRead(std::move(msg));   // inbound: on to the next handler
//   ctx.write(std::move(reply));           // outbound: from here towards the channel
//
// Threads: the channel's loop only, checked in every build; Channel has the same calls for any
// thread. Ownership: a Context belongs to its pipeline and is valid until handlerRemoved().
#pragma once

#include <millrace/base/export.h>
#include <millrace/channel/channel_handler.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>

namespace millrace {

class ByteBuf;
class Channel;
class ChannelPipeline;
class EventLoop;

namespace internal {

/// What a pipeline knows of the class of a handler. One per way of adding it.
struct HandlerType {
  const std::type_info* type;
  EventMask mask;
  void (*destroy)(Context* context) noexcept;
};

}  // namespace internal

/// See the top of this file.
class MILLRACE_API Context {
 public:
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Channel& channel() const noexcept { return *channel_; }
  ChannelPipeline& pipeline() const noexcept;
  EventLoop& loop() const noexcept;
  ChannelHandler& handler() const noexcept { return *handler_; }
  /// The name it was added with, or one made of its class: "EchoHandler#0".
  std::string name() const;
  /// True once the handler has left the pipeline.
  bool isRemoved() const noexcept { return state_ == State::removed; }
  /// An empty buffer from the loop's pool.
  ByteBuf allocate(std::size_t capacity) const;

  // --- inbound: to the next handler ---
  void fireChannelRegistered();
  void fireChannelUnregistered();
  void fireChannelActive();
  void fireChannelInactive();
  /// What nobody moves from is dropped and counted.
  void fireChannelRead(Message&& msg);
  void fireChannelReadComplete();
  void fireUserEventTriggered(Message&& event);
  void fireChannelWritabilityChanged();
  void fireExceptionCaught(const Error& error);

  // --- outbound: to the handler before this one, in the end to the channel ---
  // Without a promise nobody is told of a failure but the counters and the channel's close cause.
  void bind(const SocketAddress& local);
  void bind(const SocketAddress& local, Promise<void> done);
  void connect(const SocketAddress& remote);
  void connect(const SocketAddress& remote, Promise<void> done);
  void connect(const SocketAddress& remote, const SocketAddress& local, Promise<void> done);
  void disconnect();
  void disconnect(Promise<void> done);
  void close();
  void close(Promise<void> done);
  void deregister();
  void deregister(Promise<void> done);
  void read();
  /// Queues `msg` until flush().
  void write(Message&& msg);
  void write(Message&& msg, Promise<void> done);
  void flush();
  void writeAndFlush(Message&& msg);
  void writeAndFlush(Message&& msg, Promise<void> done);

 protected:
  Context(Channel& channel, ChannelHandler& handler, const internal::HandlerType& type) noexcept
      : channel_(&channel), handler_(&handler), type_(&type), mask_(type.mask) {}
  ~Context();

 private:
  friend class Channel;
  friend class ChannelPipeline;
  enum class State : std::uint8_t { fresh, added, removed };

  void checkInLoop() const {
    if (__builtin_expect(!isInLoop(), 0)) wrongThread();
  }
  bool isInLoop() const noexcept;
  [[noreturn]] void wrongThread() const;
  Context* nextFor(Event event) const noexcept;
  Context* previousFor(Event event) const noexcept;
  template <class Call>
  void invoke(Call&& call) noexcept;
  template <class Call>
  void invokeOutbound(Promise<void>& done, Call&& call) noexcept;
  void invokeRead(Message&& msg) noexcept;
  void readBy(Context& target);
  void writeBy(Context& target, Message& msg);
  void writeBy(Context& target, Message& msg, Promise<void>& done);
  void flushBy(Context& target);
  void caught(const Error& error) noexcept;
  void tell(Context* target, const Error& error) const noexcept;
  void failed() noexcept;
  void failedOutbound(Promise<void>& done) noexcept;

  Channel* channel_;
  Context* next_ = nullptr;
  Context* previous_ = nullptr;
  ChannelHandler* handler_;
  const internal::HandlerType* type_;
  std::unique_ptr<std::string> name_;  // null: made of the class
  EventMask mask_;
  State state_ = State::fresh;
  Context* buriedBefore_ = nullptr;  // in the list of removed ones
};

namespace internal {

/// A context with the handler inside: one allocation for both.
template <class H>
class EmplacedContext final : public Context {
 public:
  template <class... Args>
  explicit EmplacedContext(Channel& channel, Args&&... args)
      : Context(channel, object_, kType), object_(std::forward<Args>(args)...) {}
  H& object() noexcept { return object_; }

 private:
  static void destroy(Context* context) noexcept { delete static_cast<EmplacedContext*>(context); }
  static constexpr HandlerType kType{&typeid(H), eventsOf<H>(), &destroy};

  H object_;
};

/// A context that holds the handler by a pointer, its own or a shared one.
template <class H, class Pointer>
class PointingContext final : public Context {
 public:
  PointingContext(Channel& channel, Pointer handler)
      : Context(channel, *handler, typeOf(*handler)), pointer_(std::move(handler)) {}

 private:
  // The object may be of a class derived from H, whose overrides nobody knows here.
  static const HandlerType& typeOf(const ChannelHandler& handler) noexcept {
    return typeid(handler) == typeid(H) ? kType : kDerived;
  }
  static void destroy(Context* context) noexcept { delete static_cast<PointingContext*>(context); }
  static constexpr HandlerType kType{&typeid(H), eventsOf<H>(), &destroy};
  static constexpr HandlerType kDerived{&typeid(H), kEveryEvent, &destroy};

  Pointer pointer_;
};

}  // namespace internal

}  // namespace millrace
