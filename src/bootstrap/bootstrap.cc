// SPDX-License-Identifier: Apache-2.0
#include <millrace/bootstrap/bootstrap.h>
#include <millrace/channel/channel.h>
#include <millrace/channel/transport.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io_handler.h>
#include <millrace/loop/loop_source.h>
#include <millrace/transport/transports.h>

#include <memory>
#include <stdexcept>
#include <utility>

namespace millrace {

namespace {

/// One connect() or bind(): the addresses are tried one after the other. Loop thread once it runs.
class Attempt final : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(Ref<EventLoop> loop, const Transport* transport, ChannelSetup setup, Datagrams datagrams)
      : loop_(std::move(loop)),
        transport_(transport),
        setup_(std::move(setup)),
        datagrams_(datagrams),
        promise_(*loop_) {}

  Future<ChannelPtr> future() const { return promise_.future(); }

  /// Any thread. No remotes: bind only.
  void start(std::vector<SocketAddress> remotes, const SocketAddress& local) {
    remotes_ = std::move(remotes);
    local_ = local;
    if (loop_->inEventLoop()) return next();
    const bool taken = !loop_->isShuttingDown() &&
                       loop_->executeOwn([self = shared_from_this()] { self->next(); });
    if (!taken) {
      promise_.tryFailure(Error(Errc::rejected, "connect", loop_->name() + " (it is shut down)"));
    }
  }
  void fail(const Error& why) { promise_.tryFailure(why); }

 private:
  const SocketAddress& target() const { return remotes_.empty() ? local_ : remotes_[at_]; }

  void next() {
    if (promise_.isCancelled()) return;
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

  Result<ChannelPtr> make() {
    const Transport* transport = transport_ != nullptr ? transport_ : transportFor(loop_->ioType());
    if (transport == nullptr) {
      return Error(Errc::notSupported, "connect",
                   loop_->name() + " (engine " + loop_->ioType().name +
                       " has no sockets; use io::epoll(), or give a transport)");
    }
    const Result<ChannelKind> kind = kindFor(target(), datagrams_);
    if (!kind) return kind.error();
    Result<ChannelPtr> made = transport->newClient(*loop_, *kind);
    if (!made) return made;
    if (Result<void> applied = setup_.apply(**made); !applied) {
      (*made)->close();
      return applied.error();
    }
    (*made)->registerNow(setup_.filler());
    if ((*made)->isOpen()) return made;
    const Error cause = (*made)->closeCause();
    return cause ? cause : Error(Errc::closed, "connect", (*made)->describe());
  }

  void failed(const Error& why) {
    if (++at_ >= remotes_.size()) {
      promise_.tryFailure(why);
      return;
    }
    next();
  }

  const Ref<EventLoop> loop_;
  const Transport* const transport_;
  const ChannelSetup setup_;
  const Datagrams datagrams_;
  const Promise<ChannelPtr> promise_;
  std::vector<SocketAddress> remotes_;
  SocketAddress local_;
  std::size_t at_ = 0;
};

}  // namespace

Bootstrap& Bootstrap::group(EventLoopGroup& group) {
  group_ = &group;
  return *this;
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
  if (group_ == nullptr) throw std::logic_error(name + "group() first");
  if (!setup_.hasHandler()) throw std::logic_error(name + "handler() first");
}

Future<ChannelPtr> Bootstrap::connect(const SocketAddress& remote) const {
  return connect(std::vector<SocketAddress>{remote});
}

Future<ChannelPtr> Bootstrap::connect(std::vector<SocketAddress> remotes) const {
  check("connect");
  if (remotes.empty()) throw std::invalid_argument("Bootstrap::connect(): no address");
  Result<Ref<EventLoop>> loop = group_->source()->acquire();
  if (!loop) return Future<ChannelPtr>::of(loop.error());
  auto attempt = std::make_shared<Attempt>(std::move(*loop), transport_, setup_, datagrams_);
  attempt->start(std::move(remotes), local_);
  return attempt->future();
}

Future<ChannelPtr> Bootstrap::connect(std::string_view host, std::uint16_t port) const {
  check("connect");
  Result<Ref<EventLoop>> loop = group_->source()->acquire();
  if (!loop) return Future<ChannelPtr>::of(loop.error());
  auto attempt = std::make_shared<Attempt>(std::move(*loop), transport_, setup_, datagrams_);
  Future<ChannelPtr> future = attempt->future();
  const Resolver resolve = resolver_ ? resolver_ : systemResolver();
  resolve(std::string(host), port)
      .addListener([attempt, local = local_](const Result<std::vector<SocketAddress>>& found) {
        if (found.ok()) {
          attempt->start(found.value(), local);
        } else {
          attempt->fail(found.error());
        }
      });
  return future;
}

Future<ChannelPtr> Bootstrap::bind(const SocketAddress& local) const {
  check("bind");
  Result<Ref<EventLoop>> loop = group_->source()->acquire();
  if (!loop) return Future<ChannelPtr>::of(loop.error());
  auto attempt = std::make_shared<Attempt>(std::move(*loop), transport_, setup_, datagrams_);
  attempt->start({}, local);
  return attempt->future();
}

}  // namespace millrace
