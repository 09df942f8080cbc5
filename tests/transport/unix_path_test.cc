// SPDX-License-Identifier: Apache-2.0
// Unix servers and the paths they are bound to.
#include "transport/socket_fixture.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace millrace {
namespace {

using test::Seen;
using testing::HasSubstr;

class UnixPathOn : public test::SocketTest {
 protected:
  ~UnixPathOn() override { ::unlink(path.c_str()); }

  ChannelPtr server() {
    return enter(transport().newServer(loop(), ChannelKind::unixStream), see());
  }
  bool isThere() const { return ::access(path.c_str(), F_OK) == 0; }
  // As a process leaves it behind that had no time to clean up.
  void leaveStale(SocketType type) {
    const Fd dead = openSocket(address, type).orThrow();
    bindSocket(dead.get(), address).orThrow();
  }

  const std::string path = testing::TempDir() + "/millrace_path_" + std::to_string(::getpid());
  const SocketAddress address = SocketAddress::unixPath(path).orThrow();
};
INSTANTIATE_TEST_SUITE_P(Engines, UnixPathOn, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

TEST_P(UnixPathOn, IsRemovedWhenTheServerCloses) {
  const ChannelPtr channel = server();
  ASSERT_TRUE(done(channel->bind(address)).ok());
  EXPECT_TRUE(isThere());

  ASSERT_TRUE(done(channel->close()).ok());

  EXPECT_FALSE(isThere());
}

// A restart without a gap: the old server closes after the new one has its path.
TEST_P(UnixPathOn, OfASuccessorIsNotRemoved) {
  const ChannelPtr old = server();
  ASSERT_TRUE(done(old->bind(address)).ok());
  ::unlink(path.c_str());
  const ChannelPtr fresh = server();
  ASSERT_TRUE(done(fresh->bind(address)).ok());

  ASSERT_TRUE(done(old->close()).ok());
  EXPECT_TRUE(isThere());

  ASSERT_TRUE(done(fresh->close()).ok());
  EXPECT_FALSE(isThere());
}

// F79: a stale path
TEST_P(UnixPathOn, ThatIsStaleSaysWhatToDo) {
  leaveStale(SocketType::stream);
  const ChannelPtr channel = server();

  const Error stale = done(channel->bind(address)).error();

  EXPECT_EQ(stale.errnoValue(), EADDRINUSE);
  EXPECT_THAT(stale.message(), HasSubstr(path));
  EXPECT_THAT(stale.message(), HasSubstr("nobody is listening there"));
  EXPECT_THAT(stale.message(), HasSubstr("remove the path, then bind again"));
  EXPECT_TRUE(isThere());
  ::unlink(path.c_str());
  EXPECT_TRUE(done(channel->bind(address)).ok());
}

// F79: a stale path of a datagram socket
TEST_P(UnixPathOn, ThatIsStaleIsToldToDatagramChannels) {
  leaveStale(SocketType::datagram);
  const ChannelPtr channel = datagrams(ChannelKind::unixDatagram, see());

  EXPECT_THAT(done(channel->bind(address)).error().message(),
              HasSubstr("nobody is listening there"));
  ASSERT_TRUE(done(channel->close()).ok());

  EXPECT_TRUE(isThere());  // it was not bound to it
}

TEST_P(UnixPathOn, ThatIsInUseSaysSo) {
  const ChannelPtr first = server();
  ASSERT_TRUE(done(first->bind(address)).ok());
  const ChannelPtr second = server();

  EXPECT_THAT(done(second->bind(address)).error().message(), HasSubstr("somebody is listening"));
  ASSERT_TRUE(done(second->close()).ok());

  EXPECT_TRUE(isThere());
}

TEST_P(UnixPathOn, ThatIsAFileIsNotCalledStale) {
  const Fd file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  const ChannelPtr channel = server();

  EXPECT_THAT(done(channel->bind(address)).error().message(),
              HasSubstr("a file is there that is no socket"));
}

// F79: a path that is too long never gets to the kernel
TEST_P(UnixPathOn, ThatIsTooLongIsRefused) {
  EXPECT_EQ(SocketAddress::unixPath(std::string(108, 'x')).error().errnoValue(), ENAMETOOLONG);
}

}  // namespace
}  // namespace millrace
