// SPDX-License-Identifier: Apache-2.0
// CoTask: the smallest coroutine type that can await our futures in tests.
#pragma once

#include <coroutine>
#include <exception>

namespace millrace::test {

/// A coroutine that begins at once and, left alone, frees itself at its end. What escapes from it
/// ends the process. One that is still suspended can be destroyed with destroy().
class CoTask {
 public:
  struct promise_type {
    CoTask get_return_object() noexcept {
      return CoTask(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };

  /// REQUIRES: the coroutine has not come to its end.
  void destroy() const { handle_.destroy(); }

 private:
  explicit CoTask(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace millrace::test
