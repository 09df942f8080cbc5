// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/intrusive_list.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <list>
#include <memory>
#include <vector>

namespace millrace {
namespace {

using testing::ElementsAre;

struct Item : ListLink {
  explicit Item(int n) : number(n) {}
  int number;
};

std::vector<int> numbersIn(IntrusiveList<Item>& list) {
  std::vector<int> numbers;
  list.forEach([&numbers](Item& item) { numbers.push_back(item.number); });
  return numbers;
}

TEST(IntrusiveList, IsEmptyAtFirst) {
  IntrusiveList<Item> list;

  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.front(), nullptr);
  EXPECT_EQ(list.popFront(), nullptr);
}

TEST(IntrusiveList, KeepsTheOrderOfPushing) {
  IntrusiveList<Item> list;
  Item a(1);
  Item b(2);
  Item c(3);
  list.pushBack(a);
  list.pushBack(b);
  list.pushBack(c);

  EXPECT_THAT(numbersIn(list), ElementsAre(1, 2, 3));
  EXPECT_EQ(list.front(), &a);
  EXPECT_EQ(list.popFront(), &a);
  EXPECT_EQ(list.popFront(), &b);
  EXPECT_EQ(list.popFront(), &c);
  EXPECT_TRUE(list.empty());
}

TEST(IntrusiveList, LetsAnElementLeaveFromTheMiddle) {
  IntrusiveList<Item> list;
  Item a(1);
  Item b(2);
  Item c(3);
  for (Item* item : {&a, &b, &c}) list.pushBack(*item);

  b.unlink();

  EXPECT_FALSE(b.isLinked());
  EXPECT_TRUE(a.isLinked());
  EXPECT_THAT(numbersIn(list), ElementsAre(1, 3));
  a.unlink();
  c.unlink();
}

TEST(IntrusiveList, TakesBackAnElementThatLeft) {
  IntrusiveList<Item> list;
  Item a(1);
  Item b(2);
  list.pushBack(a);
  list.pushBack(b);

  a.unlink();
  list.pushBack(a);

  EXPECT_THAT(numbersIn(list), ElementsAre(2, 1));
  a.unlink();
  b.unlink();
}

TEST(IntrusiveList, LetsAnElementLeaveWhileItIsVisited) {
  IntrusiveList<Item> list;
  Item a(1);
  Item b(2);
  Item c(3);
  for (Item* item : {&a, &b, &c}) list.pushBack(*item);

  list.forEach([](Item& item) {
    if (item.number != 2) item.unlink();
  });

  EXPECT_THAT(numbersIn(list), ElementsAre(2));
  b.unlink();
}

// Behaves like a std::list under any sequence of pushes, pops and removals.
RC_GTEST_PROP(IntrusiveList, BehavesLikeAListOfPointers, (const std::vector<unsigned>& steps)) {
  std::vector<std::unique_ptr<Item>> items;
  for (int i = 0; i < 8; ++i) items.push_back(std::make_unique<Item>(i));
  IntrusiveList<Item> list;
  std::list<int> model;

  for (const unsigned step : steps) {
    Item& item = *items[step % 8];
    if (step / 8 % 3 == 0) {
      Item* popped = list.popFront();
      RC_ASSERT((popped == nullptr) == model.empty());
      if (popped != nullptr) {
        RC_ASSERT(popped->number == model.front());
        model.pop_front();
      }
    } else if (item.isLinked()) {
      item.unlink();
      model.remove(item.number);
    } else {
      list.pushBack(item);
      model.push_back(item.number);
    }
    RC_ASSERT(numbersIn(list) == std::vector<int>(model.begin(), model.end()));
  }
  while (list.popFront() != nullptr) {
  }
}

TEST(IntrusiveListDeathTest, MistakesEndTheProcess) {
  IntrusiveList<Item> list;
  Item a(1);

  EXPECT_DEATH(a.unlink(), "unlink\\(\\) of an element that is in no list");
  EXPECT_DEATH(
      {
        list.pushBack(a);
        list.pushBack(a);
      },
      "pushBack\\(\\) of an element that is in a list already");
  EXPECT_DEATH(
      {
        Item early(2);
        list.pushBack(early);
      },
      "an element died while it was in a list");
  EXPECT_DEATH(
      {
        auto* lasting = new Item(3);
        IntrusiveList<Item> inner;
        inner.pushBack(*lasting);
      },
      "a list died with elements in it");
}

}  // namespace
}  // namespace millrace
