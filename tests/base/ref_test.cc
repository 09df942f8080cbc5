// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/ref.h>

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace millrace {
namespace {

struct Thing final : RefCounted<Thing> {
  explicit Thing(int& deaths) : deathsSeen(&deaths) {}
  ~Thing() { ++*deathsSeen; }
  int* deathsSeen;
  int value = 5;
};

TEST(Ref, IsOneWord) { EXPECT_EQ(sizeof(Ref<Thing>), sizeof(void*)); }

TEST(Ref, MadeFromNothingIsNull) {
  const Ref<Thing> none;
  const Ref<Thing> null = nullptr;

  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), nullptr);
  EXPECT_EQ(none, null);
}

TEST(Ref, LastOwnerDeletes) {
  int deaths = 0;
  Ref<Thing> first = makeRef<Thing>(deaths);
  Ref<Thing> second = first;

  first = nullptr;
  EXPECT_EQ(deaths, 0);
  EXPECT_EQ(second->value, 5);
  EXPECT_EQ((*second).value, 5);

  second = nullptr;
  EXPECT_EQ(deaths, 1);
}

TEST(Ref, MovingGivesTheCountAway) {
  int deaths = 0;
  {
    Ref<Thing> first = makeRef<Thing>(deaths);
    Ref<Thing> second(std::move(first));
    Ref<Thing> third;
    third = std::move(second);

    EXPECT_FALSE(first);   // NOLINT: moved-from is null by contract
    EXPECT_FALSE(second);  // NOLINT
    EXPECT_TRUE(third);
    EXPECT_EQ(deaths, 0);
  }
  EXPECT_EQ(deaths, 1);
}

TEST(Ref, AssignmentToItselfKeepsTheObject) {
  int deaths = 0;
  Ref<Thing> ref = makeRef<Thing>(deaths);
  const Ref<Thing>& same = ref;

  ref = same;

  EXPECT_TRUE(ref);
  EXPECT_EQ(deaths, 0);
}

TEST(Ref, CanBeMadeFromThePlainPointerAgain) {
  int deaths = 0;
  Ref<Thing> first = makeRef<Thing>(deaths);
  Ref<Thing> second(first.get());

  first = nullptr;

  EXPECT_EQ(deaths, 0);
  EXPECT_EQ(second->value, 5);
}

TEST(Ref, ReleasedCountIsAdoptedWithoutAnother) {
  int deaths = 0;
  Ref<Thing> first = makeRef<Thing>(deaths);

  Thing* plain = first.release();
  EXPECT_FALSE(first);
  EXPECT_EQ(deaths, 0);
  { const Ref<Thing> second = Ref<Thing>::adopt(plain); }

  EXPECT_EQ(deaths, 1);
}

TEST(Ref, ComparesObjectsNotValues) {
  int deaths = 0;
  const Ref<Thing> a = makeRef<Thing>(deaths);
  const Ref<Thing> b = makeRef<Thing>(deaths);
  const Ref<Thing> c = a;  // NOLINT: the copy is the point

  EXPECT_EQ(a, c);
  EXPECT_NE(a, b);
}

TEST(Ref, DeletesOnceWhenManyThreadsLetGo) {
  int deaths = 0;
  {
    Ref<Thing> shared = makeRef<Thing>(deaths);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([mine = shared] {
        for (int j = 0; j < 1000; ++j) {
          const Ref<Thing> copy = mine;  // NOLINT: the copy is the point
          EXPECT_EQ(copy->value, 5);
        }
      });
    }
    shared = nullptr;
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(deaths, 1);
}

}  // namespace
}  // namespace millrace
