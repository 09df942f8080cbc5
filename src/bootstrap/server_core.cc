// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/server_core.h"

#include "channel/loop_channels.h"

#include <millrace/base/log.h>
#include <millrace/channel/message.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io_handler.h>
#include <millrace/sys/socket.h>
#include <millrace/transport/transports.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <sys/socket.h>
#include <utility>

namespace millrace::internal {

namespace {

/// Last in the pipeline of a listening channel.
class Acceptor final : public ChannelHandler {
 public:
  explicit Acceptor(std::shared_ptr<ServerCore> core) : core_(std::move(core)) {}

  void channelRead(Context& ctx, Message&& msg) override {
    if (!msg.is<AcceptedSocket>()) return ctx.fireChannelRead(std::move(msg));
    core_->adopt(ctx.channel(), msg.take<AcceptedSocket>());
  }

 private:
  std::shared_ptr<ServerCore> core_;  // shared with the server's handles
};

Error noTransport(const EventLoop& loop) {
  return {Errc::notSupported, "bind",
          loop.name() + " (engine " + loop.ioType().name +
              " has no sockets; use io::epoll(), or give a transport)"};
}

}  // namespace

ServerCore::ServerCore(const ServerBootstrap& from)
    : boss_(from.boss_->source()),
      workers_(from.workers_->source()),
      listening_(from.listening_),
      connections_(from.connections_),
      parent_(from.parent_),
      child_(from.child_),
      perLoop_(from.perLoop_) {}

// --- binding: all addresses, or none ---

struct ServerCore::Binding {
  std::shared_ptr<ServerCore> core;  // shared with what it makes
  Promise<Server> promise;
  std::mutex mutex;
  std::size_t left = 0;          // guarded by mutex
  Error failure;                 // guarded by mutex
  std::vector<ChannelPtr> made;  // guarded by mutex; by position
  std::vector<Fd> holders;       // keep the ports that the listeners share until they have them

  void done(std::size_t position, Result<ChannelPtr> result) {
    std::unique_lock lock(mutex);
    if (result) {
      made[position] = std::move(*result);
    } else if (!failure) {
      failure = result.error();
    }
    if (--left != 0) return;
    lock.unlock();
    if (failure) {
      for (const ChannelPtr& each : made) {
        if (each) each->close();
      }
      promise.tryFailure(failure);
      return;
    }
    core->listeners_ = std::move(made);
    holders.clear();
    core->beginToAccept();
    promise.trySuccess(Server(std::make_shared<ServerHandle>(core)));
  }
};

namespace {

/// Several listeners on one port that the kernel chooses: it does so here, for all of them. The socket
/// does not listen, so that no connection comes to it.
Result<Fd> holdPort(SocketAddress& address) {
  Result<Fd> holder = openSocket(address, SocketType::stream);
  if (!holder) return holder;
  if (Result<void> set = setOption(holder->get(), SOL_SOCKET, SO_REUSEPORT, 1); !set) {
    return set.error();
  }
  if (Result<void> bound = bindSocket(holder->get(), address); !bound) return bound.error();
  Result<SocketAddress> name = sockName(holder->get());
  if (!name) return name.error();
  address = *name;
  return holder;
}

}  // namespace

Future<Server> ServerCore::bind(const ServerBootstrap& from, std::vector<SocketAddress> addresses) {
  auto core = std::make_shared<ServerCore>(from);
  auto binding = std::make_shared<Binding>();
  struct Place {
    Ref<EventLoop> loop;
    SocketAddress address;
  };
  std::vector<Place> places;
  for (const SocketAddress& address : addresses) {
    if (from.perLoop_) {
      SocketAddress shared = address;
      if (address.isInet() && address.port() == 0) {
        Result<Fd> holder = holdPort(shared);
        if (!holder) return Future<Server>::of(holder.error());
        binding->holders.push_back(std::move(*holder));
      }
      for (Ref<EventLoop>& loop : core->boss_->loops()) places.push_back({loop, shared});
      continue;
    }
    Result<Ref<EventLoop>> loop = core->boss_->acquire();
    if (!loop) {
      for (const Place& each : places) core->boss_->giveBack(*each.loop);
      return Future<Server>::of(loop.error());
    }
    places.push_back({std::move(*loop), address});
  }
  Promise<Server> promise(*places.front().loop);
  Future<Server> future = promise.future();
  binding->core = core;
  binding->promise = std::move(promise);
  binding->left = places.size();
  binding->made.resize(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    Task task = [binding, i, place = places[i]] {
      Promise<void> bound(*place.loop);
      Future<void> outcome = bound.future();
      Result<ChannelPtr> channel =
          binding->core->listen(*place.loop, place.address, std::move(bound));
      if (!channel) {
        // One that was registered gives its loop back by itself.
        if (LoopChannels::of(*place.loop).all().empty()) {
          binding->core->boss_->giveBack(*place.loop);
        }
        binding->done(i, channel.error());
        return;
      }
      outcome.addListener([binding, i, made = *channel](const Result<void>& result) {
        if (result.ok()) return binding->done(i, made);
        made->close();
        binding->done(i, result.error());
      });
    };
    if (places[i].loop->inEventLoop()) {
      task();
    } else if (places[i].loop->isShuttingDown() || !places[i].loop->executeOwn(std::move(task))) {
      core->boss_->giveBack(*places[i].loop);
      binding->done(i, Error(Errc::rejected, "bind",
                             places[i].address.toString() + " on " + places[i].loop->name() +
                                 " (it is shut down)"));
    }
  }
  return future;
}

Result<ChannelPtr> ServerCore::listen(EventLoop& loop, const SocketAddress& address,
                                      Promise<void> bound) {
  const Result<ChannelKind> kind = kindFor(address, Datagrams::no);
  if (!kind) return kind.error();
  const Transport* transport =
      listening_ != nullptr ? listening_ : transportFor(loop.ioType(), *kind);
  if (transport == nullptr) return noTransport(loop);
  Result<ChannelPtr> made = transport->newServer(loop, *kind);
  if (!made) return made;
  Channel& channel = **made;
  if (perLoop_) {
    if (Result<void> set = channel.applyOption(options::reusePort, OptionValue(true)); !set) {
      channel.close();
      return set.error();
    }
  }
  if (Result<void> applied = parent_.apply(channel); !applied) {
    channel.close();
    return applied.error();
  }
  // Nothing is accepted before the whole server stands.
  acceptsByItself_.store(channel.isAutoRead(), std::memory_order_relaxed);
  static_cast<void>(channel.applyOption(options::autoRead, OptionValue(false)));
  channel.registerNow([this](Channel& registered) {
    if (parent_.filler()) parent_.filler()(registered);
    registered.pipeline().emplaceLast<Acceptor>(shared_from_this());
  });
  if (!channel.isOpen()) {
    const Error cause = channel.closeCause();
    return cause ? cause : Error(Errc::closed, "bind", channel.describe());
  }
  channel.bind(address).addListener(
      [done = std::move(bound)](const Result<void>& result) { done.tryComplete(result); });
  return made;
}

// The listeners stop before the workers do, so that nobody is accepted and then sent away.
void ServerCore::beginToAccept() {
  const std::uint64_t id = workers_->addShutdownListener([weak = weak_from_this()] {
    const std::shared_ptr<ServerCore> self = weak.lock();
    if (self == nullptr) return;
    for (const ChannelPtr& each : self->listeners_) each->setAutoRead(false);
  });
  if (id == 0) return;
  if (acceptsByItself_.load(std::memory_order_relaxed)) {
    for (const ChannelPtr& each : listeners_) each->setAutoRead(true);
  }
  closeFuture().addListener([workers = workers_, id] { workers->removeShutdownListener(id); });
}

// --- connections ---

void ServerCore::adopt(Channel& listener, AcceptedSocket&& socket) {
  if (perLoop_) return adoptHere(listener.loop(), ChannelPtr(&listener), std::move(socket));
  Result<Ref<EventLoop>> loop = workers_->acquire();
  if (!loop) {
    log(LogLevel::warn, "bootstrap", listener.describe(), ": a connection of ",
        socket.peer.toString(), " is closed: ", loop.error().message());
    return;
  }
  if ((*loop)->inEventLoop()) return adoptHere(**loop, ChannelPtr(&listener), std::move(socket));
  const Ref<EventLoop> target = std::move(*loop);
  const SocketAddress peer = socket.peer;
  const bool taken =
      target->executeOwn([self = shared_from_this(), target, parent = ChannelPtr(&listener),
                          socket = std::move(socket)]() mutable {
        self->adoptHere(*target, parent, std::move(socket));
      });
  if (taken) return;
  workers_->giveBack(*target);
  log(LogLevel::warn, "bootstrap", listener.describe(), ": a connection of ", peer.toString(),
      " is closed: ", target->name(),
      target->isShutdown() ? " is shut down" : " has no thread and cannot have one now");
}

void ServerCore::adoptHere(EventLoop& loop, const ChannelPtr& listener, AcceptedSocket&& socket) {
  const ChannelKind kind =
      socket.inProcess != nullptr ? ChannelKind::local : ChannelKind::tcp4;  // any with a socket
  const Transport* transport =
      connections_ != nullptr ? connections_ : transportFor(loop.ioType(), kind);
  const SocketAddress peer = socket.peer;
  Result<ChannelPtr> made = transport == nullptr ? Result<ChannelPtr>(noTransport(loop))
                                                 : transport->adopt(loop, std::move(socket));
  if (!made) {
    log(LogLevel::warn, "bootstrap", listener->describe(), ": a connection of ", peer.toString(),
        " is closed: ", made.error().message());
    workers_->giveBack(loop);
    return;
  }
  Channel& channel = **made;
  channel.setParent(listener);
  child_.applyOrLog(channel);
  if (!channel.registerNow(child_.filler())) workers_->giveBack(loop);
}

// --- the end ---

Future<void> ServerCore::closeFuture() {
  if (listeners_.size() == 1) return listeners_.front()->closeFuture();
  Promise<void> promise(listeners_.front()->loop());
  promise.setUncancellable();  // it is everybody's
  Future<void> future = promise.future();
  auto left = std::make_shared<std::atomic<std::size_t>>(listeners_.size());
  auto done = std::make_shared<Promise<void>>(std::move(promise));
  for (const ChannelPtr& each : listeners_) {
    each->closeFuture().addListener([left, done] {
      if (left->fetch_sub(1) == 1) done->trySuccess();
    });
  }
  return future;
}

Future<void> ServerCore::close() {
  for (const ChannelPtr& each : listeners_) each->close();
  return closeFuture();
}

Future<DrainReport> ServerCore::drain(Duration timeout) {
  std::shared_ptr<Drain> drain;
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    first = drain_ == nullptr;
    if (first) drain_ = std::make_shared<Drain>(listeners_.front()->loop());
    drain = drain_;
  }
  drain->limit(timeout);
  if (!first) return drain->future();
  for (const ChannelPtr& each : listeners_) static_cast<void>(each->closeGracefully());
  closeFuture().addListener([self = shared_from_this(), drain] {
    const std::shared_ptr<LoopSource>& where = self->perLoop_ ? self->boss_ : self->workers_;
    drain->begin(where->loops(), self->listeners_);
  });
  return drain->future();
}

ServerHandle::~ServerHandle() {
  constexpr Duration kPatience = std::chrono::seconds(15);
  const LoopSource& boss = core_->boss();
  if (boss.isForked()) return;  // the server is the parent's
  if (const Channel& first = *core_->listeners().front(); first.isOpen()) {
    log(LogLevel::debug, "bootstrap", "the last handle of the server on ",
        first.localAddress().toString(), " is gone: it drains");
  }
  const Future<DrainReport> drained = core_->drain(kPatience);
  if (!boss.mayWait()) return;
  drained.await(Deadline::after(kPatience + std::chrono::seconds(1)));
}

}  // namespace millrace::internal
