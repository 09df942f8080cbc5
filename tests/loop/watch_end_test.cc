// SPDX-License-Identifier: Apache-2.0
// Watches that end by themselves: the callback threw, the loop ends, the descriptor is gone.
#include "support/engines.h"
#include "support/log_capture.h"

#include <millrace/base/error.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::LogCapture;
using test::Pipe;
using test::watchInLoop;

class WatchEnds : public test::EngineTest {
 protected:
  static void turns(EventLoop& loop, int count = 5) {
    for (int i = 0; i < count; ++i) loop.runNow();
  }
};

// I10
TEST_P(WatchEnds, WhenItsCallbackThrows) {
  const LogCapture log;
  const Pipe bad;
  const Pipe good;
  int calls = 0;
  std::vector<Error> ends;
  std::string read;
  const Ref<EventLoop> loop = handDriven();
  const Watch first = watchInLoop(
      *loop, bad.readEnd(), kReadable,
      [&](int, std::uint32_t) {
        ++calls;
        throw std::runtime_error("cannot parse this");
      },
      Trigger::level, [&](const Error& why) { ends.push_back(why); });
  const Watch second = watchInLoop(*loop, good.readEnd(), kReadable,
                                   [&](int fd, std::uint32_t) { read += test::readAll(fd); });
  bad.put();
  good.put("fine");

  turns(*loop);

  EXPECT_EQ(calls, 1);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_TRUE(ends[0].is(Errc::exception));
  EXPECT_NE(ends[0].message().find("cannot parse this"), std::string::npos);
  EXPECT_EQ(read, "fine");
  EXPECT_EQ(loop->metrics().registrations, 1U);
  EXPECT_EQ(loop->metrics().failures, 1U);
  EXPECT_EQ(log.count(LogLevel::error), 1U);
  EXPECT_TRUE(log.contains("a callback threw: watch callback: cannot parse this") ||
              log.contains("cannot parse this"));
  EXPECT_TRUE(log.contains("WatchEnds_WhenItsCallbackThrows"));  // the name of the lambda
}

// I10
TEST_P(WatchEnds, QuietlyIfItWasEndedBeforeItsCallbackThrew) {
  const LogCapture log;
  const Pipe pipe;
  int ends = 0;
  Watch watch;
  const Ref<EventLoop> loop = handDriven();
  watch = watchInLoop(
      *loop, pipe.readEnd(), kReadable,
      [&](int, std::uint32_t) {
        watch.unwatch();
        throw std::runtime_error("late");
      },
      Trigger::level, [&](const Error&) { ++ends; });
  pipe.put();

  turns(*loop);
  watch = Watch();

  EXPECT_EQ(ends, 0);
  EXPECT_EQ(loop->metrics().failures, 1U);
}

// I10
TEST_P(WatchEnds, EvenIfWhoIsToldThrowsToo) {
  const LogCapture log;
  const Pipe pipe;
  const Ref<EventLoop> loop = handDriven();
  const Watch watch = watchInLoop(
      *loop, pipe.readEnd(), kReadable, [](int, std::uint32_t) { throw 1; }, Trigger::level,
      [](const Error&) { throw std::runtime_error("and again"); });
  pipe.put();

  turns(*loop);

  EXPECT_EQ(loop->metrics().failures, 2U);
  EXPECT_EQ(loop->metrics().registrations, 0U);
  EXPECT_TRUE(log.contains("and again"));
  bool ran = false;
  loop->execute([&] { ran = true; });
  loop->runNow();
  EXPECT_TRUE(ran);
}

// C123
TEST_P(WatchEnds, WithoutAWordWhenItIsAskedTo) {
  const Pipe pipe;
  int ends = 0;
  const Ref<EventLoop> loop = handDriven();
  const Watch watch = watchInLoop(
      *loop, pipe.readEnd(), kReadable, [](int, std::uint32_t) {}, Trigger::level,
      [&](const Error&) { ++ends; });

  watch.unwatch();
  loop->runNow();

  EXPECT_EQ(ends, 0);
}

// C230
TEST_P(WatchEnds, WhenItsLoopShutsDown) {
  std::vector<Pipe> pipes(3);
  std::atomic<int> ends{0};
  std::atomic<int> calls{0};
  EventLoopGroup group(options().loops(1));
  expectEngine(group);
  EventLoop& loop = *group.begin();
  std::vector<Watch> watches;
  for (const Pipe& pipe : pipes) {
    watches.push_back(watchInLoop(
        loop, pipe.readEnd(), kReadable, [&](int, std::uint32_t) { ++calls; }, Trigger::level,
        [&](const Error& why) { ends += why.is(Errc::closed) ? 1 : 100; }));
  }
  watches[0].unwatch();

  const ShutdownReport report = group.shutdownGracefully().get();

  EXPECT_EQ(ends, 2);
  EXPECT_EQ(report.watchesClosed, 2U);
  EXPECT_FALSE(report.timedOut);
  for (const Pipe& pipe : pipes) pipe.put();
  for (const Watch& watch : watches) {  // harmless now
    watch.modify(kReadable);
    watch.unwatch();
  }
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(loop.metrics().registrations, 0U);
}

// C230: nothing new begins meanwhile
TEST_P(WatchEnds, AndNoneBeginsWhenItsLoopShutsDown) {
  const Pipe pipe;
  const Pipe another;
  Error refused;
  const Ref<EventLoop> loop = handDriven();
  const Watch watch = watchInLoop(
      *loop, pipe.readEnd(), kReadable, [](int, std::uint32_t) {}, Trigger::level,
      [&](const Error&) {
        refused = loop->watch(another.readEnd(), kReadable, [](int, std::uint32_t) {}).cause();
      });

  static_cast<void>(loop->shutdownGracefully());
  turns(*loop);

  EXPECT_TRUE(loop->isTerminated());
  EXPECT_TRUE(refused.is(Errc::rejected));
  EXPECT_NE(refused.message().find("it is shutting down"), std::string::npos);
  EXPECT_THROW(
      static_cast<void>(loop->watch(another.readEnd(), kReadable, [](int, std::uint32_t) {})),
      RejectedExecution);
}

// C230: asked for by a callback, with events of others still waiting
TEST_P(WatchEnds, WhenACallbackShutsItsLoopDown) {
  std::vector<Pipe> pipes(5);
  int ends = 0;
  const Ref<EventLoop> loop = handDriven();
  for (const Pipe& pipe : pipes) {
    watchInLoop(
        *loop, pipe.readEnd(), kReadable,
        [&](int, std::uint32_t) { static_cast<void>(loop->shutdownGracefully()); }, Trigger::level,
        [&](const Error&) { ++ends; });
  }
  for (const Pipe& pipe : pipes) pipe.put();

  turns(*loop);

  EXPECT_TRUE(loop->isTerminated());
  EXPECT_EQ(ends, 5);
}

// C110
TEST_P(WatchEnds, WithPollWhenItsDescriptorWasClosed) {
  if (GetParam().io.type != &io::pollType) return;  // epoll forgets such a descriptor
  Pipe pipe;
  Error why;
  const Ref<EventLoop> loop = handDriven();
  const Watch watch = watchInLoop(
      *loop, pipe.readEnd(), kReadable, [](int, std::uint32_t) { FAIL(); }, Trigger::level,
      [&](const Error& error) { why = error; });
  pipe.closeRead();

  turns(*loop);

  EXPECT_EQ(why.errnoValue(), EBADF);
  EXPECT_NE(why.message().find("closed without unwatch()"), std::string::npos);
  EXPECT_EQ(loop->metrics().registrations, 0U);
}

// C127: too late to be right, but harmless
TEST_P(WatchEnds, AfterItsDescriptorWasClosed) {
  Pipe pipe;
  const Ref<EventLoop> loop = handDriven();
  const Watch watch =
      watchInLoop(*loop, pipe.readEnd(), kReadable, [](int, std::uint32_t) { FAIL(); });
  loop->execute([&] {
    pipe.closeRead();
    watch.unwatch();
  });

  turns(*loop);

  EXPECT_EQ(loop->metrics().registrations, 0U);
  EXPECT_EQ(loop->metrics().failures, 0U);
}

// What was unwatched and closed is closed, for the peer too, whatever the engine had begun on it.
TEST_P(WatchEnds, BeforeItsDescriptorIsClosed) {
  for (const Trigger trigger : {Trigger::level, Trigger::edge}) {
    if (trigger == Trigger::edge && !GetParam().hasEdge) continue;
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const Ref<EventLoop> loop = handDriven();
    bool isClosed = false;
    const auto end = [&](const Watch& watch) {
      watch.unwatch();
      ::close(ends[0]);
      isClosed = ::send(ends[1], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE;
    };
    Watch watch;
    watch = watchInLoop(
        *loop, ends[0], kReadable, [&](int, std::uint32_t) { end(watch); }, trigger);
    turns(*loop);
    if (trigger == Trigger::edge) {
      ASSERT_EQ(::send(ends[1], "x", 1, MSG_NOSIGNAL), 1);
    } else {
      loop->execute([&] { end(watch); });
    }

    turns(*loop);

    EXPECT_TRUE(isClosed);
    ::close(ends[1]);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, WatchEnds, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

}  // namespace
}  // namespace millrace
