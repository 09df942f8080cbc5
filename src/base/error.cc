// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/check.h>
#include <millrace/base/error.h>

namespace millrace {

namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "millrace"; }
  std::string message(int value) const override {
    switch (static_cast<Errc>(value)) {
      case Errc::closed:
        return "closed";
      case Errc::cancelled:
        return "cancelled";
      case Errc::rejected:
        return "rejected";
      case Errc::timedOut:
        return "timed out";
      case Errc::brokenPromise:
        return "the promise was dropped without a result";
      case Errc::exception:
        return "an exception was thrown";
      case Errc::notSupported:
        return "not supported here";
      case Errc::forked:
        return "not usable in a forked child";
      case Errc::unknownHost:
        return "unknown host";
    }
    return "unknown error " + std::to_string(value);
  }
};

std::string textOf(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace

const std::error_category& errorCategory() noexcept {
  static const Category category;
  return category;
}

Error::Error(std::error_code code, std::string_view operation, std::string_view detail,
             std::exception_ptr cause)
    : code_(code),
      text_(std::make_shared<const Text>(
          Text{std::string(operation), std::string(detail), std::move(cause)})) {}

Error::Error(Errc code, std::string_view operation, std::string_view detail,
             std::exception_ptr cause)
    : Error(make_error_code(code), operation, detail, std::move(cause)) {}

Error Error::fromErrno(int value, std::string_view operation, std::string_view detail) {
  return {std::error_code(value, std::generic_category()), operation, detail};
}

Error Error::fromCurrentException(std::string_view operation) {
  return fromException(std::current_exception(), operation);
}

Error Error::fromException(const std::exception_ptr& cause, std::string_view operation) {
  MR_CHECK(cause != nullptr, "an Error was asked for where no exception is being handled");
  try {
    std::rethrow_exception(cause);
  } catch (const Exception& e) {
    return e.error();
  } catch (...) {
    return {Errc::exception, operation, {}, cause};
  }
}

int Error::errnoValue() const noexcept {
  return code_.category() == std::generic_category() ? code_.value() : 0;
}

std::string_view Error::operation() const noexcept {
  return text_ ? std::string_view(text_->operation) : std::string_view();
}

std::string_view Error::detail() const noexcept {
  return text_ ? std::string_view(text_->detail) : std::string_view();
}

std::exception_ptr Error::cause() const noexcept { return text_ ? text_->cause : nullptr; }

std::string Error::message() const {
  if (!code_) return "no error";
  std::string line(operation());
  if (!detail().empty()) {
    if (!line.empty()) line += ' ';
    line += detail();
  }
  if (!line.empty()) line += ": ";
  line += cause() ? textOf(cause()) : code_.message();
  return line;
}

void Error::raise() const {
  if (std::exception_ptr thrown = cause()) std::rethrow_exception(thrown);
  throw Exception(*this);
}

}  // namespace millrace
