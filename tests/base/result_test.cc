// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/result.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace millrace {
namespace {

Error someError() { return Error(Errc::closed, "read"); }

TEST(Result, HoldsAValue) {
  Result<std::string> result = std::string("text");

  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(static_cast<bool>(result));
  EXPECT_EQ(result.value(), "text");
  EXPECT_EQ(*result, "text");
  EXPECT_EQ(result->size(), 4u);
  *result += "s";
  EXPECT_EQ(result.value(), "texts");
}

TEST(Result, HoldsAnError) {
  const Result<std::string> result = someError();

  ASSERT_FALSE(result.ok());
  EXPECT_FALSE(static_cast<bool>(result));
  EXPECT_EQ(result.error().message(), "read: closed");
}

TEST(Result, CanBeReadWhenConstant) {
  const Result<std::string> result = std::string("text");

  EXPECT_EQ(result.value(), "text");
  EXPECT_EQ(*result, "text");
  EXPECT_EQ(result->size(), 4u);
}

TEST(Result, GivesUpAValueThatOnlyMoves) {
  Result<std::unique_ptr<int>> first = std::make_unique<int>(1);
  Result<std::unique_ptr<int>> second = std::make_unique<int>(2);
  Result<std::unique_ptr<int>> third = std::make_unique<int>(3);

  EXPECT_EQ(*std::move(first).value(), 1);
  EXPECT_EQ(**std::move(second), 2);
  EXPECT_EQ(*std::move(third).orThrow(), 3);
}

TEST(Result, CanHoldAnErrorAsItsFailureOnly) {
  Result<int> result = 1;

  result = someError();
  EXPECT_FALSE(result.ok());

  result = 2;
  EXPECT_EQ(result.value(), 2);
}

TEST(Result, ThrowsItsErrorWhenAskedTo) {
  Result<int> result = someError();

  EXPECT_THROW(std::move(result).orThrow(), Exception);
}

TEST(Result, WithoutAValueIsSuccessOrError) {
  const Result<void> good;
  const Result<void> bad = someError();

  EXPECT_TRUE(good.ok());
  EXPECT_TRUE(static_cast<bool>(good));
  good.orThrow();
  EXPECT_FALSE(bad.ok());
  EXPECT_FALSE(static_cast<bool>(bad));
  EXPECT_EQ(bad.error().message(), "read: closed");
  EXPECT_THROW(bad.orThrow(), Exception);
}

TEST(ResultDeathTest, ReadingTheWrongOneEndsTheProcess) {
  Result<int> good = 1;
  Result<int> bad = someError();
  const Result<int> constantBad = someError();
  const Result<void> goodVoid;

  EXPECT_DEATH(bad.value(), "Result::value\\(\\) on a failure");
  EXPECT_DEATH(static_cast<void>(constantBad.value()), "Result::value\\(\\) on a failure");
  EXPECT_DEATH(static_cast<void>(std::move(bad).value()), "Result::value\\(\\) on a failure");
  EXPECT_DEATH(static_cast<void>(good.error()), "Result::error\\(\\) on a success");
  EXPECT_DEATH(static_cast<void>(goodVoid.error()), "Result::error\\(\\) on a success");
}

TEST(ResultDeathTest, FailureWithoutAnErrorEndsTheProcess) {
  EXPECT_DEATH(static_cast<void>(Result<void>(Error())), "needs an Error that says what failed");
}

}  // namespace
}  // namespace millrace
