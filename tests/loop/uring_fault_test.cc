// SPDX-License-Identifier: Apache-2.0
// Loops on io_uring whose polls fail: nobody may wait for ever because of that.
#include "support/engines.h"
#include "support/ring_script.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <climits>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Pipe;
using test::RingScript;
using test::watchInLoop;

class UringFault : public testing::Test {
 protected:
  void SetUp() override {
    if (const IoSupport found = ioSupport(); !found.uring) GTEST_SKIP() << found.why;
  }

  RingScript script_;  // before the loops
};

// The first poll of a loop is the one that other threads wake it by.
TEST_F(UringFault, OfTheFirstPollDoesNotKeepALoopAsleep) {
  for (const int error : {ENOMEM, ECANCELED, EAGAIN}) {
    script_.fail(IORING_OP_POLL_ADD, error, 3);
    EventLoopGroup group(LoopOptions().loops(1).io(io::uring()));
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(group.begin()->submit([] {}).await(Deadline::after(20s))) << error << " " << i;
    }
  }
  EXPECT_GE(script_.faults(), 3U);
}

// It is busy then, and says so, but it serves and ends.
TEST_F(UringFault, OfEveryPollDoesNotKeepTasksWaiting) {
  script_.fail(IORING_OP_POLL_ADD, ENOMEM, UINT_MAX);
  EventLoopGroup group(LoopOptions().loops(1).io(io::uring()));

  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(group.begin()->submit([] {}).await(Deadline::after(20s))) << i;
  }
}

TEST_F(UringFault, OfAPollLosesNoEvent) {
  for (const Trigger trigger : {Trigger::edge, Trigger::level}) {
    Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::uring()));
    loop->runNow();
    const Pipe pipe;
    std::string got;
    script_.fail(IORING_OP_POLL_ADD, ENOMEM, 2);
    const Watch watch = watchInLoop(
        *loop, pipe.readEnd(), kReadable, [&](int fd, std::uint32_t) { got += test::readAll(fd); },
        trigger);

    pipe.put("hello");
    const Deadline until = Deadline::after(20s);
    while (got != "hello" && !until.isDue(Clock::real().nanos())) {
      loop->run(until);
    }

    EXPECT_EQ(got, "hello");
    watch.unwatch();
    loop->shutdownGracefully();
    while (!loop->isTerminated()) loop->run(Deadline::never());
  }
}

// F70: each is begun anew
TEST_F(UringFault, OfPollsThatDoNotRepeatLosesNoWakeup) {
  script_.onlyOnce(IORING_OP_POLL_ADD);
  EventLoopGroup group(LoopOptions().loops(1).io(io::uring()));

  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(group.begin()->submit([] {}).await(Deadline::after(20s))) << i;
  }
}

}  // namespace
}  // namespace millrace
