// SPDX-License-Identifier: Apache-2.0
//
// The load generator: one thread, epoll, every echoed byte accounted for.
//
//   bench_echo_load --port N [--connections N] [--size BYTES] [--pipeline N] [--server PID[:thread]] and one of
//     --seconds X --warm Y    for X seconds after Y, or two windows' worth, that are not counted
//     --messages N            N messages per connection, for counting instructions and calls
//     --hold                  one message per connection, then idle until standard input ends
//     --connect X --warm Y    connect, one message, close, over and over, N connections at a time
//
// Prints one `row<TAB>value` per figure: messages, rate (per second), p50_us, p99_us and, with
// --server, cpu_ns (the server's per message, or per connection) and busy (its share of the core).
#include "connect_load.h"
#include "load_program.h"

namespace {

using bench::ConnectLoad;
using bench::nanoseconds;
using bench::StreamLoad;

struct Options : bench::LoadOptions {
  double connect = 0;

  Options(int argc, char** argv) {
    flags().value("connect", connect).parse(argc, argv);
    check(connect > 0);
  }
};

void runConnect(const Options& options) {
  ConnectLoad load(options.shape.port, options.shape.connections, options.shape.size);
  if (options.warm > 0) load.run(nanoseconds(options.warm), options.server);
  const auto figures = load.run(nanoseconds(options.connect), options.server);
  bench::printFigures(figures.connections, figures.ns, figures.cpuNs, load.delays(),
                      options.server);
}

void runStream(const Options& options) {
  StreamLoad load(options.shape);
  if (options.hold) return bench::holdOn();
  bench::runMessages(options, load);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  bench::raiseFileLimit();
  if (options.connect > 0)
    runConnect(options);
  else
    runStream(options);
}
