// SPDX-License-Identifier: Apache-2.0
#include <millrace/buffer/buffer_pool.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

TEST(BufferPool, GivesTheLastOneBackFirst) {
  BufferPool pool;
  ByteBuf first = pool.allocate(1000);
  const void* memory = first.writable().data();
  first = ByteBuf();
  ByteBuf second = pool.allocate(900);  // of the same size class
  EXPECT_EQ(second.writable().data(), memory);
  EXPECT_EQ(pool.figures().allocations, 2U);
  EXPECT_EQ(pool.figures().fromHeap, 1U);
  EXPECT_EQ(pool.figures().live, 1);
}

TEST(BufferPool, RoundsUpByAFifthAtMost) {
  for (std::size_t wanted = 0; wanted <= BufferPool::kMaxPooled; wanted += 1 + wanted / 50) {
    const std::size_t given = BufferPool::roundUp(wanted);
    ASSERT_GE(given, wanted);
    ASSERT_LE(given, std::max<std::size_t>(64, wanted + wanted / 4)) << wanted;
    ASSERT_EQ(BufferPool::roundUp(given), given);
  }
  EXPECT_EQ(BufferPool::roundUp(BufferPool::kMaxPooled), BufferPool::kMaxPooled);
  EXPECT_EQ(BufferPool::roundUp(BufferPool::kMaxPooled + 1), BufferPool::kMaxPooled + 1);
}

TEST(BufferPool, BuffersThatAreTooLargeComeFromTheHeap) {
  const std::int64_t before = internal::liveHeapBlocks();
  BufferPool pool;
  ByteBuf large = pool.allocate(BufferPool::kMaxPooled + 1);
  EXPECT_EQ(internal::liveHeapBlocks(), before + 1);
  EXPECT_EQ(pool.figures().live, 0);
}

// F65: what a burst needed goes back
TEST(BufferPool, KeepsNoMoreThanItMay) {
  BufferPool pool(10'000);
  std::vector<ByteBuf> all;
  for (int i = 0; i < 20; ++i) all.push_back(pool.allocate(1024));
  all.clear();
  EXPECT_LE(pool.figures().keptBytes, 10'000);
  EXPECT_GE(pool.figures().keptBytes, 9'000);
  pool.trim();
  EXPECT_EQ(pool.figures().keptBytes, 0);
  EXPECT_EQ(pool.figures().live, 0);
}

TEST(BufferPool, BuffersComeHomeFromOtherThreads) {
  BufferPool pool;
  const void* memory = nullptr;
  {
    ByteBuf buf = pool.allocate(1000);
    memory = buf.writable().data();
    std::thread([mine = std::move(buf)]() mutable { mine = ByteBuf(); }).join();
  }
  EXPECT_EQ(pool.figures().live, 0);
  EXPECT_EQ(pool.figures().returned, 1U);
  EXPECT_EQ(pool.allocate(1000).writable().data(), memory);
}

TEST(BufferPool, WhatOtherThreadsBringIsBoundedToo) {
  BufferPool pool(10'000);
  std::vector<ByteBuf> all;
  for (int i = 0; i < 20; ++i) all.push_back(pool.allocate(1024));
  std::thread([mine = std::move(all)]() mutable { mine.clear(); }).join();
  EXPECT_EQ(pool.figures().live, 0);
  EXPECT_LE(pool.figures().keptBytes, 10'000);
}

TEST(BufferPool, BuffersOutliveIt) {
  auto pool = std::make_unique<BufferPool>();
  ByteBuf here = pool->allocate(100);
  ByteBuf there = pool->allocate(100);
  here.writeBytes("still there");
  pool.reset();
  std::thread([mine = std::move(there)]() mutable { mine = ByteBuf(); }).join();
  EXPECT_EQ(here.toString(), "still there");
}

TEST(BufferPool, ManyThreadsDropWhileItGoesAway) {
  for (int round = 0; round < 200; ++round) {
    auto pool = std::make_unique<BufferPool>();
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      std::vector<ByteBuf> mine;
      for (int i = 0; i < 20; ++i) mine.push_back(pool->allocate(100));
      threads.emplace_back([all = std::move(mine)]() mutable { all.clear(); });
    }
    for (int i = 0; i < round; ++i) static_cast<void>(pool->allocate(100));
    pool.reset();
    for (std::thread& each : threads) each.join();
  }
}

TEST(BufferPoolDeathTest, IsForOneThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        BufferPool pool;
        std::thread([&pool] { static_cast<void>(pool.allocate(1)); }).join();
      },
      "another thread");
}

}  // namespace
}  // namespace millrace
