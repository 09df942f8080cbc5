// SPDX-License-Identifier: Apache-2.0
// What tests of listening channels share: a server whose events are recorded.
#pragma once

#include "support/loop_test.h"
#include "support/net.h"

#include <millrace/channel/context.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::test {

/// Has a word in reading, so that the listener accepts by calls of its own on every engine.
struct ReadingHandler : RecordingHandler {
  using RecordingHandler::RecordingHandler;
  void read(Context& ctx) override { ctx.read(); }
};
inline Fill byCalls(const LogPtr& log) {
  return [log](Channel& channel) { channel.pipeline().emplaceLast<ReadingHandler>(log); };
}

class SocketAcceptTest : public NetTest {
 protected:
  /// An echo server whose listening channel is recorded.
  Server serveRecorded(int perBatch = 16) {
    return bootstrap(echoing())
        .handler(recording(log_))
        .option(options::maxMessagesPerRead, perBatch)
        .bind(anyAddress())
        .get();
  }
  /// What the listening channel was told after it became active.
  std::vector<std::string> since(std::string_view first) const {
    std::vector<std::string> all = log_->events();
    const auto at = std::find(all.begin(), all.end(), first);
    if (at != all.end()) all.erase(all.begin(), at + 1);
    return all;
  }
  static bool echoes(Peer& peer) {
    peer.send("ping");
    return peer.receive(4) == "ping";
  }
  std::size_t warnings() const {
    std::size_t count = 0;
    for (const auto& record : logs_.records()) {
      count += record.text.find("accepting pauses") != std::string::npos ? 1U : 0U;
    }
    return count;
  }

  const LogPtr log_ = std::make_shared<EventLog>();
};

}  // namespace millrace::test
