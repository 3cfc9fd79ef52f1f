#include "base/status.h"

#include <cstring>

namespace motley {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kCorrupt:
      return "corrupt";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kIo:
      return "i/o error";
    case StatusCode::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) return *this;
  return {code_, std::string(context) + ": " + message_};
}

Status invalid_argument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
Status not_found(std::string message) {
  return {StatusCode::kNotFound, std::move(message)};
}
Status corrupt(std::string message) {
  return {StatusCode::kCorrupt, std::move(message)};
}
Status unsupported(std::string message) {
  return {StatusCode::kUnsupported, std::move(message)};
}
Status resource_exhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
Status io_error(std::string message) {
  return {StatusCode::kIo, std::move(message)};
}
Status io_error(std::string_view what, int error_number) {
  return io_error(std::string(what) + ": " + std::strerror(error_number));
}
Status cancelled(std::string message) {
  return {StatusCode::kCancelled, std::move(message)};
}

}  // namespace motley
