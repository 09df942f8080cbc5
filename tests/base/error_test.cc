// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/error.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace millrace {
namespace {

std::exception_ptr thrown(const char* text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

TEST(Error, MadeFromNothingIsNone) {
  const Error none;

  EXPECT_FALSE(none);
  EXPECT_EQ(none.message(), "no error");
  EXPECT_EQ(none.operation(), "");
  EXPECT_EQ(none.detail(), "");
  EXPECT_EQ(none.errnoValue(), 0);
  EXPECT_EQ(none.cause(), nullptr);
}

TEST(Error, NamesOperationDetailAndCause) {
  const Error error = Error::fromErrno(ECONNREFUSED, "connect", "10.0.0.1:80");

  EXPECT_TRUE(error);
  EXPECT_EQ(error.message(), "connect 10.0.0.1:80: " + std::string(std::strerror(ECONNREFUSED)));
  EXPECT_EQ(error.operation(), "connect");
  EXPECT_EQ(error.detail(), "10.0.0.1:80");
  EXPECT_EQ(error.errnoValue(), ECONNREFUSED);
  EXPECT_EQ(error.code(), std::errc::connection_refused);
}

TEST(Error, LeavesOutWhatItDoesNotKnow) {
  EXPECT_EQ(Error(Errc::closed, "write").message(), "write: closed");
  EXPECT_EQ(Error(Errc::closed, "", "fd 3").message(), "fd 3: closed");
  EXPECT_EQ(Error(Errc::closed, "").message(), "closed");
}

TEST(Error, SaysEachOfOurOwnFailuresInWords) {
  const auto text = [](Errc code) { return Error(code, "x").message(); };

  EXPECT_EQ(text(Errc::closed), "x: closed");
  EXPECT_EQ(text(Errc::cancelled), "x: cancelled");
  EXPECT_EQ(text(Errc::rejected), "x: rejected");
  EXPECT_EQ(text(Errc::timedOut), "x: timed out");
  EXPECT_EQ(text(Errc::brokenPromise), "x: the promise was dropped without a result");
  EXPECT_EQ(text(Errc::exception), "x: an exception was thrown");
  EXPECT_EQ(text(Errc::notSupported), "x: not supported here");
  EXPECT_EQ(text(Errc::forked), "x: not usable in a forked child");
  EXPECT_EQ(text(Errc::unknownHost), "x: unknown host");
  EXPECT_EQ(std::error_code(99, errorCategory()).message(), "unknown error 99");
  EXPECT_STREQ(errorCategory().name(), "millrace");
}

TEST(Error, OfOursHasNoErrno) {
  const Error error(Errc::cancelled, "submit");

  EXPECT_EQ(error.errnoValue(), 0);
  EXPECT_TRUE(error.is(Errc::cancelled));
  EXPECT_TRUE(error.isCancelled());
  EXPECT_FALSE(error.is(Errc::closed));
  EXPECT_FALSE(Error(Errc::closed, "x").isCancelled());
}

TEST(Error, NumberOfOursIsNotTheErrnoWithTheSameNumber) {
  EXPECT_NE(Error(Errc::closed, "x").code(), Error::fromErrno(EPERM, "x").code());
  EXPECT_FALSE(Error::fromErrno(1, "x").is(Errc::closed));
}

TEST(Error, CopiesSayTheSame) {
  const Error error = Error::fromErrno(EMFILE, "eventfd", "loop 1");
  const Error copy = error;  // NOLINT: the copy is the point

  EXPECT_EQ(copy.message(), error.message());
  EXPECT_EQ(copy.operation().data(), error.operation().data());
}

TEST(Error, OfAnExceptionSaysWhatWasThrown) {
  const Error error = Error::fromException(thrown("no luck"), "task");

  EXPECT_TRUE(error.is(Errc::exception));
  EXPECT_EQ(error.message(), "task: no luck");
  EXPECT_NE(error.cause(), nullptr);
}

TEST(Error, OfAnythingElseThrownSaysSo) {
  const Error error = Error::fromException(std::make_exception_ptr(5), "task");

  EXPECT_EQ(error.message(), "task: an exception that is not a std::exception");
}

TEST(Error, TravelsThroughAnExceptionUnchanged) {
  const Error sent = Error::fromErrno(EPIPE, "write", "fd 4");

  Error arrived;
  try {
    sent.raise();
  } catch (...) {
    arrived = Error::fromCurrentException("somewhere else");
  }

  EXPECT_EQ(arrived.message(), sent.message());
  EXPECT_EQ(arrived.errnoValue(), EPIPE);
}

TEST(Error, RaiseThrowsTheCauseIfThereIsOne) {
  const Error error = Error::fromException(thrown("the cause"), "task");

  try {
    error.raise();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "the cause");
  }
}

TEST(Error, RaiseThrowsAnExceptionThatHoldsIt) {
  try {
    Error(Errc::closed, "read").raise();
  } catch (const Exception& e) {
    EXPECT_STREQ(e.what(), "read: closed");
    EXPECT_TRUE(e.error().is(Errc::closed));
  }
}

TEST(Error, CodesConvertToStdErrorCodes) {
  const std::error_code code = Errc::timedOut;

  EXPECT_EQ(code, make_error_code(Errc::timedOut));
  EXPECT_EQ(code.message(), "timed out");
}

TEST(ErrorDeathTest, WithoutAnExceptionThereIsNoErrorToMake) {
  EXPECT_DEATH(static_cast<void>(Error::fromCurrentException("x")),
               "millrace: bug: an Error was asked for where no exception is being handled");
}

}  // namespace
}  // namespace millrace
