// SPDX-License-Identifier: Apache-2.0
// Files as messages: whole, in pieces, made shorter meanwhile, and to peers that are gone.
#include "support/fault_script.h"
#include "support/net.h"

#include <millrace/channel/file_region.h>
#include <millrace/transport/transports.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::EventLog;
using test::FaultScript;
using test::LogPtr;
using test::NetTest;
using test::pattern;
using test::recording;
using test::same;
using test::succeeds;
using testing::HasSubstr;

/// A file without a name that has `content`.
std::shared_ptr<const Fd> fileWith(const std::string& content) {
  char name[] = "/tmp/millrace-file-XXXXXX";
  Fd made(::mkostemp(name, O_CLOEXEC));
  ::unlink(name);
  EXPECT_EQ(::write(made.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  return std::make_shared<const Fd>(std::move(made));
}

class SocketFile : public NetTest {
 protected:
  const LogPtr log_ = std::make_shared<EventLog>();
};

// F18
TEST_P(SocketFile, GoesBetweenOtherMessages) {
  const std::string content = pattern(3'000'000);
  const auto file = fileWith(content);
  auto [channel, peer] = link(recording(log_));

  channel->write(ByteBuf::of("head"));
  channel->write(FileRegion(file, 0, 2'000'000));
  channel->write(FileRegion(file, 2'000'000, 1'000'000));
  channel->write(FileRegion(file, 5, 0));
  const Future<void> sent = channel->send(ByteBuf::of("tail"));

  EXPECT_TRUE(same(peer.receive(content.size() + 8), "head" + content + "tail"));
  EXPECT_TRUE(succeeds(sent));
}

// F80: the file is shorter than the region; the peer must not wait for the rest for ever
TEST_P(SocketFile, ThatEndsEarlyFailsTheWriteAndClosesTheChannel) {
  const auto file = fileWith("short");
  auto [channel, peer] = link(recording(log_));

  const Future<void> sent = channel->send(FileRegion(file, 0, 100));
  const Future<void> behind = channel->send(ByteBuf::of("never"));

  EXPECT_EQ(peer.receiveAll(), "short");
  EXPECT_FALSE(succeeds(sent));
  EXPECT_FALSE(succeeds(behind));
  EXPECT_TRUE(log_->await("removed"));
  EXPECT_EQ(inLoop([ch = channel] { return ch->closeCause().errnoValue(); }), EIO);
}

// F80: files that sendfile cannot read are copied
TEST_P(SocketFile, OfAnotherKindIsCopied) {
  const std::string content = pattern(200'000);
  const auto file = fileWith(content);
  for (const int error : {EINVAL, ENOSYS}) {
    auto [channel, peer] = link(recording(log_));
    FaultScript script;
    script.failAll("sendfile", error);

    const Future<void> sent = channel->send(FileRegion(file, 100, content.size() - 100));

    EXPECT_TRUE(same(peer.receive(content.size() - 100), content.substr(100)));
    EXPECT_TRUE(succeeds(sent));
  }
}

// F80
TEST_P(SocketFile, ThatCannotBeReadFailsTheWrite) {
  const auto file = fileWith("unreadable");
  auto [channel, peer] = link(recording(log_));
  FaultScript script;
  script.fail("sendfile", 1, EIO);

  EXPECT_FALSE(succeeds(channel->send(FileRegion(file, 0, 10))));

  EXPECT_EQ(peer.receiveAll(), "");
  EXPECT_TRUE(log_->await("removed"));
}

// F17: sendfile(2) has no flag against the signal
TEST_P(SocketFile, RaisesNoSignalWhenThePeerIsGone) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  const auto file = fileWith(pattern(1000));
  const Ref<EventLoop> byHand = EventLoop::handDriven(GetParam().options());
  test::Pair pair = test::makePair(isTcp());
  const ChannelPtr channel =
      *transportFor(byHand->ioType())->adopt(*byHand, std::move(pair.ours), SocketAddress());
  byHand->execute([&] {
    static_cast<void>(registerChannel(*byHand, channel));
    channel->setAutoRead(false);
  });
  byHand->runNow();
  pair.peer.close();

  for (int i = 0; i < 3 && channel->isOpen(); ++i) {
    byHand->execute([&] {
      channel->write(FileRegion(file, 0, 1000));
      channel->flushNow();
    });
    byHand->runNow();
  }
  byHand->shutdownGracefully();
  while (!byHand->isTerminated()) byHand->runNow();

  EXPECT_FALSE(channel->isOpen());
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(::sigismember(&blocked, SIGPIPE), 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketFile, testing::ValuesIn(test::socketRows()),
                         test::netRowName);

}  // namespace
}  // namespace millrace
