// SPDX-License-Identifier: Apache-2.0
// Error: what went wrong, as a value. Exception: the same, thrown where a caller asked for a value.
//
// An Error names the operation that failed and says the cause in words: "connect 10.0.0.1:80:
// connection refused". Copies are cheap (one counted pointer).
#pragma once

#include <millrace/base/export.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace millrace {

/// Failures of Millrace itself; those of the kernel keep their errno.
enum class Errc {
  closed = 1,     ///< the thing was closed before the operation could finish
  cancelled,      ///< somebody called cancel()
  rejected,       ///< an executor refused the task: it is full, stopping or stopped
  timedOut,       ///< a deadline passed
  brokenPromise,  ///< the promise was dropped without being completed
  exception,      ///< user code threw; cause() holds what
  notSupported,   ///< this engine, kernel or build cannot do it
  forked,         ///< used in a child process after fork(); loops do not survive a fork
  unknownHost,    ///< no address is known for this name
};

/// The category of `Errc` ("millrace").
MILLRACE_API const std::error_category& errorCategory() noexcept;
inline std::error_code make_error_code(Errc e) noexcept {  // NOLINT: the standard's name
  return {static_cast<int>(e), errorCategory()};
}

/// One failure. Immutable; any thread may read its own copy.
class [[nodiscard]] MILLRACE_API Error {
 public:
  /// No error: `code()` is zero. Exists so that an Error can be a member.
  Error() noexcept = default;
  Error(std::error_code code, std::string_view operation, std::string_view detail = {},
        std::exception_ptr cause = nullptr);
  Error(Errc code, std::string_view operation, std::string_view detail = {},
        std::exception_ptr cause = nullptr);

  /// From an errno value of a system call, such as `Error::fromErrno(ENFILE, "epoll_create1")`.
  static Error fromErrno(int value, std::string_view operation, std::string_view detail = {});
  /// From the exception being handled; REQUIRES: called inside a catch block. An Error that travels
  /// in an `Exception` comes out as it was.
  static Error fromCurrentException(std::string_view operation);
  static Error fromException(const std::exception_ptr& cause, std::string_view operation);

  /// True if there is a failure.
  explicit operator bool() const noexcept { return static_cast<bool>(code_); }

  const std::error_code& code() const noexcept { return code_; }
  /// errno if the kernel said no, else 0.
  int errnoValue() const noexcept;
  /// What was being done: "epoll_ctl", "submit".
  std::string_view operation() const noexcept;
  /// Whom or what it concerned, may be empty: an address, a descriptor, a name.
  std::string_view detail() const noexcept;
  /// The exception behind it, if user code threw; may be null.
  std::exception_ptr cause() const noexcept;
  /// One line for people: "operation detail: reason".
  std::string message() const;

  bool is(Errc e) const noexcept { return code_ == make_error_code(e); }
  bool isCancelled() const noexcept { return is(Errc::cancelled); }

  /// Throws the cause if there is one, else an `Exception` holding this error.
  [[noreturn]] void raise() const;

 private:
  struct Text {
    std::string operation;
    std::string detail;
    std::exception_ptr cause;
  };
  std::error_code code_;
  std::shared_ptr<const Text> text_;  // shared by the copies of this error; never changes
};

/// Thrown by `get()` and `sync()` when the network or the system failed. Holds the Error.
class MILLRACE_API Exception : public std::runtime_error {
 public:
  explicit Exception(Error error) : std::runtime_error(error.message()), error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// Thrown when an executor refuses a task.
class MILLRACE_API RejectedExecution : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown at once when a thread of a loop would wait for work that only this thread can do.
class MILLRACE_API BlockingOperation : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace millrace

template <>
struct std::is_error_code_enum<millrace::Errc> : std::true_type {};
