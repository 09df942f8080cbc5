// SPDX-License-Identifier: Apache-2.0
// What a group is: an executor made of loops. Making one: event_loop_group_make_test.cc; its end:
// event_loop_group_end_test.cc.
#include "support/fault_script.h"
#include "support/loop_test.h"

#include <millrace/concurrent/chooser.h>
#include <millrace/concurrent/event_executor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using test::Held;

std::vector<EventLoop*> loopsOf(const EventLoopGroup& group) {
  std::vector<EventLoop*> loops;
  for (EventLoop& loop : group) loops.push_back(&loop);
  return loops;
}

/// Runs one task and waits for it, knowing nothing but a plain executor.
void useAsExecutor(Executor& executor) {
  Promise<void> promise(immediateExecutor());
  Future<void> future = promise.future();
  executor.execute([done = std::move(promise)] { done.setSuccess(); });
  future.get();
}

int useAsFutureExecutor(EventExecutor& executor) {
  return executor.submit([] { return 3; }).get();
}

void useAsTimerService(EventExecutor& executor) {
  executor.schedule(1us, [] {}).future().get();
}

// C001 C010: nothing here knows of channels, or even of loops
TEST(EventLoopGroup, ServesAsExecutorFutureExecutorAndTimerService) {
  EventLoopGroup group(2, io::parking());

  for (int i = 0; i < 4; ++i) {
    useAsExecutor(group);
    EXPECT_EQ(useAsFutureExecutor(group), 3);
    useAsTimerService(group);
  }
  useAsExecutor(group.next());
  EXPECT_EQ(useAsFutureExecutor(group.next()), 3);
  useAsTimerService(group.next());
}

// C002
TEST(EventLoopGroup, ALoopIsAGroupOfItself) {
  EventLoopGroup group(2);
  EventLoop& loop = group.next();
  EventExecutor& executor = loop;

  EXPECT_EQ(&loop.next(), &loop);
  EXPECT_EQ(&executor.next(), &loop);
}

// C003
TEST(EventLoopGroup, IsTheParentOfItsLoops) {
  Ref<EventLoop> kept;
  {
    EventLoopGroup group(2);
    for (const EventLoop& loop : group) EXPECT_EQ(loop.parent(), &group);
    kept = Ref<EventLoop>(&group.next());
  }
  EXPECT_EQ(kept->parent(), nullptr);  // gone
  EXPECT_EQ(EventLoop::handDriven()->parent(), nullptr);
}

// C005: the loop for a channel is the one that next() would have given
TEST(EventLoopGroup, AcquiresLoopsInTheOrderOfNext) {
  EventLoopGroup group(3);
  const std::vector<EventLoop*> loops = loopsOf(group);

  EXPECT_EQ(group.acquireLoop().get(), loops[0]);
  EXPECT_EQ(&group.next(), loops[1]);
  EXPECT_EQ(group.acquireLoop().get(), loops[2]);
  EXPECT_EQ(group.acquireLoop().get(), loops[0]);
}

// C006
TEST(EventLoopGroup, GivesItsLoopsInTheOrderTheyWereMadeAndReadOnly) {
  EventLoopGroup group(LoopOptions().loops(5).name("iter"));
  std::vector<std::string> names;
  for (const EventLoop& loop : group) names.push_back(loop.name());

  EXPECT_EQ(names, (std::vector<std::string>{"mr-iter-1", "mr-iter-2", "mr-iter-3", "mr-iter-4",
                                             "mr-iter-5"}));
  EXPECT_EQ(group.size(), 5U);
  EXPECT_EQ(loopsOf(group), loopsOf(group));
  auto it = group.begin();
  EXPECT_EQ(&*it++, &*group.begin());
  EXPECT_EQ(it->name(), "mr-iter-2");
  EXPECT_EQ(std::distance(group.begin(), group.end()), 5);
  // Whatever an iterator gives, it cannot be replaced by another loop.
  static_assert(std::forward_iterator<EventLoopGroup::Iterator>);
  static_assert(!std::is_assignable_v<std::iter_reference_t<EventLoopGroup::Iterator>, EventLoop&>);
  static_assert(!std::is_copy_constructible_v<EventLoop>);
  static_assert(!std::is_copy_constructible_v<EventLoopGroup>);
}

// C007
TEST(EventLoopGroup, EveryCallOnItPicksTheNextLoop) {
  EventLoopGroup group(5);
  const std::vector<EventLoop*> loops = loopsOf(group);
  std::vector<EventLoop*> ran(5, nullptr);
  Promise<void> executed(immediateExecutor());
  Promise<void> lazily(immediateExecutor());
  Promise<void> tried(immediateExecutor());
  const std::vector<Future<void>> done{executed.future(), lazily.future(), tried.future()};

  group.execute([&, promise = std::move(executed)] {
    ran[0] = EventLoop::current();
    promise.setSuccess();
  });
  group.lazyExecute([&, promise = std::move(lazily)] {
    ran[1] = EventLoop::current();
    promise.setSuccess();
  });
  EXPECT_TRUE(group.tryExecute([&, promise = std::move(tried)] {
    ran[2] = EventLoop::current();
    promise.setSuccess();
  }));
  group.submit([&] { ran[3] = EventLoop::current(); }).get();
  group.schedule(0s, [&] { ran[4] = EventLoop::current(); }).future().get();
  for (const Future<void>& future : done) future.get();

  EXPECT_EQ(ran, loops);
}

// C007
TEST(EventLoopGroup, AsManySubmitsAsLoopsTouchEachOnce) {
  for (const int size : {1, 3, 4, 7}) {
    EventLoopGroup group(size);
    std::map<EventLoop*, int> hits;

    for (int i = 0; i < 2 * size; ++i) {
      ++hits[group.submit([] { return EventLoop::current(); }).get()];
    }

    EXPECT_EQ(hits.size(), static_cast<std::size_t>(size));
    for (const auto& [loop, count] : hits) EXPECT_EQ(count, 2) << loop->name();
  }
}

class CountingStrategy final : public SelectStrategy {
 public:
  explicit CountingStrategy(std::atomic<int>& asked) : asked_(asked) {}
  int decide(const std::function<int()>& selectNow, bool hasTasks) override {
    ++asked_;
    return hasTasks ? selectNow() : kSelect;
  }

 private:
  std::atomic<int>& asked_;
};

// C009
TEST(EventLoopGroup, ItsSettingsReachEachLoopAndEachHasAStrategyOfItsOwn) {
  ManualClock clock;
  std::vector<std::unique_ptr<std::atomic<int>>> asked;
  int rejected = 0;
  EventLoopGroup group(LoopOptions()
                           .loops(3)
                           .ioRatio(80)
                           .clock(clock)
                           .io(io::poll())
                           .maxPendingTasks(20)
                           .rejection([&](Task&&, EventExecutor&) { ++rejected; })
                           .strategy([&] {
                             asked.push_back(std::make_unique<std::atomic<int>>(0));
                             return std::make_unique<CountingStrategy>(*asked.back());
                           }));

  ASSERT_EQ(asked.size(), 3U);  // made with the loops
  std::size_t index = 0;
  for (EventLoop& loop : group) {
    EXPECT_EQ(loop.ioRatio(), 80);
    EXPECT_EQ(&loop.clock(), &clock);
    EXPECT_EQ(&loop.ioType(), &io::pollType);
    loop.submit([] {}).get();
    EXPECT_GE(asked[index]->load(), 1);
    for (std::size_t other = index + 1; other < 3; ++other) EXPECT_EQ(asked[other]->load(), 0);
    Held held(loop);
    for (int i = 0; i < 21; ++i) loop.execute([] {});
    ++index;
  }
  EXPECT_EQ(rejected, 3);
}

// C009
TEST(EventLoopGroup, ALoopsSettingsAreItsOwnFromThenOn) {
  EventLoopGroup group(2);

  group.begin()->setIoRatio(90);

  EXPECT_EQ(group.begin()->ioRatio(), 90);
  EXPECT_EQ(std::next(group.begin())->ioRatio(), 50);
}

class LastOnly final : public Chooser {
 public:
  explicit LastOnly(EventExecutor& last) : last_(last) {}
  EventExecutor& next() override { return last_; }

 private:
  EventExecutor& last_;
};

// C027
TEST(EventLoopGroup, AChooserOfOnesOwnSeesAllLoops) {
  std::vector<EventExecutor*> seen;
  int calls = 0;
  EventLoopGroup group(
      LoopOptions().loops(4).chooser([&](std::span<EventExecutor* const> children) {
        ++calls;
        seen.assign(children.begin(), children.end());
        return std::make_unique<LastOnly>(*children.back());
      }));
  std::vector<EventExecutor*> loops;
  for (EventLoop& loop : group) loops.push_back(&loop);

  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen, loops);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(&group.next(), loops.back());
}

TEST(EventLoopGroup, SumsUpWhatItsLoopsDo) {
  EventLoopGroup group(LoopOptions().loops(2).name("sum"));
  for (int i = 0; i < 10; ++i) group.submit([] {}).get();
  Held one(group.next());
  Held two(group.next());
  for (int i = 0; i < 6; ++i) group.execute([] {});

  EXPECT_EQ(group.load(), 6U);
  EXPECT_EQ(group.metrics().pendingTasks, 6U);
  EXPECT_EQ(group.metrics().tasks, 12U);
  const std::string text = group.dump();
  EXPECT_THAT(text, testing::HasSubstr("group sum: 2 loops, 2 keep it from ending"));
  EXPECT_THAT(text, testing::HasSubstr("mr-sum-1 ("));
  EXPECT_THAT(text, testing::HasSubstr("mr-sum-2 ("));
}

}  // namespace
}  // namespace millrace
