// SPDX-License-Identifier: Apache-2.0
// Several datagrams as one on their way through the kernel: GSO when they are sent, GRO when read.
#include "support/fault_script.h"
#include "transport/socket_fixture.h"

#include <cerrno>
#include <string>

namespace millrace {
namespace {

using test::FaultScript;
using test::Seen;
using testing::Each;
using testing::SizeIs;

class DatagramSegmentsOn : public test::SocketTest {
 protected:
  // Old kernels have neither.
  bool begin(int segment, bool gro) {
    receiver = bound(test::anyLoopback4(), seen);
    sender = bound(test::anyLoopback4(), see());
    return set(sender, options::udpSegment, segment).ok() &&
           (!gro || set(receiver, options::udpGro, true).ok());
  }
  std::vector<std::string> write(int count, std::size_t size) {
    std::vector<std::string> texts;
    for (int i = 0; i < count; ++i) {
      std::string text = std::to_string(i);
      text.resize(size, '.');
      sender->write(to(receiver, text));
      texts.push_back(std::move(text));
    }
    return texts;
  }

  Seen& seen = see();
  ChannelPtr receiver;
  ChannelPtr sender;
};
INSTANTIATE_TEST_SUITE_P(Engines, DatagramSegmentsOn, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

TEST_P(DatagramSegmentsOn, ManyOfOneSizeGoWithOneCallAndArriveOneByOne) {
  for (const bool gro : {false, true}) {
    if (!begin(1400, gro)) GTEST_SKIP() << "this kernel has no UDP_SEGMENT or UDP_GRO";
    seen = {};
    const FaultScript calls;

    std::vector<std::string> sent = write(100, 1000);
    sent.push_back("the last one is shorter");
    sender->write(to(receiver, sent.back()));
    sender->flush();
    ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 101; })) << seen.texts.size();

    EXPECT_EQ(seen.texts, sent);
    EXPECT_THAT(seen.peers, Each(sender->localAddress()));
    EXPECT_EQ(calls.count("sendmmsg"), 1U);
    // They came as a few, too.
    EXPECT_LE(calls.count("recvmmsg"), gro ? 6U : 15U);
  }
}

TEST_P(DatagramSegmentsOn, SizesAndPeersAreNotMixedUp) {
  if (!begin(1200, true)) GTEST_SKIP() << "this kernel has no UDP_SEGMENT or UDP_GRO";
  Seen& others = see();
  const ChannelPtr other = bound(test::anyLoopback4(), others);
  std::vector<std::string> sent;
  const auto add = [&](std::size_t size, char fill) {
    sent.emplace_back(size, fill);
    sender->write(to(receiver, sent.back()));
  };

  for (const std::size_t size : {500U, 500U, 300U, 300U, 600U, 0U, 600U, 1200U, 1U, 1U})
    add(size, 'a');
  sender->write(to(other, "another peer"));
  for (const std::size_t size : {1U, 1U, 0U, 0U, 7U}) add(size, 'b');
  sender->flush();
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == sent.size(); })) << seen.texts.size();
  ASSERT_TRUE(turnUntil([&] { return !others.texts.empty(); }));

  EXPECT_EQ(seen.texts, sent);
  EXPECT_THAT(others.texts, testing::ElementsAre("another peer"));
}

TEST_P(DatagramSegmentsOn, ALongMessageIsCutByTheKernel) {
  if (!begin(1000, false)) GTEST_SKIP() << "this kernel has no UDP_SEGMENT or UDP_GRO";

  ASSERT_TRUE(done(sender->send(to(receiver, std::string(2500, 'x')))).ok());
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 3; }));

  EXPECT_THAT(seen.texts, testing::ElementsAre(SizeIs(1000), SizeIs(1000), SizeIs(500)));
}

TEST_P(DatagramSegmentsOn, WhereTheyCannotBeOneTheyGoOneByOne) {
  if (!begin(1400, false)) GTEST_SKIP() << "this kernel has no UDP_SEGMENT or UDP_GRO";
  FaultScript script;
  script.fail("sendmmsg", 1, EIO);

  std::vector<std::string> sent = write(10, 100);
  sender->flush();
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 10; }));
  EXPECT_EQ(seen.texts, sent);
  seen = {};
  sent = write(10, 100);
  sender->flush();
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 10; }));

  EXPECT_EQ(script.count("sendmmsg"), 3U);
  EXPECT_EQ(metrics().failedWrites, 0U);
}

TEST_P(DatagramSegmentsOn, JoinedOnesShareTheirMemory) {
  if (!begin(1400, true)) GTEST_SKIP() << "this kernel has no UDP_SEGMENT or UDP_GRO";

  write(40, 1000);
  sender->flush();
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 40; }));
  ASSERT_TRUE(done(sender->send(to(receiver, "a short one alone"))).ok());
  ASSERT_TRUE(turnUntil([&] { return seen.texts.size() == 41; }));

  EXPECT_LE(seen.pinned.back(), 64U);
}

}  // namespace
}  // namespace millrace
