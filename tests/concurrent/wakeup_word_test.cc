// SPDX-License-Identifier: Apache-2.0
#include <millrace/concurrent/wakeup_word.h>

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <stdexcept>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(WakeupWord, AsksNobodyToWakeALoopThatIsAwake) {
  WakeupWord word;

  EXPECT_FALSE(word.mustWake());
  EXPECT_FALSE(word.mustWakeFor(0));
  EXPECT_EQ(word.paid(), 0U);
}

// I4
TEST(WakeupWord, AsksTheFirstOnlyToWakeALoopThatSleeps) {
  WakeupWord word;
  Inbox inbox;

  word.sleep(inbox, WakeupWord::kNever, [&](bool pending) {
    EXPECT_FALSE(pending);
    EXPECT_TRUE(word.mustWake());
    EXPECT_FALSE(word.mustWake());
    EXPECT_FALSE(word.mustWakeFor(1));
  });

  EXPECT_EQ(word.paid(), 1U);
  EXPECT_FALSE(word.mustWake());
}

// C168
TEST(WakeupWord, NeedsNobodyForATimerThatIsNotEarlierThanTheNext) {
  WakeupWord word;
  Inbox inbox;

  word.sleep(inbox, 1000, [&](bool) {
    EXPECT_FALSE(word.mustWakeFor(1001));
    EXPECT_FALSE(word.mustWakeFor(1000));
    EXPECT_TRUE(word.mustWakeFor(999));
  });
  word.sleep(inbox, WakeupWord::kNever, [&](bool) {
    EXPECT_FALSE(word.mustWakeFor(WakeupWord::kNever));
    EXPECT_TRUE(word.mustWakeFor(WakeupWord::kNever - 1));
  });
  word.sleep(inbox, 5, [](bool) {});

  EXPECT_EQ(word.paid(), 2U);  // nobody paid for the last one
}

TEST(WakeupWord, TellsTheWaitThatTheInboxHasSomething) {
  WakeupWord word;
  Inbox inbox;
  TaskNode node;
  inbox.push(&node, TaskNode::user);

  bool seen = false;
  word.sleep(inbox, WakeupWord::kNever, [&](bool pending) { seen = pending; });

  EXPECT_TRUE(seen);
  inbox.take();
}

TEST(WakeupWord, IsAwakeAfterAWaitThatThrows) {
  WakeupWord word;
  Inbox inbox;

  EXPECT_THROW(
      word.sleep(inbox, WakeupWord::kNever, [](bool) { throw std::runtime_error("wait"); }),
      std::runtime_error);

  EXPECT_FALSE(word.mustWake());
}

// I3 I4: the loop waits without limit, so one lost wakeup hangs the test.
TEST(WakeupWord, LosesNoWakeupAndPaysOncePerSleep) {
  constexpr int kProducers = 3;
  constexpr int kEach = 20'000;
  WakeupWord word;
  Inbox inbox;
  std::counting_semaphore<> bell(0);
  std::atomic<std::uint64_t> rung{0};
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        inbox.push(new TaskNode, TaskNode::user);
        if (!word.mustWake()) continue;
        rung.fetch_add(1);
        bell.release();
      }
    });
  }

  std::uint64_t sleeps = 0;
  std::uint64_t heard = 0;
  for (int taken = 0; taken < kProducers * kEach;) {
    TaskChain chain = inbox.take().chain;
    for (; TaskNode* node = chain.popFront(); ++taken) delete node;
    if (taken == kProducers * kEach) break;
    ++sleeps;
    word.sleep(inbox, WakeupWord::kNever, [&](bool pending) {
      if (pending) return;
      bell.acquire();
      ++heard;
    });
  }
  for (std::thread& each : producers) each.join();

  EXPECT_EQ(rung.load(), word.paid());
  EXPECT_LE(word.paid(), sleeps);
  EXPECT_LE(heard, word.paid());
}

}  // namespace
}  // namespace millrace
