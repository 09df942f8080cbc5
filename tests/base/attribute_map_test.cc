// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/attribute_map.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

namespace millrace {
namespace {

using testing::ElementsAre;

const AttributeKey<std::string> kUser{"user"};
const AttributeKey<std::string> kOtherUser{"user"};
const AttributeKey<int> kCount{"count"};

TEST(AttributeMap, HasNothingAtFirst) {
  AttributeMap map;

  EXPECT_FALSE(map.has(kUser));
  EXPECT_EQ(map.get(kUser), nullptr);
  EXPECT_EQ(map.remove(kUser), nullptr);
  EXPECT_EQ(map.size(), 0u);
}

TEST(AttributeMap, GivesBackWhatWasSet) {
  AttributeMap map;

  EXPECT_EQ(map.set(kUser, std::string("ada")), nullptr);
  map.set(kCount, 3);

  ASSERT_TRUE(map.has(kUser));
  EXPECT_EQ(*map.get(kUser), "ada");
  EXPECT_EQ(*map.get(kCount), 3);
  EXPECT_THAT(map.names(), ElementsAre("user", "count"));
}

TEST(AttributeMap, TellsKeysApartByIdentityNotByName) {
  AttributeMap map;
  map.set(kUser, std::string("ada"));

  EXPECT_FALSE(map.has(kOtherUser));
  EXPECT_EQ(kUser.name(), kOtherUser.name());
}

TEST(AttributeMap, ReturnsTheValueThatWasReplaced) {
  AttributeMap map;
  map.set(kCount, 1);

  const auto old = map.set(kCount, 2);

  ASSERT_NE(old, nullptr);
  EXPECT_EQ(*old, 1);
  EXPECT_EQ(*map.get(kCount), 2);
  EXPECT_EQ(map.size(), 1u);
}

TEST(AttributeMap, SharesItsValues) {
  AttributeMap map;
  auto value = std::make_shared<int>(1);
  map.set(kCount, value);

  *map.get(kCount) = 5;

  EXPECT_EQ(*value, 5);
}

TEST(AttributeMap, ValueOutlivesItsRemovalForThoseWhoHaveIt) {
  AttributeMap map;
  map.set(kUser, std::string("ada"));
  const auto mine = map.get(kUser);

  const auto removed = map.remove(kUser);

  EXPECT_EQ(removed, mine);
  EXPECT_EQ(*mine, "ada");
  EXPECT_FALSE(map.has(kUser));
}

TEST(AttributeMap, SettingNullRemoves) {
  AttributeMap map;
  map.set(kCount, 1);

  map.set(kCount, std::shared_ptr<int>());
  map.set(kCount, std::shared_ptr<int>());

  EXPECT_FALSE(map.has(kCount));
  EXPECT_EQ(map.size(), 0u);
}

TEST(AttributeMap, MakesWhatIsAbsentOnce) {
  AttributeMap map;
  int made = 0;
  const auto factory = [&made] { return ++made; };

  const auto first = map.getOrCreate(kCount, factory);
  const auto second = map.getOrCreate(kCount, factory);

  EXPECT_EQ(first, second);
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(made, 1);
}

TEST(AttributeMap, TakesAPointerFromTheFactory) {
  AttributeMap map;
  auto value = std::make_shared<int>(9);

  EXPECT_EQ(map.getOrCreate(kCount, [&value] { return value; }), value);
  EXPECT_EQ(map.getOrCreate(kUser, [] { return std::shared_ptr<std::string>(); }), nullptr);
  EXPECT_FALSE(map.has(kUser));
}

TEST(AttributeMap, IsUnchangedWhenTheFactoryThrows) {
  AttributeMap map;
  const auto factory = []() -> int { throw std::runtime_error("no value"); };

  EXPECT_THROW(map.getOrCreate(kCount, factory), std::runtime_error);
  EXPECT_FALSE(map.has(kCount));
}

TEST(AttributeMap, CanBeUsedByItsFactoryAndByDestructorsOfItsValues) {
  struct Nosy {
    AttributeMap* map;
    ~Nosy() { EXPECT_FALSE(map->has(kCount)); }
  };
  static const AttributeKey<Nosy> kNosy{"nosy"};
  AttributeMap map;
  map.set(kNosy, std::shared_ptr<Nosy>(new Nosy{&map}));

  map.getOrCreate(kUser, [&map] {
    map.remove(kNosy);
    return std::string("made");
  });

  EXPECT_THAT(map.names(), ElementsAre("user"));
}

TEST(AttributeMap, LetsGoOfEverythingWithoutTheLock) {
  struct Nosy {
    AttributeMap* map;
    ~Nosy() { EXPECT_EQ(map->size(), 0u); }
  };
  static const AttributeKey<Nosy> kNosy{"nosy"};
  AttributeMap map;
  map.set(kUser, std::string("somebody"));
  map.set(kNosy, std::shared_ptr<Nosy>(new Nosy{&map}));

  map.clear();

  EXPECT_EQ(map.size(), 0u);
  EXPECT_EQ(map.get(kUser), nullptr);
}

TEST(AttributeMap, GivesManyThreadsTheSameValue) {
  AttributeMap map;
  std::atomic<int> ready{0};
  std::vector<std::shared_ptr<int>> got(4);
  std::vector<std::thread> threads;

  for (std::size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&, i] {
      ready.fetch_add(1);
      while (ready.load() < 4) std::this_thread::yield();
      got[i] = map.getOrCreate(kCount, [i] { return static_cast<int>(i); });
      for (int round = 0; round < 500; ++round) {
        map.set(kUser, std::to_string(round));
        const auto user = map.get(kUser);
        EXPECT_TRUE(user == nullptr || !user->empty());
        map.remove(kUser);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const auto& value : got) EXPECT_EQ(value, got[0]);
  EXPECT_EQ(map.get(kCount), got[0]);
  EXPECT_FALSE(map.has(kUser));
}

}  // namespace
}  // namespace millrace
