// SPDX-License-Identifier: Apache-2.0
// What tests of servers on io_uring share: handlers of the listening channel that do something about those who
// come, and clients that come together.
#pragma once

#include "support/loop_test.h"
#include "transport/socket/server_channel.h"
#include "transport/stream_ring_fixture.h"

#include <millrace/sys/socket.h>

#include <algorithm>
#include <functional>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace millrace::test {

using Act = std::function<void(Channel&)>;
/// Only the first time.
inline Act once(Act act) {
  return [act = std::move(act)](Channel& channel) mutable {
    if (const Act mine = std::exchange(act, nullptr)) mine(channel);
  };
}

/// Records, and acts on connections and on the ends of bursts.
class ActingHandler final : public RecordingHandler {
 public:
  ActingHandler(LogPtr log, Act onRead, Act onComplete)
      : RecordingHandler(std::move(log)),
        onRead_(std::move(onRead)),
        onComplete_(std::move(onComplete)) {}
  void channelRead(Context& ctx, Message&& msg) override {
    RecordingHandler::channelRead(ctx, std::move(msg));
    if (onRead_) onRead_(ctx.channel());
  }
  void channelReadComplete(Context& ctx) override {
    RecordingHandler::channelReadComplete(ctx);
    if (onComplete_) onComplete_(ctx.channel());
  }

 private:
  Act onRead_;
  Act onComplete_;
};

class ServerRingTest : public StreamRingTest {
 protected:
  ServerBootstrap acting(const Act& onRead, const Act& onComplete = {}) {
    return bootstrap(echoing()).handler([log = log_, onRead, onComplete](Channel& channel) {
      channel.pipeline().emplaceLast<ActingHandler>(log, onRead, onComplete);
    });
  }
  Server serveWith(const Act& onRead, const Act& onComplete = {}) {
    return acting(onRead, onComplete).bind(anyAddress()).get();
  }
  bool accepts(const Server& server) {
    return inLoop([&] { return static_cast<const ServerChannel&>(server.channel()).isOnRing(); });
  }
  /// They come together.
  std::vector<Peer> come(const Server& server, int count) {
    const Held held(loop());
    std::vector<Peer> peers;
    for (int i = 0; i < count; ++i) peers.push_back(Peer::to(server.address()));
    return peers;
  }
  static bool echoes(Peer& peer) {
    peer.send("ping");
    return peer.receive(4) == "ping";
  }
  static bool isRefused(const SocketAddress& address) {
    const Fd fd = openSocket(address, SocketType::stream).orThrow();
    setBlocking(fd.get(), Blocking::yes).orThrow();
    return ::connect(fd.get(), address.raw(), address.rawSize()) != 0;
  }
  std::vector<std::string> sinceActive() const {
    std::vector<std::string> all = log_->events();
    all.erase(all.begin(), std::find(all.begin(), all.end(), "active") + 1);
    return all;
  }
};

}  // namespace millrace::test
