// SPDX-License-Identifier: Apache-2.0
// One batch of events: how many it has, in what order of events they may change each other, and
// that none reaches anybody whom it was not meant for.
#include "support/call_hooks.h"
#include "support/engines.h"

#include <millrace/sys/calls.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

namespace millrace {
namespace {

using test::Pipe;
using test::watchInLoop;

// Pipes that are all watched by one loop. A callback may change what it likes.
struct Crowd {
  Crowd(EventLoop& loop, std::size_t size, std::function<void(std::size_t)> onReady)
      : pipes(size), calls(size, 0) {
    for (std::size_t i = 0; i < size; ++i) {
      watches.push_back(
          watchInLoop(loop, pipes[i].readEnd(), kReadable, [this, i, onReady](int, std::uint32_t) {
            ++calls[i];
            onReady(i);
          }));
    }
  }
  void makeReady() const {
    for (const Pipe& pipe : pipes) pipe.put();
  }
  int total() const {
    int sum = 0;
    for (const int each : calls) sum += each;
    return sum;
  }

  std::vector<Pipe> pipes;
  std::vector<int> calls;
  std::vector<Watch> watches;
};

// C120
TEST(EventArray, HoldsAtFirst1024AndGrows) {
  EXPECT_EQ(io::EventArray{}.initial, 1024);
  EXPECT_TRUE(io::EventArray{}.grows);
}

// C120
TEST(EventArray, IsDoubledAfterItWasFull) {
  const Ref<EventLoop> loop =
      EventLoop::handDriven(LoopOptions().io(io::epoll({.initial = 4, .grows = true})));
  const Crowd crowd(*loop, 40, [](std::size_t) {});
  crowd.makeReady();
  std::vector<std::size_t> batches;

  for (int i = 0; i < 6; ++i) batches.push_back(loop->runNow());

  EXPECT_EQ(batches, (std::vector<std::size_t>{4, 8, 16, 32, 40, 40}));
}

// C120 C121
TEST(EventArray, KeepsItsSizeIfItIsFixedAndNobodyStarves) {
  const Ref<EventLoop> loop =
      EventLoop::handDriven(LoopOptions().io(io::epoll({.initial = 4, .grows = false})));
  const Crowd crowd(*loop, 40, [](std::size_t) {});
  crowd.makeReady();

  for (int i = 0; i < 20; ++i) EXPECT_EQ(loop->runNow(), 4U);

  EXPECT_EQ(crowd.calls, std::vector<int>(40, 2));
}

// C120
TEST(EventArray, OfNothingIsRefused) {
  EXPECT_THROW(static_cast<void>(io::epoll({.initial = 0})), std::invalid_argument);
}

class Dispatch : public test::EngineTest {
 protected:
  static void turns(EventLoop& loop, int count = 5) {
    for (int i = 0; i < count; ++i) loop.runNow();
  }
};

// C120a
TEST_P(Dispatch, DeliversNothingOfAnEarlierRound) {
  const Ref<EventLoop> loop = handDriven();
  Crowd crowd(*loop, 3, [&](std::size_t i) { crowd.pipes[i].take(); });
  crowd.makeReady();

  turns(*loop, 10);

  EXPECT_EQ(crowd.calls, std::vector<int>(3, 1));
}

// C122
TEST_P(Dispatch, KeepsNothingOfAWatchThatHasEnded) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  auto token = std::make_shared<int>(0);
  Watch watch =
      watchInLoop(*loop, pipe.readEnd(), kReadable, [token](int, std::uint32_t) { ++*token; });
  pipe.put();
  loop->runNow();
  EXPECT_EQ(*token, 1);
  long left = 0;

  loop->execute([&] {
    watch.unwatch();
    left = token.use_count();
  });
  loop->runNow();

  EXPECT_EQ(left, 1);
}

// C122 C127: what a callback owns lives until it returns, and not longer
TEST_P(Dispatch, KeepsACallbackThatEndsItselfUntilItReturns) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe pipe;
  auto token = std::make_shared<int>(0);
  Watch watch;
  watch = watchInLoop(*loop, pipe.readEnd(), kReadable, [token, &watch](int, std::uint32_t) {
    watch.unwatch();
    ++*token;
  });
  pipe.put();

  turns(*loop);

  EXPECT_EQ(*token, 1);
  EXPECT_EQ(token.use_count(), 1);
}

// C127
TEST_P(Dispatch, EndsAWatchWithinItsOwnCallback) {
  const Ref<EventLoop> loop = handDriven();
  Crowd crowd(*loop, 4, [&](std::size_t i) {
    crowd.watches[i].unwatch();
    crowd.pipes[i].closeRead();
  });
  crowd.makeReady();

  turns(*loop, 10);

  EXPECT_EQ(crowd.calls, std::vector<int>(4, 1));
  EXPECT_EQ(loop->metrics().registrations, 0U);
}

// C127: whoever is called first ends all the others; their events were found already
TEST_P(Dispatch, DeliversNothingToAWatchThatAnothersCallbackEnded) {
  const Ref<EventLoop> loop = handDriven();
  Crowd crowd(*loop, 10, [&](std::size_t me) {
    for (std::size_t i = 0; i < 10; ++i) {
      if (i != me) crowd.watches[i].unwatch();
    }
  });
  crowd.makeReady();

  turns(*loop, 10);

  EXPECT_EQ(std::count(crowd.calls.begin(), crowd.calls.end(), 0), 9);
  EXPECT_EQ(crowd.total(), 10);
}

// C128: more than 256 at once, closed too
TEST_P(Dispatch, DeliversNothingToHundredsThatWereClosedInOneDispatch) {
  constexpr std::size_t kCount = 400;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 1000) {
    limit.rlim_cur = std::min<rlim_t>(1000, limit.rlim_max);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  const Ref<EventLoop> loop = handDriven();
  Crowd crowd(*loop, kCount, [&](std::size_t me) {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (i == me) continue;
      crowd.watches[i].unwatch();
      crowd.pipes[i].closeRead();
    }
    crowd.pipes[me].take();
  });
  crowd.makeReady();

  turns(*loop, 10);

  EXPECT_EQ(crowd.total(), 1);
  EXPECT_EQ(loop->metrics().registrations, 1U);
}

// C120a C128: the number of a closed descriptor, and the place in our table, belong to somebody
// else by the time the old event is looked at
TEST_P(Dispatch, DeliversNoOldEventToTheNextOwnerOfADescriptorNumber) {
  const Ref<EventLoop> loop = handDriven();
  const Pipe idle;
  int wrong = 0;
  Watch newcomer;
  Crowd crowd(*loop, 2, [&](std::size_t me) {
    if (newcomer.valid()) return;
    const std::size_t other = 1 - me;
    const int number = crowd.pipes[other].readEnd();
    crowd.watches[other].unwatch();
    ASSERT_EQ(::dup2(idle.readEnd(), number), number);
    newcomer = loop->watch(number, kReadable, [&](int, std::uint32_t) { ++wrong; }).get();
  });
  crowd.makeReady();

  turns(*loop);
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(newcomer.valid());
  idle.put();
  turns(*loop);

  EXPECT_GT(wrong, 0);  // what is its own it gets
}

// C127: a callback may begin watches, and change others, while events wait
TEST_P(Dispatch, LetsACallbackBeginWatches) {
  const Ref<EventLoop> loop = handDriven();
  std::vector<Pipe> more(50);
  std::vector<Watch> watches;
  int calls = 0;
  Crowd crowd(*loop, 3, [&](std::size_t i) {
    crowd.pipes[i].take();
    if (!watches.empty()) return;
    for (const Pipe& pipe : more) {
      watches.push_back(loop->watch(pipe.readEnd(), kReadable,
                                    [&](int fd, std::uint32_t) {
                                      test::readAll(fd);
                                      ++calls;
                                    })
                            .get());
      pipe.put();
    }
  });
  crowd.makeReady();

  turns(*loop, 60);

  EXPECT_EQ(crowd.calls, std::vector<int>(3, 1));
  EXPECT_EQ(calls, 50);
}

INSTANTIATE_TEST_SUITE_P(Engines, Dispatch, testing::ValuesIn(test::readinessEngines()),
                         test::engineName);

// C125
TEST(EmptyEvent, EndsInOneReadNotInASpin) {
  test::CallHooks hooks;
  hooks.epollPwait2 = [](int ep, epoll_event* out, int capacity, const timespec* timeout) {
    const int found = realCalls().epoll_pwait2(ep, out, capacity, timeout);
    for (int i = 0; i < found; ++i) out[i].events = 0;
    return found;
  };
  const Ref<EventLoop> loop = EventLoop::handDriven(LoopOptions().io(io::epoll()));
  const Pipe pipe;
  std::vector<std::uint32_t> seen;
  const Watch watch =
      watchInLoop(*loop, pipe.readEnd(), kReadable, [&](int fd, std::uint32_t ready) {
        seen.push_back(ready);
        test::readAll(fd);
      });
  pipe.put();

  for (int i = 0; i < 5; ++i) loop->runNow();

  EXPECT_EQ(seen, std::vector<std::uint32_t>{kReadable});
}

}  // namespace
}  // namespace millrace
