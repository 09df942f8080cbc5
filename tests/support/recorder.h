// SPDX-License-Identifier: Apache-2.0
// What tests of pipelines share: a handler that records every event, and the list of all events.
#pragma once

#include <millrace/base/error.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/message.h>
#include <millrace/concurrent/future.h>
#include <millrace/loop/event_loop.h>
#include <millrace/sys/socket_address.h>
#include <millrace/transport/embedded_channel.h>

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::test {

using Log = std::vector<std::string>;

/// Adds "<name>.<event>" to a log for every call it gets, does what `on` says, and passes it on.
class Recorder : public ChannelHandler {
 public:
  using Action = std::function<void(Context& ctx)>;

  Recorder(std::string name, Log& log) : name_(std::move(name)), log_(log) {}
  Recorder(std::string name, Log& log, std::string event, Action action) : Recorder(name, log) {
    on[std::move(event)] = std::move(action);
  }

  /// By the event's name: what to do before it is passed on. May throw.
  std::map<std::string, Action, std::less<>> on;

  void handlerAdded(Context& ctx) override { note(ctx, "handlerAdded"); }
  void handlerRemoved(Context& ctx) override { note(ctx, "handlerRemoved"); }

#define MILLRACE_RECORD(event, fire)  \
  void event(Context& ctx) override { \
    note(ctx, #event);                \
    ctx.fire();                       \
  }
  MILLRACE_RECORD(channelRegistered, fireChannelRegistered)
  MILLRACE_RECORD(channelUnregistered, fireChannelUnregistered)
  MILLRACE_RECORD(channelActive, fireChannelActive)
  MILLRACE_RECORD(channelInactive, fireChannelInactive)
  MILLRACE_RECORD(channelReadComplete, fireChannelReadComplete)
  MILLRACE_RECORD(channelWritabilityChanged, fireChannelWritabilityChanged)
  MILLRACE_RECORD(read, read)
  MILLRACE_RECORD(flush, flush)
#undef MILLRACE_RECORD
  void channelRead(Context& ctx, Message&& msg) override {
    note(ctx, "channelRead");
    ctx.fireChannelRead(std::move(msg));
  }
  void userEventTriggered(Context& ctx, Message&& event) override {
    note(ctx, "userEventTriggered");
    ctx.fireUserEventTriggered(std::move(event));
  }
  void exceptionCaught(Context& ctx, const Error& error) override {
    note(ctx, "exceptionCaught");
    ctx.fireExceptionCaught(error);
  }
  void bind(Context& ctx, const SocketAddress& local, Promise<void>&& done) override {
    note(ctx, "bind");
    ctx.bind(local, std::move(done));
  }
  void connect(Context& ctx, const SocketAddress& remote, const SocketAddress& local,
               Promise<void>&& done) override {
    note(ctx, "connect");
    ctx.connect(remote, local, std::move(done));
  }
  void disconnect(Context& ctx, Promise<void>&& done) override {
    note(ctx, "disconnect");
    ctx.disconnect(std::move(done));
  }
  void close(Context& ctx, Promise<void>&& done) override {
    note(ctx, "close");
    ctx.close(std::move(done));
  }
  void deregister(Context& ctx, Promise<void>&& done) override {
    note(ctx, "deregister");
    ctx.deregister(std::move(done));
  }
  void write(Context& ctx, Message&& msg, Promise<void>&& done) override {
    note(ctx, "write");
    ctx.write(std::move(msg), std::move(done));
  }

 private:
  void note(Context& ctx, std::string_view event) {
    log_.push_back(name_ + "." + std::string(event));
    const auto found = on.find(event);
    if (found == on.end()) return;
    const Action action = found->second;  // it may change the map, or end this handler
    action(ctx);
  }

  const std::string name_;
  Log& log_;
};

/// One event, and how it comes about.
struct EventCase {
  std::string name;
  bool inbound;
  bool hasPromise;  ///< an outbound operation that somebody can wait for
  /// Fires it at the channel's end, or asks for it at the last handler's. In the loop.
  std::function<Future<void>(Channel& channel, Message&& msg)> fire;

  friend std::ostream& operator<<(std::ostream& out, const EventCase& event) {
    return out << event.name;
  }
};

/// All events of a handler but handlerAdded and handlerRemoved.
inline std::vector<EventCase> everyEvent() {
  const auto inbound = [](const char* name, void (ChannelPipeline::*fire)()) {
    return EventCase{name, true, false, [fire](Channel& channel, Message&&) {
                       (channel.pipeline().*fire)();
                       return Future<void>();
                     }};
  };
  const auto asked = [](const char* name, Future<void> (Channel::*ask)()) {
    return EventCase{name, false, true,
                     [ask](Channel& channel, Message&&) { return (channel.*ask)(); }};
  };
  using P = ChannelPipeline;
  std::vector<EventCase> all = {
      inbound("channelRegistered", &P::fireChannelRegistered),
      inbound("channelUnregistered", &P::fireChannelUnregistered),
      inbound("channelActive", &P::fireChannelActive),
      inbound("channelInactive", &P::fireChannelInactive),
      inbound("channelReadComplete", &P::fireChannelReadComplete),
      inbound("channelWritabilityChanged", &P::fireChannelWritabilityChanged),
      asked("disconnect", &Channel::disconnect),
      asked("close", &Channel::close),
      asked("deregister", &Channel::deregister),
  };
  const auto add = [&all](const char* name, bool isInbound, bool hasPromise, auto fire) {
    all.push_back({name, isInbound, hasPromise, std::move(fire)});
  };
  add("channelRead", true, false, [](Channel& channel, Message&& msg) {
    channel.pipeline().fireChannelRead(std::move(msg));
    return Future<void>();
  });
  add("userEventTriggered", true, false, [](Channel& channel, Message&& msg) {
    channel.pipeline().fireUserEventTriggered(std::move(msg));
    return Future<void>();
  });
  add("exceptionCaught", true, false, [](Channel& channel, Message&&) {
    channel.pipeline().fireExceptionCaught(Error(Errc::timedOut, "fired"));
    return Future<void>();
  });
  add("bind", false, true,
      [](Channel& channel, Message&&) { return channel.bind(SocketAddress::loopback4(1)); });
  add("connect", false, true,
      [](Channel& channel, Message&&) { return channel.connect(SocketAddress::loopback4(2)); });
  add("read", false, false, [](Channel& channel, Message&&) {
    channel.read();
    return Future<void>();
  });
  add("flush", false, false, [](Channel& channel, Message&&) {
    channel.flush();
    return Future<void>();
  });
  add("write", false, true, [](Channel& channel, Message&& msg) {
    Promise<void> promise(channel.loop());
    Future<void> future = promise.future();
    channel.write(std::move(msg), std::move(promise));
    return future;
  });
  return all;
}

/// The entries of `log` that are about `event`, without its name: the handlers that saw it.
inline Log whoSaw(const Log& log, std::string_view event) {
  Log names;
  for (const std::string& entry : log) {
    const std::size_t dot = entry.find('.');
    if (std::string_view(entry).substr(dot + 1) == event) names.push_back(entry.substr(0, dot));
  }
  return names;
}

}  // namespace millrace::test
