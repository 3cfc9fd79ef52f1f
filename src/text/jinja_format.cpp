#include "text/jinja_format.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "text/jinja_format_spec.h"
#include "text/jinja_number.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace motley::jinja {
namespace {

// Digits at `position`, which moves past them; nothing when they exceed any sensible width.
std::optional<std::int64_t> read_digits(std::string_view text, std::size_t& position) {
  std::int64_t value = 0;
  while (position < text.size() && text[position] >= '0' && text[position] <= '9') {
    value = value * 10 + (text[position++] - '0');
    if (value > 1'000'000'000) return std::nullopt;
  }
  return value;
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const StringData& format, const Value& arguments)
      : runtime_(runtime),
        format_(format.text),
        safe_(format.safe),
        arguments_(arguments),
        out_(runtime) {
    is_tuple_ = arguments.is_list() && (arguments.as_list().flavour == ListFlavour::kTuple ||
                                        arguments.as_list().flavour == ListFlavour::kGroup);
  }

  Value run() {
    while (position_ < format_.size() && runtime_.step()) {
      const std::size_t mark = format_.find('%', position_);
      out_.add(format_.substr(position_, mark - position_));
      if (mark == std::string_view::npos) break;
      position_ = mark + 1;
      convert();
    }
    check_all_used();
    return out_.finish(safe_);
  }

 private:
  Value bad_format(std::string_view why) {
    position_ = format_.size();
    return runtime_.fail(fmt::format("a '%' format {}", why));
  }

  void check_all_used() {
    // Anything with subscripts counts as a mapping, whose entries need not be used.
    const bool mapping =
        arguments_.is_dict() || arguments_.is_undefined() || (arguments_.is_list() && !is_tuple_);
    const std::size_t given = is_tuple_ ? arguments_.as_list().items.size() : 1;
    if (!mapping && used_ < given) bad_format("leaves arguments unused");
  }

  Value next_argument() {
    if (!key_.empty() || has_key_) {
      if (!arguments_.is_dict()) return bad_format("with names needs a dict");
      const Value* entry = arguments_.as_dict().find(key_);
      return entry != nullptr ? *entry : bad_format(fmt::format("has no value for '{}'", key_));
    }
    const std::size_t index = used_++;
    if (is_tuple_) {
      const auto& items = arguments_.as_list().items;
      return index < items.size() ? items[index] : bad_format("needs more arguments");
    }
    return index == 0 ? arguments_ : bad_format("needs more arguments");
  }

  void read_key() {
    has_key_ = false;
    key_.clear();
    if (position_ >= format_.size() || format_[position_] != '(') return;
    const std::size_t close = format_.find(')', position_);
    if (close == std::string_view::npos) {
      bad_format("has a name without ')'");
      return;
    }
    has_key_ = true;
    key_ = format_.substr(position_ + 1, close - position_ - 1);
    position_ = close + 1;
  }

  FormatSpec read_spec() {
    FormatSpec spec;
    bool left = false;
    bool zero = false;
    for (; position_ < format_.size(); ++position_) {
      const char c = format_[position_];
      if (c == '-') {
        left = true;
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '0') {
        zero = true;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    spec.align = left ? '<' : (zero ? '=' : '>');
    if (zero && !left) spec.fill = "0";
    const auto width = read_digits(format_, position_);
    if (position_ < format_.size() && format_[position_] == '.') {
      ++position_;
      const auto precision = read_digits(format_, position_);
      spec.precision = static_cast<int>(precision.value_or(1'000'000'000));
    }
    if (!width) bad_format("has too large a width");
    spec.width = width.value_or(0);
    return spec;
  }

  void convert() {
    read_key();
    FormatSpec spec = read_spec();
    if (position_ >= format_.size()) {
      bad_format("is not complete");
      return;
    }
    spec.type = format_[position_++];
    if (spec.type == '%') {
      out_.add("%");
      return;
    }
    const Value value = next_argument();
    if (runtime_.failed()) return;
    if (spec.type == 's' || spec.type == 'r') return convert_text(value, spec);
    convert_number(value, spec);
  }

  void convert_text(const Value& value, FormatSpec spec) {
    TextBuilder text(runtime_);
    if (spec.type == 's') {
      append_str(runtime_, text, value);
    } else {
      append_repr(runtime_, text, value);
    }
    if (spec.align == '=') spec.align = '>';
    spec.fill = " ";
    const bool escaped = value.is_string() && value.as_string().safe;
    const std::string plain = text.take();
    append_padded(out_, safe_ && !escaped ? escape_html(plain) : plain, spec, '>');
  }

  void convert_number(Value value, FormatSpec spec) {
    const bool integer_type = std::string_view("diuxXo").find(spec.type) != std::string_view::npos;
    if (!integer_type && std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) {
      bad_format(fmt::format("of type '{}' is not supported", spec.type));
      return;
    }
    if (!value.is_number()) {
      bad_format(fmt::format("of type '{}' needs a number, not a {}", spec.type, type_name(value)));
      return;
    }
    if (!integer_type) return append_number(runtime_, out_, value, spec);
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_integral()) {
      const double whole = std::trunc(value.as_double());
      if (!decimal || !(std::fabs(whole) < 9.2e18)) {
        bad_format("of an integer type cannot write this number");
        return;
      }
      value = Value::integer(static_cast<std::int64_t>(whole));
    }
    if (decimal) spec.type = 'd';
    if (spec.precision >= 0) {
      bad_format("with a precision for an integer is not supported");
      return;
    }
    append_number(runtime_, out_, value, spec);
  }

  Runtime& runtime_;
  const std::string_view format_;
  const bool safe_;
  const Value arguments_;
  TextBuilder out_;
  bool is_tuple_ = false;
  std::size_t position_ = 0;
  std::size_t used_ = 0;
  bool has_key_ = false;
  std::string key_;
};

}  // namespace

Value percent_format(Runtime& runtime, const Value& format, const Value& arguments) {
  return PercentFormatter(runtime, format.as_string(), arguments).run();
}

}  // namespace motley::jinja
