// SPDX-License-Identifier: Apache-2.0
// A selector made anew: what moves over, what is lost, and who may ask for it.
#include "support/call_hooks.h"
#include "support/census.h"
#include "support/engines.h"
#include "support/fault_script.h"
#include "support/log_capture.h"

#include <millrace/base/error.h>
#include <millrace/sys/calls.h>
#include <millrace/sys/thread.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <unistd.h>

namespace millrace {
namespace {

using test::Census;
using test::FaultScript;
using test::LogCapture;
using test::Pipe;
using test::watchInLoop;

// Asks for a new selector on the loop's thread and lets it happen.
void rebuild(EventLoop& loop) {
  loop.rebuildSelector();
  loop.runNow();
}

class Rebuild : public test::EngineTest {};

// C109: behaviour 3.6, number 1
TEST_P(Rebuild, KeepsEveryWatchWithItsInterest) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe wanted;
  const Pipe paused;
  const Pipe roomy;
  std::string read;
  std::string late;
  int writable = 0;
  const Watch first = watchInLoop(*loop, wanted.readEnd(), kReadable,
                                  [&](int fd, std::uint32_t) { read += test::readAll(fd); });
  const Watch second = watchInLoop(*loop, paused.readEnd(), kReadable,
                                   [&](int fd, std::uint32_t) { late += test::readAll(fd); });
  const Watch third =
      watchInLoop(*loop, roomy.writeEnd(), kWritable,
                  [&](int, std::uint32_t ready) { writable += ready == kWritable; });
  second.modify(0);
  loop->runNow();
  writable = 0;

  rebuild(*loop);
  wanted.put("abc");
  paused.put("def");
  for (int i = 0; i < 3; ++i) loop->runNow();

  EXPECT_EQ(loop->metrics().rebuilds, 1U);
  EXPECT_EQ(loop->metrics().registrations, 3U);
  EXPECT_EQ(read, "abc");
  EXPECT_EQ(late, "");
  EXPECT_GE(writable, 1);
  second.modify(kReadable);
  for (int i = 0; i < 3; ++i) loop->runNow();
  EXPECT_EQ(late, "def");
}

// C109: edges that came between the last look and the new selector
TEST_P(Rebuild, LosesNoEdge) {
  if (!GetParam().hasEdge) return;
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  std::string read;
  const Watch watch = watchInLoop(
      *loop, pipe.readEnd(), kReadable, [&](int fd, std::uint32_t) { read += test::readAll(fd); },
      Trigger::edge);
  loop->runNow();

  loop->execute([&] {
    pipe.put("edge");
    loop->rebuildSelector();
  });
  for (int i = 0; i < 3; ++i) loop->runNow();

  EXPECT_EQ(read, "edge");
}

// C109: wakeups reach the new one
TEST_P(Rebuild, KeepsTheLoopWakeable) {
  EventLoopGroup group(options().loops(1));
  expectEngine(group);
  EventLoop& loop = *group.begin();
  for (int i = 0; i < 50; ++i) {
    loop.rebuildSelector();
    const std::uint64_t sleeps = loop.submit([&] { return loop.metrics().sleeps; }).get();
    EXPECT_TRUE(test::eventually([&] { return loop.metrics().sleeps > sleeps; }));
    EXPECT_EQ(loop.submit([i] { return i; }).get(), i);
  }
  EXPECT_EQ(loop.metrics().rebuilds, 50U);
}

// C109: asked for by a callback, in the middle of a dispatch
TEST_P(Rebuild, WithinACallbackNeitherLosesNorDoublesTheOthersEvents) {
  const Ref<EventLoop> loop = handDriven();
  std::vector<Pipe> pipes(5);
  std::vector<int> calls(5, 0);
  std::vector<Watch> watches;
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    watches.push_back(
        watchInLoop(*loop, pipes[i].readEnd(), kReadable, [&, i](int fd, std::uint32_t) {
          if (++calls[i] == 1) loop->rebuildSelector();
          test::readAll(fd);
        }));
  }
  for (const Pipe& pipe : pipes) pipe.put();

  for (int i = 0; i < 20; ++i) loop->runNow();

  EXPECT_EQ(calls, std::vector<int>(5, 1));
  EXPECT_EQ(loop->metrics().rebuilds, 5U);
}

// C110: one that cannot move ends with the kernel's word, the others go on
TEST_P(Rebuild, EndsAWatchWhoseDescriptorIsGone) {
  if (GetParam().io.type == &io::pollType) return;  // sees it at the next look, see WatchEnds
  Pipe low;  // leaves its numbers to the new selector, which would take that of `gone`
  Pipe gone;
  const Pipe stays;
  Error why;
  std::string read;
  const Ref<EventLoop> loop = handDriven();
  const Watch first = watchInLoop(
      *loop, gone.readEnd(), kReadable, [](int, std::uint32_t) { FAIL(); }, Trigger::level,
      [&](const Error& error) { why = error; });
  const Watch second = watchInLoop(*loop, stays.readEnd(), kReadable,
                                   [&](int fd, std::uint32_t) { read += test::readAll(fd); });
  gone.closeRead();
  low.closeRead();

  rebuild(*loop);
  stays.put("here");
  for (int i = 0; i < 3; ++i) loop->runNow();

  EXPECT_EQ(why.errnoValue(), EBADF);
  EXPECT_EQ(read, "here");
  EXPECT_EQ(loop->metrics().registrations, 1U);
}

// C112
TEST_P(Rebuild, MayBeAskedForByAnyThread) {
  EventLoopGroup group(options().loops(1));
  EventLoop& loop = *group.begin();

  loop.rebuildSelector();

  EXPECT_TRUE(test::eventually([&] { return loop.metrics().rebuilds == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Engines, Rebuild, testing::ValuesIn(test::selectorEngines()),
                         test::engineName);

// Made after what its callbacks refer to: its end calls them, too.
Ref<EventLoop> epollLoop() { return EventLoop::handDriven(LoopOptions().io(io::epoll())); }

// C109
TEST(RebuildOfEpoll, OpensANewSelectorAndClosesTheOldOne) {
  const Ref<EventLoop> loop = epollLoop();
  loop->runNow();
  const Census before = Census::take();
  const FaultScript script;

  rebuild(*loop);

  EXPECT_EQ(script.count("epoll_create1"), 1U);
  EXPECT_EQ(script.count("close"), 1U);
  EXPECT_EQ(Census::take().descriptors.size(), before.descriptors.size());
}

// C112
TEST(RebuildOfEpoll, HappensOnTheLoopsThread) {
  std::atomic<std::int64_t> maker{0};
  test::CallHooks hooks;
  hooks.epollCreate = [&](int flags) {
    maker = threadId();
    return realCalls().epoll_create1(flags);
  };
  EventLoopGroup group(1, io::epoll());
  EXPECT_EQ(maker, threadId());

  group.begin()->rebuildSelector();

  EXPECT_TRUE(test::eventually([&] { return group.metrics().rebuilds == 1; }));
  EXPECT_EQ(maker, group.begin()->threadId());
  group.shutdownGracefully().sync();
}

// C109: the old one stays if there can be no new one
TEST(RebuildOfEpoll, ThatFailsLeavesTheOldSelectorInUse) {
  const Pipe pipe;
  std::string read;
  const Ref<EventLoop> loop = epollLoop();
  const Watch watch = watchInLoop(*loop, pipe.readEnd(), kReadable,
                                  [&](int fd, std::uint32_t) { read += test::readAll(fd); });
  for (const char* call : {"epoll_create1", "epoll_ctl"}) {
    const LogCapture log;
    FaultScript script;
    script.fail(call, 1, EMFILE);

    rebuild(*loop);
    pipe.put(call);
    for (int i = 0; i < 2; ++i) loop->runNow();

    EXPECT_EQ(log.count(LogLevel::error), 1U);
    EXPECT_TRUE(log.contains("the old one stays"));
    EXPECT_TRUE(log.contains(call));
  }
  EXPECT_EQ(read, "epoll_create1epoll_ctl");
  EXPECT_EQ(loop->metrics().rebuilds, 0U);
}

// C110
TEST(RebuildOfEpoll, EndsOnlyTheWatchThatTheKernelRefuses) {
  const std::vector<Pipe> pipes(3);
  std::vector<std::string> read(3);
  std::vector<Error> ends(3);
  const Ref<EventLoop> loop = epollLoop();
  std::vector<Watch> watches;
  for (std::size_t i = 0; i < 3; ++i) {
    watches.push_back(watchInLoop(
        *loop, pipes[i].readEnd(), kReadable,
        [&, i](int fd, std::uint32_t) { read[i] += test::readAll(fd); }, Trigger::level,
        [&, i](const Error& why) { ends[i] = why; }));
  }
  {
    FaultScript script;
    script.fail("epoll_ctl", 3, ENOMEM);  // the wakeup descriptor, the first watch, the second
    rebuild(*loop);
  }

  for (const Pipe& pipe : pipes) pipe.put("x");
  for (int i = 0; i < 3; ++i) loop->runNow();

  EXPECT_EQ(read, (std::vector<std::string>{"x", "", "x"}));
  EXPECT_FALSE(ends[0]);
  EXPECT_EQ(ends[1].errnoValue(), ENOMEM);
  EXPECT_NE(ends[1].message().find("epoll_ctl"), std::string::npos);
  EXPECT_FALSE(ends[2]);
  EXPECT_EQ(loop->metrics().rebuilds, 1U);
  watches[1].modify(kReadable);  // has ended: nothing happens
  watches[1].unwatch();
  EXPECT_EQ(loop->runNow(), 2U);
  EXPECT_EQ(loop->metrics().failures, 0U);
}

// C110: who is told that a watch ended may begin others at once
TEST(RebuildOfEpoll, LetsTheEndOfAWatchBeginOthers) {
  const std::vector<Pipe> pipes(3);
  int calls = 0;
  const Ref<EventLoop> loop = epollLoop();
  std::vector<Watch> watches;
  const auto onReady = [&](int fd, std::uint32_t) {
    ++calls;
    test::readAll(fd);
  };
  watches.push_back(
      watchInLoop(*loop, pipes[0].readEnd(), kReadable, onReady, Trigger::level, [&](const Error&) {
        for (const Pipe& pipe : pipes) {
          watches.push_back(loop->watch(pipe.readEnd(), kReadable, onReady).get());
        }
      }));
  {
    FaultScript script;
    script.fail("epoll_ctl", 2, ENOMEM);
    rebuild(*loop);
  }
  ASSERT_EQ(watches.size(), 4U);

  for (const Pipe& pipe : pipes) pipe.put();
  for (int i = 0; i < 3; ++i) loop->runNow();

  EXPECT_EQ(calls, 3);
  EXPECT_EQ(loop->metrics().registrations, 3U);
}

}  // namespace
}  // namespace millrace
