// Operating errors as values.
//
// A function that can fail because of its input, the machine or a peer returns `Status` or
// `Result<T>`; a bug in motley itself is a MOTLEY_CHECK (base/check.h). Exceptions thrown by
// libraries are caught in the one file that wraps the library and never cross a module.
//
// Messages are one line, lower case, and name the thing (file, tensor, field) and what to do.
// Thread rule: values; safe to move between threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace motley {

// A small canonical set; the server maps each code to one HTTP status.
enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's request is wrong
  kNotFound,           // a file, tensor or name does not exist
  kCorrupt,            // bytes that contradict their format
  kUnsupported,        // well formed, but not something this build can do
  kResourceExhausted,  // does not fit; the message holds the arithmetic
  kIo,                 // the operating system said no; the message holds errno
  kCancelled,
};

std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    MOTLEY_CHECK(code != StatusCode::kOk, "an error needs an error code");
  }

  static Status ok() { return {}; }

  bool is_ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with "context: " in front, for callers that know the file or the tensor.
  Status with_context(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

Status invalid_argument(std::string message);
Status not_found(std::string message);
Status corrupt(std::string message);
Status unsupported(std::string message);
Status resource_exhausted(std::string message);
Status io_error(std::string message);
// "what: strerror(error_number)".
Status io_error(std::string_view what, int error_number);
Status cancelled(std::string message);

// Either a value or an error. Reading the value of an error is a bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    MOTLEY_CHECK(!status_.is_ok(), "a Result without a value needs an error");
  }

  bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  const Status& status() const { return status_; }

  T& value() & {
    MOTLEY_CHECK(is_ok(), status_.message());
    return *value_;
  }
  const T& value() const& {
    MOTLEY_CHECK(is_ok(), status_.message());
    return *value_;
  }
  T&& value() && {
    MOTLEY_CHECK(is_ok(), status_.message());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace motley

#define MOTLEY_CONCAT_INNER(a, b) a##b
#define MOTLEY_CONCAT(a, b) MOTLEY_CONCAT_INNER(a, b)

#define MOTLEY_RETURN_IF_ERROR(expression)            \
  do {                                                \
    ::motley::Status motley_status = (expression);    \
    if (!motley_status.is_ok()) return motley_status; \
  } while (false)

// MOTLEY_ASSIGN_OR_RETURN(auto file, open(path));
#define MOTLEY_ASSIGN_OR_RETURN(declaration, expression) \
  MOTLEY_ASSIGN_OR_RETURN_INNER(MOTLEY_CONCAT(motley_result_, __LINE__), declaration, expression)
#define MOTLEY_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                          \
  if (!result.is_ok()) return result.status();                         \
  declaration = std::move(result).value()
