// SPDX-License-Identifier: Apache-2.0
// What dump() says about a loop and a group.
#include "support/engines.h"

#include <millrace/base/manual_clock.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

// The dump that a loop gives of itself, driven by hand.
std::string dumpInLoop(EventLoop& loop) {
  std::string text;
  loop.execute([&] { text = loop.dump(); });
  loop.runNow();
  return text;
}

class Dump : public test::EngineTest {};

struct NamedTask {
  void operator()() const {}
};

// Rule 7 of the blueprint
TEST_P(Dump, NamesTimersAndWatches) {
  ManualClock clock;
  const test::Pipe pipe;
  const Ref<EventLoop> loop = handDriven(options().clock(clock).name("shown"));
  loop->schedule(milliseconds(1500), NamedTask());
  loop->scheduleAtFixedRate(milliseconds(20), milliseconds(10), NamedTask());
  loop->schedule(milliseconds(7), [] { FAIL(); }).cancel();
  const Watch read =
      test::watchInLoop(*loop, pipe.readEnd(), kReadable | kPeerClosed, [](int, std::uint32_t) {});
  const Watch write =
      test::watchInLoop(*loop, pipe.writeEnd(), kWritable, [](int, std::uint32_t) {});
  loop->execute([&] { write.modify(0); });
  loop->runNow();

  const std::string text = dumpInLoop(*loop);

  EXPECT_THAT(text, HasSubstr("mr-shown-"));
  EXPECT_THAT(text, HasSubstr(std::string("(") + GetParam().io.type->name + "): started"));
  EXPECT_THAT(text, HasSubstr("2 descriptors"));
  EXPECT_THAT(text, HasSubstr("timer in 1500.0 ms: "));
  EXPECT_THAT(text, HasSubstr("timer in 20.0 ms, repeating: "));
  EXPECT_THAT(text, HasSubstr("NamedTask"));
  EXPECT_THAT(text, Not(HasSubstr("timer in 7.0 ms")));
  EXPECT_THAT(text, HasSubstr("watch of descriptor " + std::to_string(pipe.readEnd()) +
                              ": readable|peer closed, level"));
  EXPECT_THAT(text,
              HasSubstr("watch of descriptor " + std::to_string(pipe.writeEnd()) + ": paused"));
}

// Rule 7 of the blueprint
TEST_P(Dump, CanBeAskedForByAnyThread) {
  const test::Pipe pipe;
  EventLoopGroup group(options().loops(1));
  EventLoop& loop = *group.begin();
  EXPECT_THAT(loop.dump(), HasSubstr("not started"));
  const Watch watch = test::watchInLoop(loop, pipe.readEnd(), kReadable, [](int, std::uint32_t) {});
  loop.schedule(std::chrono::hours(1), NamedTask());

  // Asks the loop for 100 ms; a loaded machine may need more than one attempt.
  EXPECT_TRUE(test::eventually([&] {
    const std::string text = loop.dump();
    return text.find("watch of descriptor") != std::string::npos &&
           text.find("NamedTask") != std::string::npos;
  }));

  group.shutdownGracefully().sync();
  EXPECT_THAT(loop.dump(), HasSubstr("terminated"));
}

INSTANTIATE_TEST_SUITE_P(Engines, Dump, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

struct BlockingTask {
  std::latch* held;
  std::latch* go;
  void operator()() const {
    held->count_down();
    go->wait();
  }
};

// C157: what holds a loop is named from outside
TEST(DumpOfAStuckLoop, NamesWhatItRuns) {
  std::latch held(1);
  std::latch go(1);
  EventLoopGroup group(LoopOptions().loops(1).io(io::parking()));
  EventLoop& loop = *group.begin();
  loop.execute(BlockingTask{&held, &go});
  held.wait();
  loop.execute([] {});

  const std::string text = loop.dump();
  go.count_down();

  EXPECT_THAT(text, HasSubstr("1 tasks pending"));
  EXPECT_THAT(text, HasSubstr("does not answer; its turn has lasted "));
  EXPECT_THAT(text, HasSubstr("BlockingTask"));
}

// Rule 7 of the blueprint
TEST(DumpOfAGroup, TellsWhatKeepsItFromEnding) {
  std::latch held(1);
  std::latch go(1);
  EventLoopGroup group(LoopOptions().loops(3).io(io::parking()).name("three"));
  (*++group.begin()).execute(BlockingTask{&held, &go});
  held.wait();
  const Future<ShutdownReport> end = group.shutdownGracefully();
  group.begin()->terminationFuture().sync();
  (*++(++group.begin())).terminationFuture().sync();

  const std::string text = group.dump();
  go.count_down();
  end.sync();

  EXPECT_THAT(text, HasSubstr("group three: 3 loops, 1 keep it from ending"));
  EXPECT_THAT(text, HasSubstr("mr-three-2 (parking): started"));
  EXPECT_THAT(text, HasSubstr("mr-three-3 (parking): terminated"));
  EXPECT_THAT(text, HasSubstr("BlockingTask"));
  EXPECT_THAT(group.dump(), HasSubstr("0 keep it from ending"));
}

}  // namespace
}  // namespace millrace
