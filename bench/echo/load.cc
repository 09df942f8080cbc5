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
#include "stream_load.h"

#include <getopt.h>

namespace {

using bench::ConnectLoad;
using bench::Delays;
using bench::ServerCpu;
using bench::StreamLoad;

struct Options {
  StreamLoad::Shape shape;
  ServerCpu server;
  double seconds = 0;
  double warm = 0;
  double connect = 0;
  uint64_t messages = 0;
  bool hold = false;
};

Options parse(int argc, char** argv) {
  static const option known[] = {{"port", required_argument, nullptr, 'p'},
                                 {"connections", required_argument, nullptr, 'c'},
                                 {"size", required_argument, nullptr, 's'},
                                 {"pipeline", required_argument, nullptr, 'd'},
                                 {"server", required_argument, nullptr, 'i'},
                                 {"seconds", required_argument, nullptr, 't'},
                                 {"warm", required_argument, nullptr, 'w'},
                                 {"messages", required_argument, nullptr, 'm'},
                                 {"hold", no_argument, nullptr, 'h'},
                                 {"connect", required_argument, nullptr, 'x'},
                                 {nullptr, 0, nullptr, 0}};
  Options options;
  for (int which = 0; (which = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    const auto number = [] { return std::strtoull(optarg, nullptr, 10); };
    switch (which) {
      case 'p':
        options.shape.port = static_cast<uint16_t>(number());
        break;
      case 'c':
        options.shape.connections = number();
        break;
      case 's':
        options.shape.size = number();
        break;
      case 'd':
        options.shape.pipeline = number();
        break;
      case 'i':
        options.server = ServerCpu(optarg);
        break;
      case 't':
        options.seconds = std::atof(optarg);
        break;
      case 'w':
        options.warm = std::atof(optarg);
        break;
      case 'm':
        options.messages = number();
        break;
      case 'h':
        options.hold = true;
        break;
      case 'x':
        options.connect = std::atof(optarg);
        break;
      default:
        std::exit(2);
    }
  }
  const int modes =
      (options.seconds > 0) + (options.messages > 0) + (options.connect > 0) + options.hold;
  if (options.shape.port == 0 || options.shape.connections == 0 || options.shape.size == 0 ||
      options.shape.pipeline == 0 || modes != 1) {
    std::fprintf(stderr, "load: wrong use, see the top of load.cc\n");
    std::exit(2);
  }
  return options;
}

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

void print(uint64_t count, int64_t ns, int64_t cpuNs, const Delays& delays,
           const ServerCpu& server) {
  const double seconds = static_cast<double>(ns) / 1e9;
  bench::emit("messages", static_cast<double>(count));
  bench::emit("rate", static_cast<double>(count) / seconds);
  bench::emit("p50_us", delays.micros(50));
  bench::emit("p99_us", delays.micros(99));
  if (!server.watched()) return;
  bench::emit("cpu_ns", static_cast<double>(cpuNs) / static_cast<double>(count));
  bench::emit("busy", static_cast<double>(cpuNs) / static_cast<double>(ns));
}

void runStream(const Options& options) {
  StreamLoad load(options.shape);
  if (options.hold) {
    std::puts("holding");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return;
  }
  StreamLoad::Plan plan;
  plan.warmNs = nanoseconds(options.warm);
  plan.ns = nanoseconds(options.seconds);
  if (options.messages > 0) plan.perConnection = options.messages;
  const auto figures = load.run(plan, options.server);
  print(figures.messages, figures.ns, figures.cpuNs, load.delays(), options.server);
}

void runConnect(const Options& options) {
  ConnectLoad load(options.shape.port, options.shape.connections, options.shape.size);
  if (options.warm > 0) load.run(nanoseconds(options.warm), options.server);
  const auto figures = load.run(nanoseconds(options.connect), options.server);
  print(figures.connections, figures.ns, figures.cpuNs, load.delays(), options.server);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  bench::raiseFileLimit();
  if (options.connect > 0)
    runConnect(options);
  else
    runStream(options);
}
