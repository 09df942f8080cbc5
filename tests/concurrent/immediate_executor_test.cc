// SPDX-License-Identifier: Apache-2.0
#include "support/log_capture.h"

#include <millrace/concurrent/executor.h>

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(ImmediateExecutor, RunsATaskOnTheCallersThreadBeforeItReturns) {
  std::thread::id ranOn;

  immediateExecutor().execute([&] { ranOn = std::this_thread::get_id(); });

  EXPECT_EQ(ranOn, std::this_thread::get_id());
}

TEST(ImmediateExecutor, TakesEveryTask) {
  bool ran = false;

  EXPECT_TRUE(immediateExecutor().tryExecute([&] { ran = true; }));

  EXPECT_TRUE(ran);
}

TEST(ImmediateExecutor, RunsANestedTaskAfterTheOneThatGaveIt) {
  std::vector<int> order;

  immediateExecutor().execute([&] {
    order.push_back(1);
    immediateExecutor().execute([&] {
      order.push_back(3);
      immediateExecutor().execute([&] { order.push_back(5); });
    });
    immediateExecutor().execute([&] { order.push_back(4); });
    order.push_back(2);
  });

  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4, 5}));
}

struct Chain {
  int left = 0;
  void step() {
    if (left-- > 0) {
      immediateExecutor().execute([this] { step(); });
    }
  }
};

TEST(ImmediateExecutor, DoesNotGrowTheStackWithNestedTasks) {
  Chain chain{1'000'000};

  immediateExecutor().execute([&] { chain.step(); });

  EXPECT_EQ(chain.left, -1);
}

TEST(ImmediateExecutor, KnowsThatItRunsATask) {
  bool inside = false;
  bool elsewhere = true;
  EXPECT_FALSE(immediateExecutor().inEventLoop());

  immediateExecutor().execute([&] {
    inside = immediateExecutor().inEventLoop();
    std::thread([&] { elsewhere = immediateExecutor().inEventLoop(); }).join();
  });

  EXPECT_TRUE(inside);
  EXPECT_FALSE(elsewhere);
  EXPECT_FALSE(immediateExecutor().inEventLoop());
}

// C066
TEST(ImmediateExecutor, LogsWhatATaskThrowsAndGoesOn) {
  test::LogCapture log;
  bool ran = false;

  immediateExecutor().execute([&] {
    immediateExecutor().execute([&] { ran = true; });
    throw std::runtime_error("oops");
  });
  immediateExecutor().execute([] { throw 1; });  // NOLINT: whatever users throw

  EXPECT_TRUE(ran);
  EXPECT_FALSE(immediateExecutor().inEventLoop());
  EXPECT_TRUE(log.contains("a task of the immediate executor threw: oops"));
  EXPECT_EQ(log.count(LogLevel::warn), 2U);
}

// C059
TEST(ImmediateExecutor, RefusesAnEmptyTask) {
  EXPECT_THROW(immediateExecutor().execute(nullptr), std::invalid_argument);
  EXPECT_THROW(immediateExecutor().tryExecute(nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace millrace
