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
#include "../echo/load_program.h"
#include "handshake_load.h"
#include "storm_load.h"

#include <csignal>

namespace {

using bench::HandshakeLoad;
using bench::nanoseconds;
using bench::TlsWire;
using TlsLoad = bench::BasicStreamLoad<TlsWire>;

struct Options : bench::LoadOptions {
  double handshake = 0;
  uint64_t handshakes = 0;
  bool resume = false;
  size_t storm = 0;
  double patience = 10;

  Options(int argc, char** argv) {
    flags()
        .value("handshake", handshake)
        .value("handshakes", handshakes)
        .on("resume", resume)
        .value("storm", storm)
        .value("patience", patience)
        .parse(argc, argv);
    check((handshake > 0) + (handshakes > 0));
  }
};

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
  bench::printFigures(figures.handshakes, figures.ns, figures.cpuNs, load.delays(), options.server);
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
  if (options.hold) return bench::holdOn();
  if (options.storm > 0) return runStorm(options, load, bench::planOf<TlsLoad>(options));
  bench::runMessages(options, load);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  bench::raiseFileLimit();
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  if (options.handshake > 0 || options.handshakes > 0) {
    runHandshakes(options);
  } else {
    runStream(options);
  }
  if (!options.hold) TlsWire::agreed().print();
}
