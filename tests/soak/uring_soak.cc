// SPDX-License-Identifier: Apache-2.0
// uring_soak: very many connections on io_uring, opened, used and ended in every way, with servers that
// go and come. At its end nothing may be left: no memory, no descriptor, no block of a ring; and no
// handler may have seen an event that was not its own.
//
//   uring_soak [--connections N] [--at-once N] [--addresses N] [--seconds LIMIT] [--seed N]
//
// Exit: 0 all is well, 1 not, 77 there is no io_uring.
#include "channel/loop_channels.h"
#include "soak_peers.h"

#include <millrace/buffer/block.h>
#include <millrace/channel/channel_metrics.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/loop/ring_io.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <malloc.h>
#include <map>
#include <thread>
#include <unistd.h>
#include <vector>

namespace millrace::soak {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct Wishes {
  std::uint64_t connections = 100'000;
  std::uint64_t atOnce = 500;
  std::uint64_t addresses = 32;
  std::uint64_t seconds = 1800;
  std::uint64_t seed = 1;
};

bool parse(int argc, char** argv, Wishes& wishes) {
  const std::map<std::string, std::uint64_t*> known{{"--connections", &wishes.connections},
                                                    {"--at-once", &wishes.atOnce},
                                                    {"--addresses", &wishes.addresses},
                                                    {"--seconds", &wishes.seconds},
                                                    {"--seed", &wishes.seed}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto found = known.find(argv[i]);
    if (found == known.end()) return false;
    *found->second = std::strtoull(argv[i + 1], nullptr, 10);
  }
  return argc % 2 == 1 && wishes.atOnce != 0 && wishes.addresses != 0 && wishes.addresses <= 250;
}

std::size_t openDescriptors() {
  std::size_t count = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count;
}

std::size_t residentKib() {
  std::ifstream status("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  status >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1024;
}

/// Blocks of the loops' pools that somebody has, but for those that wait in a ring.
std::int64_t usedBlocks(EventLoopGroup& group) {
  std::int64_t sum = 0;
  for (EventLoop& loop : group) {
    sum += loop.submit([&loop] {
                 const std::int64_t live = LoopChannels::of(loop).pool().figures().live;
                 return live - static_cast<std::int64_t>(loop.io().ring()->waitingBlocks());
               })
               .get();
  }
  return sum;
}

class Soak {
 public:
  explicit Soak(const Wishes& wishes)
      : wishes_(wishes), random_(static_cast<std::uint32_t>(wishes.seed)) {
    for (std::uint64_t i = 0; i < wishes.addresses; ++i) servers_.push_back(listen(i, 0));
  }

  /// What the loops keep for later when nobody is connected; after run().
  std::size_t idleHeap() const noexcept { return idleHeap_; }

  bool run() {
    const auto limit = steady_clock::now() + std::chrono::seconds(wishes_.seconds);
    auto said = steady_clock::now();
    while (totals_.begun < wishes_.connections && steady_clock::now() < limit) {
      const std::uint64_t open = totals_.begun - totals_.ended;
      for (std::uint64_t i = open; i < wishes_.atOnce; ++i) begin();
      if (random_() % 64 == 0) restart(random_() % servers_.size());
      std::this_thread::yield();
      if (steady_clock::now() - said > 10s) {
        said = steady_clock::now();
        say();
      }
    }
    return finish();
  }

 private:
  Server listen(std::uint64_t index, std::uint16_t port) {
    return ServerBootstrap()
        .group(serverLoops_)
        .option(options::reuseAddress, true)
        .childOption(options::lingerOnDrain, 200ms)
        .childOption(options::zeroCopyFrom, index % 4 == 0 ? 2000 : 0)
        .childOption(options::allowHalfClosure, index % 3 == 0)
        .childHandler([this](Channel& ch) {
          const auto dice = static_cast<std::uint32_t>(dice_.fetch_add(0x9E3779B9U) >> 3);
          ch.pipeline().emplaceLast<ServerEnd>(totals_, dice);
        })
        .bind(SocketAddress::inet4({127, 0, 0, static_cast<std::uint8_t>(1 + index)}, port))
        .get();
  }

  void begin() {
    const std::uint64_t number = ++totals_.begun;
    const auto dice = static_cast<std::uint32_t>(random_());
    const SocketAddress to = servers_[number % servers_.size()].address();
    const Future<ChannelPtr> connected =
        Bootstrap()
            .group(clientLoops_)
            .option(options::lingerOnDrain, 200ms)
            .handler([ticket = std::make_shared<Ticket>(totals_), number, dice](Channel& ch) {
              ch.pipeline().emplaceLast<ClientEnd>(ticket, number, dice);
            })
            .connect(to);
    if (dice % 50 == 1) connected.cancel();
    connected.addListener([this](const Result<ChannelPtr>& result) {
      if (!result) ++totals_.refused;
    });
  }

  /// Half of them gracefully; clients meanwhile are refused.
  void restart(std::size_t index) {
    Server& server = servers_[index];
    const std::uint16_t port = server.address().port();
    if (random_() % 2 == 0) {
      static_cast<void>(server.drain(random_() % 2 == 0 ? 0s : 1s).await(Deadline::after(30s)));
    } else {
      server.close().await(Deadline::after(30s));
    }
    server = listen(index, port);
    ++restarts_;
  }

  void say() {
    std::printf("%llu begun, %llu whole, %llu cut, %llu refused, %zu KiB, %zu descriptors\n",
                static_cast<unsigned long long>(totals_.begun),
                static_cast<unsigned long long>(totals_.whole),
                static_cast<unsigned long long>(totals_.cut),
                static_cast<unsigned long long>(totals_.refused), residentKib(), openDescriptors());
    std::fflush(stdout);
  }

  template <class Q>
  static bool eventually(Q&& question) {
    const auto limit = steady_clock::now() + 60s;
    while (!question()) {
      if (steady_clock::now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool check(bool good, const char* what) {
    if (!good) std::printf("FAILED: %s\n", what);
    good_ = good_ && good;
    return good;
  }

  bool finish() {
    check(totals_.begun >= wishes_.connections, "there was not time enough");
    if (!check(eventually([this] { return totals_.ended == totals_.begun; }),
               "connections do not end")) {
      std::printf("%s\n%s\n", clientLoops_.begin()->dump().c_str(),
                  serverLoops_.begin()->dump().c_str());
    }
    for (const Server& each : servers_) each.drain(1s).await(Deadline::after(30s));
    servers_.clear();
    check(eventually([this] { return totals_.handlers == 0; }), "handlers are left");
    check(totals_.wrong == 0, "events or bytes reached a handler that were not its own");
    check(eventually([this] { return usedBlocks(serverLoops_) + usedBlocks(clientLoops_) == 0; }),
          "blocks of the loops are left");
    check(internal::liveHeapBlocks() == 0, "buffers are left");
    for (EventLoopGroup* group : {&serverLoops_, &clientLoops_}) {
      const ChannelMetrics now = channelMetrics(*group);
      check(now.registered == now.closed, "channels are left");
      for (EventLoop& loop : *group) {
        check(eventually([&] { return loop.metrics().registrations == 0; }), "registrations left");
      }
    }
    say();
    ::malloc_trim(0);
    idleHeap_ = ::mallinfo2().uordblks;
    std::printf("%llu connected, %llu restarts of servers, %llu bytes came back, %llu wrong\n",
                static_cast<unsigned long long>(totals_.connected),
                static_cast<unsigned long long>(restarts_),
                static_cast<unsigned long long>(totals_.bytes),
                static_cast<unsigned long long>(totals_.wrong));
    return good_;
  }

  const Wishes wishes_;
  Totals totals_;
  std::atomic<std::uint64_t> dice_{12345};
  std::mt19937 random_;
  EventLoopGroup serverLoops_{LoopOptions().loops(2).io(io::uring())};
  EventLoopGroup clientLoops_{
      LoopOptions().loops(1).io(io::uring({.entries = 8, .completions = 16}))};
  std::vector<Server> servers_;
  std::uint64_t restarts_ = 0;
  std::size_t idleHeap_ = 0;
  bool good_ = true;
};

/// May differ from run to run: what loops keep for later follows their busiest moment, but not how many
/// connections they had. An object lost per connection would be 64 MB or more in a million.
constexpr std::size_t kIdleTolerance = std::size_t{16} << 20;
constexpr std::size_t kEndTolerance = std::size_t{256} << 10;

struct Outcome {
  bool good;
  std::size_t idleHeap;  ///< with loops and without connections
  std::size_t heap;      ///< when the loops have gone
  std::size_t descriptors;
};

Outcome soakOnce(const Wishes& wishes) {
  Outcome outcome{};
  {
    Soak soak(wishes);
    outcome.good = soak.run();
    outcome.idleHeap = soak.idleHeap();
  }
  awaitGlobalExecutor();
  ::malloc_trim(0);
  outcome.heap = ::mallinfo2().uordblks;
  outcome.descriptors = openDescriptors();
  return outcome;
}

/// What the second run holds more than the first, a short one, is lost.
int soak(const Wishes& wishes) {
  const auto began = steady_clock::now();
  Wishes warmUp = wishes;
  warmUp.connections = std::min<std::uint64_t>(wishes.connections, 5000);
  const Outcome before = soakOnce(warmUp);
  const Outcome after = soakOnce(wishes);
  const auto took = std::chrono::duration<double>(steady_clock::now() - began).count();
  std::printf(
      "%.0f s; heap of idle loops %zu KiB before, %zu KiB after; without loops %zu and %zu KiB; "
      "descriptors %zu and %zu\n",
      took, before.idleHeap / 1024, after.idleHeap / 1024, before.heap / 1024, after.heap / 1024,
      before.descriptors, after.descriptors);
  bool good = before.good && after.good;
  if (after.descriptors > before.descriptors || after.heap > before.heap + kEndTolerance ||
      after.idleHeap > before.idleHeap + kIdleTolerance) {
    std::printf("FAILED: memory or descriptors are lost\n");
    good = false;
  }
  std::printf(good ? "all is well\n" : "NOT well\n");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace millrace::soak

int main(int argc, char** argv) {
  millrace::soak::Wishes wishes;
  if (!millrace::soak::parse(argc, argv, wishes)) {
    std::fprintf(stderr,
                 "usage: uring_soak [--connections N] [--at-once N] [--addresses N, up to 250] "
                 "[--seconds LIMIT] [--seed N]\n");
    return 2;
  }
  if (const millrace::IoSupport found = millrace::ioSupport(); !found.uring) {
    std::printf("there is no io_uring: %s\n", found.why.c_str());
    return 77;
  }
  return millrace::soak::soak(wishes);
}
