// SPDX-License-Identifier: Apache-2.0
// Groups of addresses, on the loopback interface.
#include "transport/socket_fixture.h"

#include <millrace/transport/multicast.h>

#include <cerrno>
#include <net/if.h>

namespace millrace {
namespace {

using test::Seen;
using testing::ElementsAre;
using testing::HasSubstr;

const SocketAddress kGroup = SocketAddress::inet4({239, 255, 77, 2}, 0);

unsigned loIndex() { return ::if_nametoindex("lo"); }

class MulticastOn : public test::SocketTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(set(receiver, options::ipMulticastAll, false).ok());
    ASSERT_TRUE(done(sendGroupsBy(*sender, loIndex())).ok());
  }
  void send(const char* text) {
    ASSERT_TRUE(
        done(sender->send(to(kGroup.withPort(receiver->localAddress().port()), text))).ok());
    turn();
  }

  Seen& seen = see();
  ChannelPtr receiver = bound(SocketAddress::any4(0), seen);
  ChannelPtr sender = bound(test::anyLoopback4(), see());
};
INSTANTIATE_TEST_SUITE_P(Engines, MulticastOn, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

TEST_P(MulticastOn, MembersHearTheGroup) {
  send("too early");
  ASSERT_TRUE(done(joinGroup(*receiver, kGroup, loIndex())).ok());
  send("heard");
  ASSERT_TRUE(done(leaveGroup(*receiver, kGroup, loIndex())).ok());
  send("too late");

  EXPECT_THAT(seen.texts, ElementsAre("heard"));
  EXPECT_THAT(seen.peers, ElementsAre(sender->localAddress()));
}

TEST_P(MulticastOn, MembersMayHearOneSourceOnly) {
  const GroupSource mine{kGroup, test::anyLoopback4(), loIndex()};
  const GroupSource others{kGroup, SocketAddress::inet4({127, 0, 0, 9}, 0), loIndex()};
  ASSERT_TRUE(done(joinSource(*receiver, others)).ok());
  send("of another source");
  ASSERT_TRUE(done(joinSource(*receiver, mine)).ok());
  send("heard");
  ASSERT_TRUE(done(leaveSource(*receiver, mine)).ok());
  send("not any more");

  EXPECT_THAT(seen.texts, ElementsAre("heard"));
}

TEST_P(MulticastOn, SourcesMayBeBlocked) {
  const GroupSource mine{kGroup, test::anyLoopback4(), loIndex()};
  ASSERT_TRUE(done(joinGroup(*receiver, kGroup, loIndex())).ok());
  ASSERT_TRUE(done(blockSource(*receiver, mine)).ok());
  send("blocked");
  ASSERT_TRUE(done(unblockSource(*receiver, mine)).ok());
  send("heard");

  EXPECT_THAT(seen.texts, ElementsAre("heard"));
}

TEST_P(MulticastOn, RefusalsSayWhatWasAsked) {
  EXPECT_THAT(done(joinGroup(*receiver, test::anyLoopback4(), loIndex())).error().message(),
              HasSubstr("joinGroup 127.0.0.1, interface"));
  EXPECT_EQ(done(leaveGroup(*receiver, kGroup, loIndex())).error().errnoValue(), EADDRNOTAVAIL);
  EXPECT_THAT(done(sendGroupsBy(*sender, 99'999)).error().message(), HasSubstr("interface 99999"));
  ASSERT_TRUE(done(receiver->close()).ok());
  EXPECT_EQ(done(joinGroup(*receiver, kGroup)).error().code(), Errc::closed);
}

TEST_P(MulticastOn, WorksWithIpv6) {
  Seen& heard = see();
  const ChannelPtr receiver6 = bound(SocketAddress::any6(0), heard);
  const ChannelPtr sender6 = bound(SocketAddress::loopback6(0), see());
  const SocketAddress group =
      SocketAddress::inet6({0xff, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77, 2},
                           receiver6->localAddress().port(), loIndex());
  ASSERT_TRUE(done(joinGroup(*receiver6, group, loIndex())).ok());
  ASSERT_TRUE(done(sendGroupsBy(*sender6, loIndex())).ok());

  // Many machines have no route for groups on the loopback interface.
  const Result<void> sent = done(sender6->send(to(group, "six")));
  if (sent.ok()) {
    ASSERT_TRUE(turnUntil([&] { return !heard.texts.empty(); }));
    EXPECT_THAT(heard.texts, ElementsAre("six"));
  } else {
    EXPECT_EQ(sent.error().errnoValue(), ENETUNREACH);
  }
  EXPECT_TRUE(done(leaveGroup(*receiver6, group, loIndex())).ok());
}

}  // namespace
}  // namespace millrace
