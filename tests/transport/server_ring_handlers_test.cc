// SPDX-License-Identifier: Apache-2.0
// Handlers of a listening channel that have their say while it accepts, by the ring and by calls: the loop must
// not wait in a call, nobody is lost, and a server that was closed hears nobody.
#include "support/ring_script.h"
#include "transport/server_ring_fixture.h"

#include <cerrno>

namespace millrace {
namespace {

using test::Act;
using test::Peer;
using test::succeeds;

struct Say {
  const char* what;
  Act act;
};

std::vector<Say> everySay() {
  const auto later = [](Channel& channel, void (*then)(Channel&)) {
    channel.loop().execute([kept = ChannelPtr(&channel), then] { then(*kept); });
  };
  return {
      {"read", [](Channel& channel) { channel.read(); }},
      {"on", [](Channel& channel) { channel.setAutoRead(true); }},
      {"off and on",
       [](Channel& channel) {
         channel.setAutoRead(false);
         channel.setAutoRead(true);
       }},
      {"off, and on later",
       [later](Channel& channel) {
         channel.setAutoRead(false);
         later(channel, [](Channel& same) { same.setAutoRead(true); });
       }},
      {"one by one",
       [later](Channel& channel) {
         channel.setAutoRead(false);
         later(channel, [](Channel& same) { same.read(); });
       }},
  };
}

class ServerRingHandlers : public test::ServerRingTest {
 protected:
  /// Everybody who comes is served, and nobody after the end.
  void check(const Server& server, const char* what) {
    SCOPED_TRACE(what);
    for (int round = 0; round < 3; ++round) {
      std::vector<Peer> peers = come(server, 9);
      for (Peer& each : peers) ASSERT_TRUE(echoes(each)) << round;
    }
    EXPECT_TRUE(succeeds(server.channel().close()));
    EXPECT_TRUE(isRefused(server.address()));
  }

  test::RingScript script_;  // before the loops
};

TEST_P(ServerRingHandlers, MayHaveTheirSayAboutEachConnection) {
  for (const Say& each : everySay()) check(serveWith(each.act), each.what);
}

TEST_P(ServerRingHandlers, MayHaveTheirSayAboutEachBurst) {
  for (const Say& each : everySay()) check(serveWith({}, each.act), each.what);
}

TEST_P(ServerRingHandlers, MayHaveTheirSayAfterAPause) {
  for (const Say& each : everySay()) {
    script_.fail(IORING_OP_ACCEPT, EMFILE);
    check(serveWith(each.act), each.what);
    script_.fail(IORING_OP_ACCEPT, EMFILE);
    check(serveWith({}, each.act), each.what);
  }
}

TEST_P(ServerRingHandlers, MayHaveTheirSayWhereReadsAreExplicit) {
  for (const Say& each : everySay()) {
    for (const bool atTheEnd : {false, true}) {
      const Server server = acting(atTheEnd ? Act() : each.act, atTheEnd ? each.act : Act())
                                .option(options::autoRead, false)
                                .bind(anyAddress())
                                .get();
      server.channel().read();
      check(server, each.what);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, ServerRingHandlers, testing::ValuesIn(test::ringRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
