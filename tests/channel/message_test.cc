// SPDX-License-Identifier: Apache-2.0
#include <millrace/channel/message.h>

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {
namespace {

struct Local {
  int value;
};

TEST(Message, IsEmptyAtFirst) {
  Message message;
  EXPECT_FALSE(message);
  EXPECT_FALSE(message.is<int>());
  EXPECT_EQ(message.as<int>(), nullptr);
  EXPECT_EQ(message.type(), typeid(void));
}

TEST(Message, GivesBackWhatWasPutIn) {
  Message message = 42;
  EXPECT_TRUE(message.is<int>());
  EXPECT_FALSE(message.is<long>());
  EXPECT_EQ(message.type(), typeid(int));
  EXPECT_EQ(*message.as<int>(), 42);
  *message.as<int>() = 43;
  EXPECT_EQ(*std::as_const(message).as<int>(), 43);
  EXPECT_EQ(message.take<int>(), 43);
  EXPECT_FALSE(message);
}

TEST(Message, CarriesBuffersWithoutCopyingTheirBytes) {
  ByteBuf buf = ByteBuf::of("hello");
  const void* bytes = buf.data().data();
  Message message = std::move(buf);
  Message moved = std::move(message);
  EXPECT_FALSE(message);  // NOLINT: that is the question
  EXPECT_TRUE(moved.is<ByteBuf>());
  EXPECT_EQ(moved.as<ByteBuf>()->data().data(), bytes);
  EXPECT_EQ(moved.take<ByteBuf>().toString(), "hello");
}

TEST(Message, DestroysItsValueOnce) {
  auto token = std::make_shared<int>(1);
  {
    Message first = token;
    Message second = std::move(first);
    second = Message(std::make_pair(token, token));
    EXPECT_EQ(token.use_count(), 3);
    second.reset();
    EXPECT_EQ(token.use_count(), 1);
    second = Message(token);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(Message, KeepsLargeValuesOnTheHeap) {
  using Large = std::array<std::string, 10>;
  Large large;
  large[9] = "the last of them, and long enough for an allocation of its own";
  Message message = large;
  Message moved = std::move(message);
  EXPECT_EQ(moved.as<Large>()->at(9), large[9]);
  EXPECT_EQ(moved.take<Large>(), large);
}

TEST(Message, KnowsTypesOfOneFile) {
  Message message = Local{7};
  EXPECT_TRUE(message.is<Local>());
  EXPECT_EQ(message.take<Local>().value, 7);
}

TEST(Message, TakingAnotherTypeThrowsAndNamesBoth) {
  Message message = 1;
  try {
    static_cast<void>(message.take<long>());
    FAIL() << "it was taken";
  } catch (const std::logic_error& e) {
    EXPECT_EQ(std::string(e.what()),
              "Message::take(): asked for long, but it holds int; is a handler missing before this "
              "one?");
  }
  EXPECT_EQ(message.take<int>(), 1);
  EXPECT_THROW(static_cast<void>(message.take<int>()), std::logic_error);
}

}  // namespace
}  // namespace millrace
