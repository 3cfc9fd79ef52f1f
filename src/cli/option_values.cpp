#include "cli/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/log.h"

namespace motley {
namespace {

std::string join(const std::vector<std::string_view>& words, std::string_view separator) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

Status out_of_range(std::string_view source, std::string_view text, const OptionSpec& option) {
  std::string allowed;
  if (std::isinf(option.most)) {
    allowed = fmt::format("at least {}", option.least);
  } else {
    allowed = fmt::format("{} to {}", option.least, option.most);
  }
  return invalid_argument(
      fmt::format("{} is {}, allowed is {}", source, quote_input(text), allowed));
}

// A whole number, however large: "out of range" says more than "not a number".
bool is_whole_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Status check_number(const OptionSpec& option, std::string_view text, std::string_view source) {
  std::optional<double> number;
  std::string_view kind = "a number";
  if (option.type == OptionType::kReal) {
    number = parse_real(text);
  } else if (option.type == OptionType::kBytes) {
    kind = "a size such as 512MiB or 4GB";
    if (const auto bytes = parse_bytes(text)) number = static_cast<double>(*bytes);
  } else {
    kind = "a whole number";
    if (const auto integer = parse_integer(text)) number = static_cast<double>(*integer);
  }
  if (!number && is_whole_number(text)) return out_of_range(source, text, option);
  if (!number) {
    return invalid_argument(
        fmt::format("{} needs {}, not \"{}\"", source, kind, quote_input(text)));
  }
  if (*number < option.least || *number > option.most) return out_of_range(source, text, option);
  return Status::ok();
}

Status check_choice(const std::vector<std::string_view>& choices, std::string_view text,
                    std::string_view source) {
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return Status::ok();
  return invalid_argument(
      fmt::format("{} is \"{}\", allowed is {}", source, quote_input(text), join(choices, ", ")));
}

Status check_value(const OptionSpec& option, std::string_view text, std::string_view source) {
  switch (option.type) {
    case OptionType::kFlag:
      if (parse_flag(text)) return Status::ok();
      return invalid_argument(
          fmt::format("{} is \"{}\", allowed is on or off", source, quote_input(text)));
    case OptionType::kInteger:
    case OptionType::kReal:
    case OptionType::kBytes:
      return check_number(option, text, source);
    case OptionType::kChoice:
      return check_choice(option.choices, text, source);
    case OptionType::kFile:
    case OptionType::kFolder:
      if (!text.empty()) return Status::ok();
      return invalid_argument(fmt::format("{} needs a path", source));
    case OptionType::kText:
      return Status::ok();
  }
  return Status::ok();
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  struct Suffix {
    std::string_view name;
    double factor;
  };
  static constexpr std::array kSuffixes = {
      Suffix{"KiB", 1024.0},       Suffix{"MiB", 1048576.0},
      Suffix{"GiB", 1073741824.0}, Suffix{"TiB", 1099511627776.0},
      Suffix{"KB", 1e3},           Suffix{"MB", 1e6},
      Suffix{"GB", 1e9},           Suffix{"TB", 1e12}};
  double factor = 1;
  for (const Suffix& suffix : kSuffixes) {
    if (!text.ends_with(suffix.name)) continue;
    factor = suffix.factor;
    text.remove_suffix(suffix.name.size());
    break;
  }
  const auto number = factor == 1 ? parse_integer(text) : std::nullopt;
  if (factor == 1) return number && *number >= 0 ? number : std::nullopt;
  const auto scaled = parse_real(text);
  if (!scaled || *scaled < 0 || *scaled * factor > 9e18) return std::nullopt;
  return static_cast<int64_t>(*scaled * factor);
}

std::optional<bool> parse_flag(std::string_view text) {
  for (const std::string_view yes : {"1", "on", "true", "yes"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "off", "false", "no"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

Status OptionValues::set(const OptionSpec& option, std::vector<std::string> values,
                         std::string source) {
  MOTLEY_CHECK(!values.empty(), "a given option has a value");
  if (values.size() > 1 && !option.repeatable) {
    return invalid_argument(fmt::format("{} is given {} times", source, values.size()));
  }
  for (const std::string& value : values) {
    MOTLEY_RETURN_IF_ERROR(check_value(option, value, source));
  }
  options_[std::string(option.name)] = {std::move(values), std::move(source)};
  return Status::ok();
}

Status OptionValues::set_argument(const ArgumentSpec& argument, std::vector<std::string> values) {
  for (const std::string& value : values) {
    if (argument.type == OptionType::kChoice) {
      MOTLEY_RETURN_IF_ERROR(check_choice(argument.choices, value, argument.name));
    } else if (value.empty() && argument.type != OptionType::kText) {
      return invalid_argument(fmt::format("{} is empty", argument.name));
    }
  }
  arguments_[std::string(argument.name)] = std::move(values);
  return Status::ok();
}

const OptionValues::Entry* OptionValues::find(const OptionSpec& option) const {
  const auto found = options_.find(option.name);
  return found == options_.end() ? nullptr : &found->second;
}

std::string OptionValues::source(const OptionSpec& option) const {
  const Entry* entry = find(option);
  MOTLEY_CHECK(entry != nullptr, "the option was given");
  return entry->source;
}

std::string OptionValues::value_of(const OptionSpec& option) const {
  if (const Entry* entry = find(option)) return entry->values.back();
  MOTLEY_CHECK(!option.default_value.empty(), "an option without default was given");
  return std::string(option.default_value);
}

bool OptionValues::flag(const OptionSpec& option) const {
  MOTLEY_CHECK(option.type == OptionType::kFlag, "a flag");
  const Entry* entry = find(option);
  return entry != nullptr && parse_flag(entry->values.back()).value_or(false);
}

int64_t OptionValues::integer(const OptionSpec& option) const {
  const auto value = parse_integer(value_of(option));
  MOTLEY_CHECK(option.type == OptionType::kInteger && value, "a checked integer");
  return *value;
}

int64_t OptionValues::bytes(const OptionSpec& option) const {
  const auto value = parse_bytes(value_of(option));
  MOTLEY_CHECK(option.type == OptionType::kBytes && value, "a checked size");
  return *value;
}

double OptionValues::real(const OptionSpec& option) const {
  const auto value = parse_real(value_of(option));
  MOTLEY_CHECK(option.type == OptionType::kReal && value, "a checked number");
  return *value;
}

std::string OptionValues::text(const OptionSpec& option) const {
  return value_of(option);
}

std::vector<std::string> OptionValues::texts(const OptionSpec& option) const {
  const Entry* entry = find(option);
  return entry == nullptr ? std::vector<std::string>() : entry->values;
}

std::optional<std::string> OptionValues::argument(std::string_view name) const {
  const auto found = arguments_.find(name);
  if (found == arguments_.end() || found->second.empty()) return std::nullopt;
  return found->second.front();
}

std::vector<std::string> OptionValues::arguments(std::string_view name) const {
  const auto found = arguments_.find(name);
  return found == arguments_.end() ? std::vector<std::string>() : found->second;
}

}  // namespace motley
