// SPDX-License-Identifier: Apache-2.0
#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/transport.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/loop_source.h>
#include <millrace/transport/transports.h>

#include <cerrno>
#include <memory>
#include <stdexcept>
#include <utility>

namespace millrace {

namespace {

/// One connect() or bind(): the addresses are tried one after the other. Loop thread once it runs.
class Attempt final : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(std::shared_ptr<LoopSource> source, Ref<EventLoop> loop, const Transport* transport,
          ChannelSetup setup, Datagrams datagrams)
      : source_(std::move(source)),
        loop_(std::move(loop)),
        transport_(transport),
        setup_(std::move(setup)),
        datagrams_(datagrams),
        promise_(*loop_) {}

  Future<ChannelPtr> future() const { return promise_.future(); }

  /// Any thread. No remotes: bind only.
  void start(std::vector<SocketAddress> remotes, const SocketAddress& local) {
    remotes_ = std::move(remotes);
    local_ = local;
    start();
  }
  void start() {
    if (loop_->inEventLoop()) return next();
    const bool taken = !loop_->isShuttingDown() &&
                       loop_->executeOwn([self = shared_from_this()] { self->next(); });
    if (!taken) {
      giveBack();
      promise_.tryFailure(Error(Errc::rejected, "connect", loop_->name() + " (it is shut down)"));
    }
  }
  void fail(const Error& why) {
    giveBack();
    promise_.tryFailure(why);
  }

 private:
  const SocketAddress& target() const { return remotes_.empty() ? local_ : remotes_[at_]; }

  void next() {
    if (promise_.isCancelled()) return giveBack();
    Result<ChannelPtr> made = make();
    if (!made) return failed(made.error());
    const ChannelPtr channel = *made;
    Future<void> done =
        remotes_.empty() ? channel->bind(local_) : channel->connect(remotes_[at_], local_);
    done.addListener([self = shared_from_this(), channel](const Result<void>& result) {
      if (!result.ok()) {
        channel->close();
        self->failed(result.error());
        return;
      }
      // Nobody waits for it any more.
      if (!self->promise_.trySuccess(channel)) channel->close();
    });
  }

  void giveBack() {
    hasLoop_ = false;
    if (source_ != nullptr) source_->giveBack(*loop_);
  }

  Result<ChannelPtr> make() {
    const Result<ChannelKind> kind = kindFor(target(), datagrams_);
    const Transport* transport = transport_;
    if (kind && transport == nullptr) transport = transportFor(loop_->ioType(), *kind);
    if (kind && transport == nullptr) {
      giveBack();
      return Error(Errc::notSupported, "connect",
                   loop_->name() + " (engine " + loop_->ioType().name +
                       " has no sockets; use io::epoll(), or give a transport)");
    }
    Result<ChannelPtr> made =
        kind ? transport->newClient(*loop_, *kind) : Result<ChannelPtr>(kind.error());
    if (!made) {
      giveBack();
      return made;
    }
    if (Result<void> applied = setup_.apply(**made); !applied) {
      (*made)->close();
      giveBack();
      return applied.error();
    }
    const bool registered = (*made)->registerNow(setup_.filler());
    if ((*made)->isOpen()) return made;
    if (!registered) giveBack();
    const Error cause = (*made)->closeCause();
    return cause ? cause : Error(Errc::closed, "connect", (*made)->describe());
  }

  void failed(const Error& why) {
    if (++at_ >= remotes_.size()) {
      promise_.tryFailure(why);
      return;
    }
    // The loop of a channel that failed serves the next one, too, unless it was given back.
    if (source_ != nullptr && !hasLoop_) {
      Result<Ref<EventLoop>> loop = source_->acquire();
      if (!loop) {
        promise_.tryFailure(loop.error());
        return;
      }
      loop_ = std::move(*loop);
      hasLoop_ = true;
    }
    start();
  }

  const std::shared_ptr<LoopSource> source_;  // shared with the group
  Ref<EventLoop> loop_;
  const Transport* const transport_;
  const ChannelSetup setup_;
  const Datagrams datagrams_;
  const Promise<ChannelPtr> promise_;
  std::vector<SocketAddress> remotes_;
  SocketAddress local_;
  std::size_t at_ = 0;
  bool hasLoop_ = true;  // acquired, and not given back
};

}  // namespace

Bootstrap& Bootstrap::group(EventLoopGroup& group) {
  group_ = &group;
  return *this;
}

Bootstrap& Bootstrap::loop(EventLoop& loop) {
  loop_ = &loop;
  return *this;
}

Result<Ref<EventLoop>> Bootstrap::acquire(std::shared_ptr<LoopSource>& source) const {
  if (loop_ != nullptr) return Ref<EventLoop>(loop_);
  source = group_->source();
  return source->acquire();
}

Bootstrap& Bootstrap::transport(const Transport& transport) {
  transport_ = &transport;
  return *this;
}

Bootstrap& Bootstrap::resolver(Resolver resolver) {
  if (!resolver) throw std::invalid_argument("Bootstrap::resolver(): the resolver is empty");
  resolver_ = std::move(resolver);
  return *this;
}

Bootstrap& Bootstrap::localAddress(const SocketAddress& local) {
  local_ = local;
  return *this;
}

Bootstrap& Bootstrap::datagram() {
  datagrams_ = Datagrams::yes;
  return *this;
}

void Bootstrap::check(const char* call) const {
  const std::string name = std::string("Bootstrap::") + call + "(): call ";
  if (group_ == nullptr && loop_ == nullptr) throw std::logic_error(name + "group() first");
  if (!setup_.hasHandler()) throw std::logic_error(name + "handler() first");
}

Future<ChannelPtr> Bootstrap::connect(const SocketAddress& remote) const {
  return connect(std::vector<SocketAddress>{remote});
}

Future<ChannelPtr> Bootstrap::connect(std::vector<SocketAddress> remotes) const {
  check("connect");
  if (remotes.empty()) throw std::invalid_argument("Bootstrap::connect(): no address");
  std::shared_ptr<LoopSource> source;
  Result<Ref<EventLoop>> loop = acquire(source);
  if (!loop) return Future<ChannelPtr>::of(loop.error());
  auto attempt = std::make_shared<Attempt>(std::move(source), std::move(*loop), transport_, setup_,
                                           datagrams_);
  attempt->start(std::move(remotes), local_);
  return attempt->future();
}

// What a resolver throws is a failure like any other.
Future<std::vector<SocketAddress>> Bootstrap::ask(const std::string& host,
                                                  std::uint16_t port) const {
  try {
    return (resolver_ ? resolver_ : systemResolver())(host, port);
  } catch (...) {
    return Future<std::vector<SocketAddress>>::of(Error::fromCurrentException("resolve " + host));
  }
}

Future<ChannelPtr> Bootstrap::connect(std::string_view host, std::uint16_t port) const {
  check("connect");
  std::shared_ptr<LoopSource> source;
  Result<Ref<EventLoop>> loop = acquire(source);
  if (!loop) return Future<ChannelPtr>::of(loop.error());
  auto attempt = std::make_shared<Attempt>(std::move(source), std::move(*loop), transport_, setup_,
                                           datagrams_);
  Future<ChannelPtr> future = attempt->future();
  const std::string name(host);
  ask(name, port)
      .addListener(
          [attempt, name, local = local_](const Result<std::vector<SocketAddress>>& found) {
            if (!found.ok()) {
              attempt->fail(found.error());
            } else if (found.value().empty()) {
              attempt->fail(Error::fromErrno(EADDRNOTAVAIL, "resolve", name + " (no address)"));
            } else {
              attempt->start(found.value(), local);
            }
          });
  return future;
}

Future<ChannelPtr> Bootstrap::bind(const SocketAddress& local) const {
  check("bind");
  if (datagrams_ == Datagrams::no && transport_ == nullptr) {
    throw std::logic_error(
        "Bootstrap::bind(): call datagram() first; to listen, use ServerBootstrap");
  }
  std::shared_ptr<LoopSource> source;
  Result<Ref<EventLoop>> loop = acquire(source);
  if (!loop) return Future<ChannelPtr>::of(loop.error());
  auto attempt = std::make_shared<Attempt>(std::move(source), std::move(*loop), transport_, setup_,
                                           datagrams_);
  attempt->start({}, local);
  return attempt->future();
}

}  // namespace millrace
