// SPDX-License-Identifier: Apache-2.0
// Raw descriptors and signals.
#include "loop/event_loop_parts.h"

#include <millrace/loop/watch.h>
#include <millrace/sys/events.h>
#include <millrace/sys/fd.h>
#include <millrace/sys/signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <stdexcept>

namespace millrace {

namespace {

constexpr std::uint32_t kWatchable = kReadable | kWritable | kUrgent | kPeerClosed;

Error noDescriptors(const std::string& loop, const IoType& type) {
  return {Errc::notSupported, "watch",
          loop + " (engine " + type.name + " has no descriptors; use io::epoll() or io::poll())"};
}

}  // namespace

Future<Watch> EventLoop::watch(int fd, std::uint32_t events, WatchCallback callback,
                               Trigger trigger, WatchEnd onEnd) {
  if (!callback) throw std::invalid_argument("watch(): the callback is empty; give it a callable");
  if ((events & kWatchable) == 0 || (events & ~kWatchable) != 0) {
    throw std::invalid_argument("watch(" + std::to_string(fd) + "): events " +
                                std::to_string(events) +
                                " are not a union of kReadable, kWritable, kUrgent, kPeerClosed");
  }
  if (!isOpen(fd)) {
    throw std::invalid_argument("watch(" + std::to_string(fd) +
                                "): this is not an open descriptor; open it first, and unwatch() "
                                "before you close it");
  }
  WatchRequest request{fd, events, trigger, std::move(callback), std::move(onEnd)};
  auto begin = [this](WatchRequest&& wanted) -> Result<Watch> {
    FdWatch* watches = parts_->io->fdWatch();
    if (watches == nullptr) return noDescriptors(name(), ioType());
    if (state() >= State::shuttingDown)
      return Error(Errc::rejected, "watch", name() + " (it is shutting down)");
    const std::string which = "descriptor " + std::to_string(wanted.fd);
    Result<std::uint64_t> id = watches->watch(std::move(wanted));
    if (id) return Watch(*this, *id);
    switch (id.error().errnoValue()) {
      case EEXIST:
        return Error::fromErrno(EEXIST, "watch", which + " is watched already; use modify()");
      case EPERM:
        return Error::fromErrno(EPERM, "watch",
                                which + " is a file, which is always ready; use a ThreadPool");
      default:
        return id.error();
    }
  };
  if (inEventLoop()) return Future<Watch>::of(begin(std::move(request)));
  Promise<Watch> promise(*this);
  Future<Watch> future = promise.future();
  auto task = [begin, wanted = std::move(request), done = std::move(promise)]() mutable {
    if (!done.setUncancellable()) return;  // nobody would have a handle to end it
    done.tryComplete(begin(std::move(wanted)));
  };
  execute(std::move(task));
  return future;
}

namespace {

/// A signal goes to one reader, whichever comes first: two would take turns at random.
class SignalClaim {
 public:
  explicit SignalClaim(int signal) : signal_(signal) {
    std::uint64_t there = claims()[index()].load(std::memory_order_relaxed);
    // A claim of the process that forked this one is none.
    if (there != mine() && claims()[index()].compare_exchange_strong(there, mine())) return;
    throw std::logic_error("onSignal(" + std::to_string(signal) +
                           "): this signal has a callback already; unwatch() that one first");
  }
  SignalClaim(const SignalClaim&) = delete;
  SignalClaim& operator=(const SignalClaim&) = delete;
  ~SignalClaim() {
    std::uint64_t there = mine();
    claims()[index()].compare_exchange_strong(there, 0);
  }

 private:
  using Claims = std::array<std::atomic<std::uint64_t>, 128>;
  static Claims& claims() noexcept {
    static Claims all{};
    return all;
  }
  static std::uint64_t mine() noexcept { return currentForkGeneration() + 1; }
  std::size_t index() const noexcept { return static_cast<std::size_t>(signal_); }

  const int signal_;
};

/// What the callback of a signal needs as long as it lives.
struct SignalSource {
  explicit SignalSource(int signal) : claim(signal), fd(signalFd({signal}).orThrow()) {}
  SignalClaim claim;
  Fd fd;
};

}  // namespace

Future<Watch> EventLoop::onSignal(int signal, std::function<void(int)> callback) {
  if (!callback) throw std::invalid_argument("onSignal(): the callback is empty");
  if (signal == SIGKILL || signal == SIGSTOP) {
    throw std::invalid_argument("onSignal(" + std::to_string(signal) +
                                "): nobody can catch this signal");
  }
  if (Result<void> blocked = blockSignals({signal}); !blocked) {
    throw std::invalid_argument("onSignal(" + std::to_string(signal) +
                                "): " + blocked.error().message());
  }
  // Lives as long as the watch's callback does.
  auto source = std::make_shared<SignalSource>(signal);
  const int fd = source->fd.get();
  return watch(fd, kReadable, [source, call = std::move(callback)](int readable, std::uint32_t) {
    for (;;) {
      Result<std::optional<int>> got = readSignal(readable);
      if (!got || !*got) return;
      call(**got);
    }
  });
}

// --- the handle ---

Watch::Watch(EventLoop& loop, std::uint64_t id) noexcept : loop_(&loop), id_(id) { loop.ref(); }
Watch::Watch(const Watch& other) noexcept : loop_(other.loop_), id_(other.id_) {
  if (loop_ != nullptr) loop_->ref();
}
Watch::Watch(Watch&& other) noexcept : loop_(std::exchange(other.loop_, nullptr)), id_(other.id_) {}
Watch& Watch::operator=(Watch other) noexcept {
  std::swap(loop_, other.loop_);
  std::swap(id_, other.id_);
  return *this;
}
Watch::~Watch() {
  if (loop_ != nullptr) loop_->unref();
}

void Watch::modify(std::uint32_t events) const {
  if ((events & ~kWatchable) != 0) {
    throw std::invalid_argument("Watch::modify(): events " + std::to_string(events) +
                                " are not a union of kReadable, kWritable, kUrgent, kPeerClosed");
  }
  if (!loop_->inEventLoop()) {
    loop_->executeOwn([self = *this, events] { self.modify(events); });
    return;
  }
  if (loop_->isShutdown()) return;
  Result<bool> changed = loop_->parts_->io->fdWatch()->modifyWatch(id_, events);
  if (!changed) changed.error().raise();
}

void Watch::unwatch() const {
  if (!loop_->inEventLoop()) {
    loop_->executeOwn([self = *this] { self.unwatch(); });
    return;
  }
  if (!loop_->isShutdown()) loop_->parts_->io->fdWatch()->unwatch(id_);
}

}  // namespace millrace
