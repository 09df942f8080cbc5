// SPDX-License-Identifier: Apache-2.0
// Raw descriptors with callbacks: what a watch reports, and how it is changed and ended.
#include "support/engines.h"

#include <millrace/base/error.h>
#include <millrace/sys/eventfd.h>
#include <millrace/sys/fd.h>

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::Pipe;
using test::watchInLoop;

class WatchOf : public test::EngineTest {
 protected:
  // More turns than there are descriptors, for engines that find one event at a time.
  static void turns(EventLoop& loop, int count = 5) {
    for (int i = 0; i < count; ++i) loop.runNow();
  }
};

// C123
TEST_P(WatchOf, TellsTheDescriptorAndWhatItIsReadyFor) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  std::vector<std::pair<int, std::uint32_t>> seen;
  const Watch read =
      watchInLoop(*loop, pipe.readEnd(), kReadable, [&](int fd, std::uint32_t ready) {
        seen.emplace_back(fd, ready);
        test::readAll(fd);
      });
  turns(*loop);
  EXPECT_TRUE(seen.empty());

  pipe.put("hello");
  EXPECT_EQ(loop->run(Deadline::never()), 1U);

  EXPECT_EQ(seen, (std::vector<std::pair<int, std::uint32_t>>{{pipe.readEnd(), kReadable}}));
  EXPECT_EQ(loop->metrics().ioEvents, 1U);
}

// C123: on the loop's own thread, which it wakes
TEST_P(WatchOf, CallsBackOnTheLoopsThread) {
  const Pipe pipe;
  std::atomic<int> inLoop{0};
  EventLoopGroup group(options().loops(1));
  expectEngine(group);
  EventLoop& loop = *group.begin();
  const Watch watch = loop.watch(pipe.readEnd(), kReadable,
                                 [&](int fd, std::uint32_t) {
                                   test::readAll(fd);
                                   if (loop.inEventLoop()) ++inLoop;
                                 })
                          .get();

  for (int i = 1; i <= 20; ++i) {
    pipe.put();
    ASSERT_TRUE(test::eventually([&] { return inLoop == i; }));
  }
}

// C123
TEST_P(WatchOf, LevelReportsAsLongAsItIsReady) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  int calls = 0;
  const Watch watch =
      watchInLoop(*loop, pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; });
  pipe.put();

  for (int i = 1; i <= 3; ++i) {
    loop->runNow();
    EXPECT_EQ(calls, i);
  }
  pipe.take();
  turns(*loop);

  EXPECT_EQ(calls, 3);
}

// C123
TEST_P(WatchOf, EdgeReportsOnceForEachChange) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  int calls = 0;
  const auto count = [&](int, std::uint32_t) { ++calls; };
  if (!GetParam().hasEdge) {
    const Future<Watch> refused = loop->watch(pipe.readEnd(), kReadable, count, Trigger::edge);
    loop->runNow();
    EXPECT_TRUE(refused.cause().is(Errc::notSupported));
    EXPECT_NE(refused.cause().message().find("use Trigger::level or io::epoll()"),
              std::string::npos);
    return;
  }
  const Watch watch = watchInLoop(*loop, pipe.readEnd(), kReadable, count, Trigger::edge);

  pipe.put();
  turns(*loop);
  EXPECT_EQ(calls, 1);
  pipe.put();
  turns(*loop);
  EXPECT_EQ(calls, 2);

  watch.modify(kReadable);  // asks anew: what is still there is reported again
  turns(*loop);
  EXPECT_EQ(calls, 3);
}

// C123
TEST_P(WatchOf, ReportsWhatItIsChangedTo) {
  const Ref<EventLoop> loop = handDriven();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  std::vector<std::uint32_t> seen;
  Watch watch;
  watch = watchInLoop(*loop, ends[0], kReadable, [&](int, std::uint32_t ready) {
    seen.push_back(ready);
    watch.modify(ready == kReadable ? kWritable : 0);
  });
  ASSERT_EQ(::write(ends[1], "x", 1), 1);

  turns(*loop);

  EXPECT_EQ(seen, (std::vector<std::uint32_t>{kReadable, kWritable}));
  watch.modify(kReadable | kWritable);
  turns(*loop, 2);
  EXPECT_EQ(seen.back(), kReadable | kWritable);
  watch.unwatch();
  loop->runNow();
  ::close(ends[0]);
  ::close(ends[1]);
}

// C123
TEST_P(WatchOf, TellsThatThePeerIsGone) {
  const Ref<EventLoop> loop = handDriven();
  Pipe pipe;
  std::uint32_t seen = 0;
  Watch watch;
  watch = watchInLoop(*loop, pipe.readEnd(), kReadable, [&](int, std::uint32_t ready) {
    seen = ready;
    watch.unwatch();
  });
  pipe.closeWrite();

  turns(*loop);

  EXPECT_EQ(seen, kHangup);
}

// C123: behaviour 3.6, number 4
TEST_P(WatchOf, TellsThatAConnectIsOver) {
  const Ref<EventLoop> loop = handDriven();
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  ::connect(client, reinterpret_cast<sockaddr*>(&address), size);

  std::uint32_t seen = 0;
  const Watch watch = watchInLoop(*loop, client, kWritable, [&](int fd, std::uint32_t ready) {
    seen = ready;
    int error = -1;
    socklen_t length = sizeof error;
    EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    EXPECT_EQ(error, 0);
  });
  while (seen == 0) loop->run(Deadline::never());

  EXPECT_EQ(seen, kWritable);
  watch.unwatch();
  loop->runNow();
  ::close(client);
  ::close(listener);
}

// C123: behaviour 3.6, number 7
TEST_P(WatchOf, IsCounted) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe one;
  const Pipe two;
  EXPECT_EQ(loop->metrics().registrations, 0U);

  const Watch first = watchInLoop(*loop, one.readEnd(), kReadable, [](int, std::uint32_t) {});
  const Watch second = watchInLoop(*loop, two.readEnd(), kReadable, [](int, std::uint32_t) {});
  EXPECT_EQ(loop->metrics().registrations, 2U);
  EXPECT_EQ(loop->load(), 2U);
  first.unwatch();
  loop->runNow();

  EXPECT_EQ(loop->metrics().registrations, 1U);
}

// C123 C127
TEST_P(WatchOf, EndsByAnyCopyOfItsHandleAndOnlyOnce) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe one;
  const Pipe two;
  int calls = 0;
  Watch first = watchInLoop(*loop, one.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; });
  const Watch copy = first;
  const Watch moved = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT: that is the point
  copy.unwatch();
  loop->runNow();
  int others = 0;
  const Watch second =
      watchInLoop(*loop, two.readEnd(), kReadable, [&](int, std::uint32_t) { ++others; });

  moved.unwatch();  // its place belongs to the second one by now
  moved.modify(kReadable);
  one.put();
  two.put();
  turns(*loop, 2);

  EXPECT_EQ(calls, 0);
  EXPECT_EQ(others, 2);
  EXPECT_EQ(loop->metrics().failures, 0U);
}

// C123: the handle may go, the watch stays
TEST_P(WatchOf, DoesNotNeedItsHandle) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  int calls = 0;
  watchInLoop(*loop, pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; });

  pipe.put();
  loop->runNow();

  EXPECT_EQ(calls, 1);
}

// C123: from other threads, while the descriptor is ready all the time
TEST_P(WatchOf, IsChangedAndEndedByAnyThread) {
  const Pipe pipe;
  pipe.put();
  std::atomic<int> calls{0};
  EventLoopGroup group(options().loops(1));
  EventLoop& loop = *group.begin();
  const Watch watch =
      watchInLoop(loop, pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; });
  ASSERT_TRUE(test::eventually([&] { return calls > 10; }));

  watch.modify(0);
  loop.submit([] {}).sync();
  const int paused = calls;
  loop.submit([] {}).sync();
  EXPECT_EQ(calls, paused);
  watch.modify(kReadable);
  EXPECT_TRUE(test::eventually([&] { return calls > paused + 10; }));
  watch.unwatch();
  loop.submit([] {}).sync();
  const int ended = calls;
  loop.submit([] {}).sync();

  EXPECT_EQ(calls, ended);
  EXPECT_EQ(loop.metrics().registrations, 0U);
}

// C123: what cannot be watched is said in words
TEST_P(WatchOf, RefusesBadArgumentsAtOnce) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  const auto nothing = [](int, std::uint32_t) {};
  const auto textOf = [](const std::function<void()>& fn) -> std::string {
    try {
      fn();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(textOf([&] { static_cast<void>(loop->watch(-1, kReadable, nothing)); }),
            "watch(-1): this is not an open descriptor; open it first, and unwatch() before you "
            "close it");
  EXPECT_EQ(textOf([&] { static_cast<void>(loop->watch(pipe.readEnd(), kReadable, {})); }),
            "watch(): the callback is empty; give it a callable");
  for (const std::uint32_t events : {0U, kEdge, kReadable | kOneShot}) {
    EXPECT_NE(textOf([&] {
                static_cast<void>(loop->watch(pipe.readEnd(), events, nothing));
              }).find("are not a union of kReadable, kWritable, kUrgent, kPeerClosed"),
              std::string::npos);
  }
  const Watch watch = watchInLoop(*loop, pipe.readEnd(), kReadable, nothing);
  EXPECT_NE(textOf([&] { watch.modify(kEdge); }).find("Watch::modify()"), std::string::npos);
  EXPECT_EQ(loop->metrics().registrations, 1U);
}

// C123
TEST_P(WatchOf, FailsWithTheKernelsWordForADescriptorThatIsWatchedAlready) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  int calls = 0;
  const Watch watch =
      watchInLoop(*loop, pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; });

  const Future<Watch> again =
      loop->watch(pipe.readEnd(), kReadable, [](int, std::uint32_t) { FAIL(); });
  loop->runNow();
  pipe.put();
  loop->runNow();

  EXPECT_EQ(again.cause().errnoValue(), EEXIST);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(loop->metrics().registrations, 1U);
}

// C123: on the loop thread the answer is there at once
TEST_P(WatchOf, BeginsAtOnceOnTheLoopsThread) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  bool done = false;
  loop->execute([&] {
    done = loop->watch(pipe.readEnd(), kReadable, [](int, std::uint32_t) {}).isSuccess();
  });

  loop->runNow();

  EXPECT_TRUE(done);
}

INSTANTIATE_TEST_SUITE_P(Engines, WatchOf, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

// C123
TEST(WatchOfFiles, IsRefusedByEpollAndAlwaysReadyWithPoll) {
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int calls = 0;
  const Ref<EventLoop> epoll = EventLoop::handDriven(LoopOptions().io(io::epoll()));
  const Ref<EventLoop> poll = EventLoop::handDriven(LoopOptions().io(io::poll()));

  const Future<Watch> refused = epoll->watch(file, kReadable, [](int, std::uint32_t) {});
  epoll->runNow();
  const Watch watch = watchInLoop(*poll, file, kReadable, [&](int, std::uint32_t) { ++calls; });
  poll->runNow();

  EXPECT_EQ(refused.cause().errnoValue(), EPERM);
  EXPECT_NE(refused.cause().message().find("is a file"), std::string::npos);
  EXPECT_EQ(calls, 1);
  watch.unwatch();
  poll->runNow();
  ::close(file);
}

// A poll of it would fail and be begun anew, for ever.
TEST(WatchOfFiles, IsRefusedByUring) {
  if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::uring()));

  const Future<Watch> refused = loop->watch(file, kReadable, [](int, std::uint32_t) {});
  loop->runNow();

  EXPECT_EQ(refused.cause().errnoValue(), EPERM);
  ::close(file);
}

// All eventfds look alike to the ring: it cannot know whether the first was closed. That one has ended then. Epoll
// refuses the second.
TEST(WatchOfEventFds, OnUringGoesToTheSecondWhoAsksForIt) {
  if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  const Fd event = eventFd().orThrow();
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::uring()));
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  const Watch one = watchInLoop(*loop, event.get(), kReadable,
                                [&](int, std::uint32_t events) { first |= events; });
  const Watch two = watchInLoop(*loop, event.get(), kReadable,
                                [&](int, std::uint32_t events) { second |= events; });
  loop->runNow();
  one.unwatch();  // does not take it from the second
  loop->runNow();

  ASSERT_EQ(eventWrite(event.get(), 1), 0);
  loop->run(Deadline::after(std::chrono::seconds(10)));

  EXPECT_EQ(first, 0U);
  EXPECT_EQ(second, kReadable);
  two.unwatch();
  loop->runNow();
}

// C123
TEST(WatchOnParking, IsRefusedWithTheRemedy) {
  const Pipe pipe;
  EventLoopGroup group(1, io::parking());

  const Future<Watch> refused =
      group.next().watch(pipe.readEnd(), kReadable, [](int, std::uint32_t) {});
  refused.await();

  EXPECT_TRUE(refused.cause().is(Errc::notSupported));
  EXPECT_NE(refused.cause().message().find("use io::epoll() or io::poll()"), std::string::npos);
}

}  // namespace
}  // namespace millrace
