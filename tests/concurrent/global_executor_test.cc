// SPDX-License-Identifier: Apache-2.0
#include "support/census.h"
#include "support/fault_script.h"
#include "support/log_capture.h"

#include <millrace/base/error.h>
#include <millrace/concurrent/global_executor.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <latch>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using test::Census;

// The last thread is joined before the program ends, whichever test used it.
class JoinGlobalExecutor final : public testing::Environment {
 public:
  void TearDown() override { awaitGlobalExecutor(); }
};
[[maybe_unused]] const auto* const kJoin =
    testing::AddGlobalTestEnvironment(new JoinGlobalExecutor);

bool hasGlobalThread() {
  const Census census = Census::take();
  for (const auto& [id, name] : census.threads) {
    if (name == "mr-global") return true;
  }
  return false;
}

// The kernel lists a thread for a moment after it was joined.
bool losesItsThread() {
  const Deadline limit = Deadline::after(std::chrono::seconds(10));
  while (hasGlobalThread()) {
    if (limit.isDue(Clock::real().nanos())) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(GlobalExecutor, RunsTasksInOrderOnItsOwnThread) {
  std::vector<int> order;
  std::array<char, 16> name{};
  std::thread::id ranOn;
  for (int i = 0; i < 100; ++i) globalExecutor().execute([&order, i] { order.push_back(i); });
  globalExecutor().execute([&] {
    ranOn = std::this_thread::get_id();
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  });

  awaitGlobalExecutor();

  ASSERT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_NE(ranOn, std::this_thread::get_id());
  EXPECT_STREQ(name.data(), "mr-global");
}

// behaviour 3.5, GlobalEventExecutorTest: starts on demand, stops, restarts
TEST(GlobalExecutor, HasAThreadOnlyWhileItHasWork) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(losesItsThread());
    std::latch working(1);
    std::latch goOn(1);

    globalExecutor().execute([&] {
      working.count_down();
      goOn.wait();
    });
    working.wait();
    EXPECT_TRUE(hasGlobalThread());
    goOn.count_down();
    awaitGlobalExecutor();
  }
  EXPECT_TRUE(losesItsThread());
}

TEST(GlobalExecutor, KnowsItsOwnThread) {
  bool inside = false;
  EXPECT_FALSE(globalExecutor().inEventLoop());

  EXPECT_TRUE(globalExecutor().tryExecute([&] { inside = globalExecutor().inEventLoop(); }));
  awaitGlobalExecutor();

  EXPECT_TRUE(inside);
}

// C066
TEST(GlobalExecutor, LogsWhatATaskThrowsAndGoesOn) {
  test::LogCapture log;
  bool ran = false;

  globalExecutor().execute([] { throw std::runtime_error("oops"); });
  globalExecutor().execute([] { throw 1; });  // NOLINT: whatever users throw
  globalExecutor().execute([&] { ran = true; });
  awaitGlobalExecutor();

  EXPECT_TRUE(ran);
  EXPECT_EQ(log.count(LogLevel::warn), 2U);
  EXPECT_TRUE(log.contains("a task of the global executor threw: oops"));
}

// C059
TEST(GlobalExecutor, RefusesAnEmptyTask) {
  EXPECT_THROW(globalExecutor().execute(nullptr), std::invalid_argument);
}

TEST(GlobalExecutor, WorksOnTheCallersThreadWhenItGetsNone) {
  test::LogCapture log;
  test::FaultScript script;
  script.failAll("pthread_create", EAGAIN);
  std::vector<int> order;
  bool here = false;

  globalExecutor().execute([&] {
    order.push_back(1);
    here = globalExecutor().inEventLoop();
    globalExecutor().execute([&] { order.push_back(2); });  // not nested
    order.push_back(0);
  });

  EXPECT_EQ(order, (std::vector<int>{1, 0, 2}));
  EXPECT_TRUE(here);
  EXPECT_FALSE(globalExecutor().inEventLoop());
  EXPECT_EQ(script.faults(), 1U);
  EXPECT_TRUE(log.contains("the global executor works on a caller's thread: "));
}

TEST(GlobalExecutor, HasThreadsAgainAfterItGotNone) {
  test::LogCapture log("off");
  std::atomic<int> ran{0};
  {
    test::FaultScript script;
    script.fail("pthread_create", 1, EAGAIN);
    globalExecutor().execute([&] { ++ran; });
    EXPECT_EQ(ran.load(), 1);
    globalExecutor().execute([&] { ++ran; });
    awaitGlobalExecutor();
    EXPECT_EQ(script.count("pthread_create"), 2U);
  }
  EXPECT_EQ(ran.load(), 2);
}

TEST(GlobalExecutor, MustNotBeAwaitedInATaskOfItsOwn) {
  std::string text;

  globalExecutor().execute([&] {
    try {
      awaitGlobalExecutor();
    } catch (const BlockingOperation& e) {
      text = e.what();
    }
  });
  awaitGlobalExecutor();

  EXPECT_EQ(text,
            "awaitGlobalExecutor() in a task of the global executor would wait for ever: it waits "
            "for that very task; call it from another thread");
}

struct PostsAtThreadEnd {
  std::atomic<int>* ran = nullptr;
  ~PostsAtThreadEnd() {
    if (ran == nullptr) return;
    globalExecutor().execute([count = ran] { ++*count; });
  }
};

// Whoever posts next meets a thread that is just ending: neither may wait for the other.
TEST(GlobalExecutor, TakesTasksFromTheThreadLocalsOfItsEndingThread) {
  constexpr int kRounds = 300;
  std::atomic<int> late{0};
  std::atomic<int> ran{0};

  for (int i = 0; i < kRounds; ++i) {
    globalExecutor().execute([&] {
      thread_local PostsAtThreadEnd last;
      last.ran = &late;
    });
    std::thread other([&] { globalExecutor().execute([&] { ++ran; }); });
    globalExecutor().execute([&] { ++ran; });
    other.join();
  }
  awaitGlobalExecutor();

  EXPECT_EQ(ran.load(), 2 * kRounds);
  EXPECT_GT(late.load(), 0);
}

TEST(GlobalExecutor, MayBeAwaitedBySeveralThreads) {
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> ran{0};
    globalExecutor().execute([&] { ++ran; });
    std::thread other([&] {
      awaitGlobalExecutor();
      EXPECT_EQ(ran.load(), 1);
    });
    awaitGlobalExecutor();
    EXPECT_EQ(ran.load(), 1);
    other.join();
  }
}

}  // namespace
}  // namespace millrace
