// SPDX-License-Identifier: Apache-2.0
// ChannelHandler: what users write. One class for both directions.
//
//   struct EchoHandler : ChannelHandler {
//     void channelRead(Context& ctx, Message&& msg) override { ctx.write(std::move(msg)); }
//     void channelReadComplete(Context& ctx) override { ctx.flush(); }
//   };
//
// Inbound events travel from the first handler to the last, outbound operations from the last to the
// first. A handler that does not override an event is not asked: the pipeline knows at compile time
// (see eventsOf). What an override does not pass on by `ctx.fire…()` or `ctx.write(…)` ends there.
//
// Threads: every call comes on the channel's loop. What one throws becomes exceptionCaught() of the
// same handler. Ownership: a handler belongs to its pipeline, or is shared where its class says
// `static constexpr bool sharable = true`.
#pragma once

#include <millrace/base/export.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

class Context;
class Error;
class Message;
class SocketAddress;
template <class T>
class Promise;

/// See the top of this file. Every event does nothing but pass on unless it is overridden.
class MILLRACE_API ChannelHandler {
 public:
  ChannelHandler() noexcept = default;
  ChannelHandler(const ChannelHandler&) = delete;
  ChannelHandler& operator=(const ChannelHandler&) = delete;
  virtual ~ChannelHandler();

  /// It is in the pipeline of a registered channel; the first call it gets.
  virtual void handlerAdded(Context& ctx);
  /// It has left the pipeline; the last call it gets.
  virtual void handlerRemoved(Context& ctx);

  // --- inbound ---
  /// The channel belongs to its loop now.
  virtual void channelRegistered(Context& ctx);
  /// It does not any more.
  virtual void channelUnregistered(Context& ctx);
  /// Connected, or bound.
  virtual void channelActive(Context& ctx);
  /// Closed; nothing more is read.
  virtual void channelInactive(Context& ctx);
  /// A message was read, or made by an earlier handler. What is not moved from is dropped.
  virtual void channelRead(Context& ctx, Message&& msg);
  /// No more messages for now: the time to flush.
  virtual void channelReadComplete(Context& ctx);
  /// Something that another handler, or the transport, wants to be known.
  virtual void userEventTriggered(Context& ctx, Message&& event);
  /// Channel::isWritable() has changed.
  virtual void channelWritabilityChanged(Context& ctx);
  /// A handler threw, or the transport failed. The channel stays open unless somebody closes it.
  virtual void exceptionCaught(Context& ctx, const Error& error);

  // --- outbound ---
  /// Bind to a local address.
  virtual void bind(Context& ctx, const SocketAddress& local, Promise<void>&& done);
  /// Connect to `remote`, from `local` if that is an address.
  virtual void connect(Context& ctx, const SocketAddress& remote, const SocketAddress& local,
                       Promise<void>&& done);
  /// Leave the peer; streams close.
  virtual void disconnect(Context& ctx, Promise<void>&& done);
  /// Close the channel.
  virtual void close(Context& ctx, Promise<void>&& done);
  /// Leave the loop without closing.
  virtual void deregister(Context& ctx, Promise<void>&& done);
  /// Read when there is something; once, if auto read is off.
  virtual void read(Context& ctx);
  /// Queue a message for the peer.
  virtual void write(Context& ctx, Message&& msg, Promise<void>&& done);
  /// Send what is queued.
  virtual void flush(Context& ctx);
};

// --- which events a class overrides, found out at compile time ---
//
// An event counts as overridden if `&H::event` names a member of another class than ChannelHandler,
// or cannot be named at all (private, overloaded). A member that merely hides an event, having other
// parameters, would never be called: that does not compile.

/// One bit per event.
enum class Event : std::uint32_t {
  channelRegistered = 1u << 0,
  channelUnregistered = 1u << 1,
  channelActive = 1u << 2,
  channelInactive = 1u << 3,
  channelRead = 1u << 4,
  channelReadComplete = 1u << 5,
  userEventTriggered = 1u << 6,
  channelWritabilityChanged = 1u << 7,
  exceptionCaught = 1u << 8,
  bind = 1u << 9,
  connect = 1u << 10,
  disconnect = 1u << 11,
  close = 1u << 12,
  deregister = 1u << 13,
  read = 1u << 14,
  write = 1u << 15,
  flush = 1u << 16,
};

using EventMask = std::uint32_t;
inline constexpr EventMask kEveryEvent = (1u << 17) - 1;

namespace internal {

template <class Member>
struct MemberOf;
template <class R, class C, class... Args>
struct MemberOf<R (C::*)(Args...)> {
  using Class = C;
  using Signature = R(Args...);
};
template <class R, class C, class... Args>
struct MemberOf<R (C::*)(Args...) noexcept> : MemberOf<R (C::*)(Args...)> {};
template <class R, class C, class... Args>
struct MemberOf<R (C::*)(Args...) const> {
  using Class = C;
  using Signature = void();  // never that of an event
};

/// `Found` is the type of &H::event, or void if it cannot be named.
template <class Found, class Original>
constexpr bool overrides() {
  if constexpr (std::is_void_v<Found>) {
    return true;
  } else if constexpr (std::is_same_v<Found, Original>) {
    return false;
  } else {
    using Mine = MemberOf<Found>;
    static_assert(std::is_same_v<typename Mine::Signature, typename MemberOf<Original>::Signature>,
                  "this member has the name of an event of ChannelHandler but other parameters: it "
                  "hides the event and is never called; write `override` behind it and mend them");
    return !std::is_same_v<typename Mine::Class, ChannelHandler>;
  }
}

#define MILLRACE_EVENT(event)                                                              \
  template <class H>                                                                       \
  constexpr EventMask event##Bit() {                                                       \
    constexpr auto bit = static_cast<EventMask>(Event::event);                             \
    if constexpr (requires { &H::event; }) {                                               \
      return overrides<decltype(&H::event), decltype(&ChannelHandler::event)>() ? bit : 0; \
    } else {                                                                               \
      return bit;                                                                          \
    }                                                                                      \
  }
MILLRACE_EVENT(channelRegistered)
MILLRACE_EVENT(channelUnregistered)
MILLRACE_EVENT(channelActive)
MILLRACE_EVENT(channelInactive)
MILLRACE_EVENT(channelRead)
MILLRACE_EVENT(channelReadComplete)
MILLRACE_EVENT(userEventTriggered)
MILLRACE_EVENT(channelWritabilityChanged)
MILLRACE_EVENT(exceptionCaught)
MILLRACE_EVENT(bind)
MILLRACE_EVENT(connect)
MILLRACE_EVENT(disconnect)
MILLRACE_EVENT(close)
MILLRACE_EVENT(deregister)
MILLRACE_EVENT(read)
MILLRACE_EVENT(write)
MILLRACE_EVENT(flush)
#undef MILLRACE_EVENT

}  // namespace internal

/// The events that `H` overrides.
template <class H>
constexpr EventMask eventsOf() {
  using namespace internal;
  return channelRegisteredBit<H>() | channelUnregisteredBit<H>() | channelActiveBit<H>() |
         channelInactiveBit<H>() | channelReadBit<H>() | channelReadCompleteBit<H>() |
         userEventTriggeredBit<H>() | channelWritabilityChangedBit<H>() | exceptionCaughtBit<H>() |
         bindBit<H>() | connectBit<H>() | disconnectBit<H>() | closeBit<H>() | deregisterBit<H>() |
         readBit<H>() | writeBit<H>() | flushBit<H>();
}

}  // namespace millrace
