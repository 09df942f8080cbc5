// SPDX-License-Identifier: Apache-2.0
//
// What our own servers share: the handler, the engine at the end of the command line, and the wait for SIGTERM.
#pragma once

#include "peer.h"

#include <millrace/bootstrap/server_bootstrap.h>
#include <millrace/millrace.h>

#include <exception>
#include <functional>
#include <string>

namespace bench {

struct EchoHandler : millrace::ChannelHandler {
  void channelRead(millrace::Context& ctx, millrace::Message&& msg) override {
    ctx.write(std::move(msg));
  }
  void channelReadComplete(millrace::Context& ctx) override { ctx.flush(); }
  void exceptionCaught(millrace::Context& ctx, const millrace::Error&) override { ctx.close(); }
};

/// Serves on one loop until SIGTERM. `fill` fills the pipeline of a connection.
inline void serve(uint16_t port, const std::string& engine, const sigset_t& signals,
                  const std::function<void(millrace::Channel&)>& fill) {
  using namespace millrace;
  EventLoopGroup group(1, io::byName(engine));
  Server server = ServerBootstrap()
                      .group(group)
                      .option(options::backlog, kBacklog)
                      .childOption(options::tcpNoDelay, true)
                      .childHandler(fill)
                      .bind("127.0.0.1", port)
                      .get();
  announce(server.address().port());
  int signal = 0;
  sigwait(&signals, &signal);
}

/// main(): takes `--io engine` off the end, then calls `run(argc, argv, port, engine, signals)`, which gives the exit code.
template <class Run>
int millraceMain(int argc, char** argv, Run&& run) {
  std::string engine = "epoll";
  if (argc > 2 && std::string_view(argv[argc - 2]) == "--io") {
    engine = argv[argc - 1];
    argc -= 2;
  }
  const uint16_t port = begin(argc, argv);
  sigset_t signals;  // blocked before there are threads, so that all of them leave it to sigwait
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    return run(argc, argv, port, engine, signals);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace bench
