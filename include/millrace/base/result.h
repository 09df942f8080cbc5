// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or the Error that stands in its place. Our own because C++20 has no expected.
#pragma once

#include <millrace/base/check.h>
#include <millrace/base/error.h>

#include <type_traits>
#include <utility>
#include <variant>

namespace millrace {

/// A value of type T or an Error. Reading the wrong one is a bug and ends the process.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & {
    MR_CHECK(ok(), "Result::value() on a failure");
    return std::get<0>(state_);
  }
  const T& value() const& {
    MR_CHECK(ok(), "Result::value() on a failure");
    return std::get<0>(state_);
  }
  T&& value() && {
    MR_CHECK(ok(), "Result::value() on a failure");
    return std::get<0>(std::move(state_));
  }
  const Error& error() const {
    MR_CHECK(!ok(), "Result::error() on a success");
    return std::get<1>(state_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// The value, or the error thrown as an exception (see Error::raise).
  T orThrow() && {
    if (!ok()) error().raise();
    return std::move(*this).value();
  }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() noexcept = default;
  Result(Error error) : error_(std::move(error)) {  // NOLINT: implicit
    MR_CHECK(static_cast<bool>(error_), "a failed Result needs an Error that says what failed");
  }

  bool ok() const noexcept { return !error_; }
  explicit operator bool() const noexcept { return ok(); }
  const Error& error() const {
    MR_CHECK(!ok(), "Result::error() on a success");
    return error_;
  }
  void orThrow() const {
    if (!ok()) error_.raise();
  }

 private:
  Error error_;
};

}  // namespace millrace
