// SPDX-License-Identifier: Apache-2.0
//
// The load generator for TLS: one thread, OpenSSL on sockets, every echoed byte accounted for.
//
//   bench_tls_load --port N [--connections N] [--size BYTES] [--pipeline N] [--server PID] and one of
//     --seconds X --warm Y     messages for X seconds after Y that are not counted
//     --messages N             N messages per connection, for counting instructions
//     --hold                   one message per connection, then idle until standard input ends
//     --handshake X --warm Y   handshakes for X seconds, N connections at a time; --resume: with a ticket
//     --handshakes N           N of them
//     --storm N --seconds X    messages while N clients begin a handshake and stay; --patience: seconds
//                              until all of them should have been cut
//
// Prints one `row<TAB>value` per figure, as bench_echo_load does, and what was negotiated.
#include "../echo/stream_load.h"
#include "handshake_load.h"
#include "storm_load.h"

#include <csignal>
#include <getopt.h>

namespace {

using bench::Delays;
using bench::HandshakeLoad;
using bench::ServerCpu;
using bench::TlsWire;
using TlsLoad = bench::BasicStreamLoad<TlsWire>;

struct Options {
  TlsLoad::Shape shape;
  ServerCpu server;
  double seconds = 0;
  double warm = 0;
  uint64_t messages = 0;
  bool hold = false;
  double handshake = 0;
  uint64_t handshakes = 0;
  bool resume = false;
  size_t storm = 0;
  double patience = 10;
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
                                 {"handshake", required_argument, nullptr, 'x'},
                                 {"handshakes", required_argument, nullptr, 'n'},
                                 {"resume", no_argument, nullptr, 'r'},
                                 {"storm", required_argument, nullptr, 'o'},
                                 {"patience", required_argument, nullptr, 'a'},
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
        options.handshake = std::atof(optarg);
        break;
      case 'n':
        options.handshakes = number();
        break;
      case 'r':
        options.resume = true;
        break;
      case 'o':
        options.storm = number();
        break;
      case 'a':
        options.patience = std::atof(optarg);
        break;
      default:
        std::exit(2);
    }
  }
  const int modes = (options.seconds > 0) + (options.messages > 0) + options.hold +
                    (options.handshake > 0) + (options.handshakes > 0);
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
  bench::emit("messages", static_cast<double>(count));
  bench::emit("rate", static_cast<double>(count) / (static_cast<double>(ns) / 1e9));
  bench::emit("p50_us", delays.micros(50));
  bench::emit("p99_us", delays.micros(99));
  if (!server.watched()) return;
  bench::emit("cpu_ns", static_cast<double>(cpuNs) / static_cast<double>(count));
  bench::emit("busy", static_cast<double>(cpuNs) / static_cast<double>(ns));
}

void runHandshakes(const Options& options) {
  HandshakeLoad load(options.shape.port, options.shape.connections, options.resume);
  HandshakeLoad::Plan plan;
  if (options.handshakes > 0) {
    plan.count = options.handshakes;
  } else {
    if (options.warm > 0) load.run({nanoseconds(options.warm)}, options.server);
    plan.ns = nanoseconds(options.handshake);
  }
  const auto figures = load.run(plan, options.server);
  print(figures.handshakes, figures.ns, figures.cpuNs, load.delays(), options.server);
}

// Three windows of the same traffic: calm, while the storm comes, while it stands.
void runStorm(const Options& options, TlsLoad& load, const TlsLoad::Plan& plan) {
  load.run(plan, options.server);
  bench::emit("calm_p50_us", load.delays().micros(50));
  bench::emit("calm_p99_us", load.delays().micros(99));

  bench::Storm storm(options.shape.port, options.storm);
  load.run({0, 1}, options.server, [&] { return storm.turn(); });
  bench::emit("coming_p50_us", load.delays().micros(50));
  bench::emit("coming_p99_us", load.delays().micros(99));

  load.run({0, plan.ns}, options.server, [&] { return storm.turn(); });
  bench::emit("standing_p50_us", load.delays().micros(50));
  bench::emit("standing_p99_us", load.delays().micros(99));
  storm.awaitEnd(nanoseconds(options.patience));
}

void runStream(const Options& options) {
  TlsLoad load(options.shape);
  if (options.hold) {
    std::puts("holding");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return;
  }
  TlsLoad::Plan plan;
  plan.warmNs = nanoseconds(options.warm);
  plan.ns = nanoseconds(options.seconds);
  if (options.messages > 0) plan.perConnection = options.messages;
  if (options.storm > 0) return runStorm(options, load, plan);
  const auto figures = load.run(plan, options.server);
  print(figures.messages, figures.ns, figures.cpuNs, load.delays(), options.server);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  bench::raiseFileLimit();
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  if (options.handshake > 0 || options.handshakes > 0) {
    runHandshakes(options);
  } else {
    runStream(options);
  }
  if (!options.hold) TlsWire::agreed().print();
}
