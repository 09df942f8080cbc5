// SPDX-License-Identifier: Apache-2.0
// Timers: once, at a fixed rate, with a fixed delay, and one that is cancelled in time.
#include "support.h"

#include <atomic>

using namespace millrace;
using namespace std::chrono_literals;

namespace {

constexpr const char* kUsage =
    "usage: schedule [flags]\n"
    "  --io NAME       automatic, epoll, uring, poll or parking (default automatic)\n"
    "  --quiet         say nothing but errors\n";

}  // namespace

int main(int argc, char** argv) {
  const example::Flags flags = example::parseFlags(argc, argv, kUsage);
  return example::run([&] {
    const auto say = [&](const char* what) {
      if (!flags.quiet) std::printf("%s\n", what);
    };
    EventLoopGroup group(1, io::byName(flags.io));
    EventLoop& loop = group.next();
    std::atomic<int> beats{0};

    loop.schedule(20ms, [&] { say("once, after 20 ms"); });
    const ScheduledFuture rate = loop.scheduleAtFixedRate(0ms, 10ms, [&] {
      if (beats.fetch_add(1) < 3) say("every 10 ms");
    });
    const ScheduledFuture delay =
        loop.scheduleWithFixedDelay(5ms, 25ms, [&] { say("25 ms after the last time"); });
    const ScheduledFuture never = loop.schedule(1h, [&] { say("never"); });

    say(never.cancel() ? "cancelled in time" : "too late");
    loop.schedule(60ms, [] {}).future().sync();  // this thread waits, the loop goes on
    rate.cancel();
    delay.cancel();
    say(beats.load() >= 3 ? "done" : "the machine is very slow today");
  });
}
