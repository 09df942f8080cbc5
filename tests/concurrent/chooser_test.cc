// SPDX-License-Identifier: Apache-2.0
#include "support/executors.h"

#include <millrace/concurrent/chooser.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::FakeEventExecutor;

// n executors and a chooser over them that answers with indexes.
class Children {
 public:
  Children(std::size_t n, const ChooserFactory& factory) : fakes_(n) {
    for (FakeEventExecutor& each : fakes_) pointers_.push_back(&each);
    chooser_ = factory(pointers_);
  }
  std::size_t next() {
    EventExecutor* chosen = &chooser_->next();
    return static_cast<std::size_t>(std::find(pointers_.begin(), pointers_.end(), chosen) -
                                    pointers_.begin());
  }
  std::vector<std::size_t> next(std::size_t count) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(next());
    return all;
  }
  FakeEventExecutor& operator[](std::size_t i) { return fakes_[i]; }

 private:
  std::vector<FakeEventExecutor> fakes_;
  std::vector<EventExecutor*> pointers_;
  std::unique_ptr<Chooser> chooser_;
};

constexpr std::size_t kSizes[] = {1, 2, 3, 4, 7, 8};

// C180
TEST(RoundRobin, TakesOneAfterTheOther) {
  for (const std::size_t n : kSizes) {
    Children children(n, roundRobin());
    for (std::size_t i = 0; i < 5 * n; ++i) ASSERT_EQ(children.next(), i % n) << "of " << n;
  }
}

// C181: beyond 2^31, 2^32 and 2^63 calls
TEST(RoundRobin, KeepsItsOrderAfterAnyNumberOfCalls) {
  for (const std::uint64_t start :
       {std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{1} << 63}) {
    for (const std::size_t n : kSizes) {
      Children children(n, roundRobinFromForTest(start - n));
      std::size_t expected = static_cast<std::size_t>((start - n) % n);
      for (std::size_t i = 0; i < 3 * n; ++i) {
        ASSERT_EQ(children.next(), expected) << "of " << n << " around " << start;
        expected = (expected + 1) % n;
      }
    }
  }
}

// C182
TEST(RoundRobin, SpreadsWithinOneFromManyThreads) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kEach = 5'000;
  for (const std::size_t n : kSizes) {
    Children children(n, roundRobin());
    std::vector<std::vector<std::size_t>> counts(kThreads, std::vector<std::size_t>(n, 0));
    std::vector<std::thread> threads;
    for (auto& mine : counts) {
      threads.emplace_back([&] {
        for (std::size_t i = 0; i < kEach; ++i) ++mine[children.next()];
      });
    }
    for (std::thread& each : threads) each.join();

    std::vector<std::size_t> sum(n, 0);
    for (const auto& mine : counts) {
      for (std::size_t i = 0; i < n; ++i) sum[i] += mine[i];
    }
    const auto [least, most] = std::minmax_element(sum.begin(), sum.end());
    EXPECT_LE(*most - *least, 1U) << "of " << n;
  }
}

// C183
TEST(LeastLoaded, TakesTheOneWithTheLeastToDo) {
  Children children(3, leastLoaded());
  children[0].setLoad(5);
  children[1].setLoad(2);
  children[2].setLoad(9);

  EXPECT_EQ(children.next(3), (std::vector<std::size_t>{1, 1, 1}));
  children[1].setLoad(6);
  EXPECT_EQ(children.next(), 0U);
  children[2].setLoad(0);
  EXPECT_EQ(children.next(), 2U);
}

// C183
TEST(LeastLoaded, GoesRoundAmongEquals) {
  for (const std::size_t n : kSizes) {
    Children children(n, leastLoaded());
    for (std::size_t i = 0; i < 3 * n; ++i) ASSERT_EQ(children.next(), i % n) << "of " << n;
  }
  Children children(4, leastLoaded());
  children[1].setLoad(7);
  for (const std::size_t i : {0U, 2U, 3U}) children[i].setLoad(4);
  EXPECT_EQ(children.next(6), (std::vector<std::size_t>{0, 2, 3, 0, 2, 3}));
}

// C183
TEST(Chooser, MayBeYourOwn) {
  class Last final : public Chooser {
   public:
    explicit Last(std::span<EventExecutor* const> all) : last_(*all.back()) {}
    EventExecutor& next() override { return last_; }

   private:
    EventExecutor& last_;
  };
  Children children(3, [](std::span<EventExecutor* const> all) -> std::unique_ptr<Chooser> {
    return std::make_unique<Last>(all);
  });

  EXPECT_EQ(children.next(2), (std::vector<std::size_t>{2, 2}));
}

TEST(Chooser, NeedsSomethingToChooseFrom) {
  const auto textOf = [](const ChooserFactory& factory) -> std::string {
    try {
      factory({});
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };

  EXPECT_EQ(textOf(roundRobin()),
            "roundRobin(): no executors to choose from; a group needs at least one");
  EXPECT_EQ(textOf(leastLoaded()),
            "leastLoaded(): no executors to choose from; a group needs at least one");
}

}  // namespace
}  // namespace millrace
