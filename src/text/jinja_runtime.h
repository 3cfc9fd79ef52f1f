// The sandbox of one rendering: owns all values, counts steps and bytes, and holds the first error.
//
// Errors are sticky. fail() records the first one with the current template line and returns
// undefined; step() and the makers then refuse, so every loop ends at its next turn and callers may
// go on with undefined without checking each operation.
//
// Thread rule: one Runtime per rendering, used by one thread.
#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_limits.h"
#include "text/jinja_value.h"

namespace motley::jinja {

class Runtime {
 public:
  // `now` is what strftime_now formats.
  Runtime(const JinjaLimits& limits, const std::tm& now) : limits_(limits), now_(now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const JinjaLimits& limits() const { return limits_; }
  const std::tm& now() const { return now_; }

  bool failed() const { return error_.has_value(); }
  // Ok, or the first error as "line N: message".
  Status status() const;
  Value fail(std::string message);  // the template or its data is wrong
  Value fail_limit(std::string message);
  void set_line(int line) { line_ = line; }
  int line() const { return line_; }

  // False when the rendering has failed or has used up its steps.
  bool step(std::int64_t count = 1);
  bool step_bytes(std::size_t bytes) { return step(static_cast<std::int64_t>(bytes / 64) + 1); }
  // False (and failed) when `count` more values of list storage would go over the limit.
  bool reserve_items(std::size_t count);

  Value make_string(std::string text, bool safe = false);
  // Undefined that remembers why, for the error when it is used.
  Value make_undefined(std::string hint);
  Value make_list(std::vector<Value> items, ListFlavour flavour = ListFlavour::kList);
  Value make_range(std::int64_t start, std::int64_t stop, std::int64_t step);
  // Later equal keys replace the value of earlier ones.
  Value make_dict(std::vector<std::pair<Value, Value>> entries);
  Value adopt(std::unique_ptr<Object> object);

 private:
  bool charge(std::size_t bytes);
  bool depth_allowed(int depth);
  Value record(StatusCode code, std::string message);

  const JinjaLimits limits_;
  const std::tm now_;
  int line_ = 1;
  std::int64_t steps_ = 0;
  std::size_t value_bytes_ = 0;
  std::optional<Status> error_;
  std::deque<StringData> strings_;
  std::deque<ListData> lists_;
  std::deque<DictData> dicts_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Text under construction, refused before it grows beyond the string limit.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}

  bool add(std::string_view text);
  bool add_repeated(std::string_view text, std::int64_t count);
  std::size_t size() const { return text_.size(); }
  std::string take() { return std::move(text_); }
  Value finish(bool safe = false) { return runtime_.make_string(std::move(text_), safe); }

 private:
  Runtime& runtime_;
  std::string text_;
};

}  // namespace motley::jinja
