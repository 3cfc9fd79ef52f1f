// The options and arguments of one invocation, checked against their specs when they are set.
//
// Reading a value of the wrong type, or one that is neither given nor has a default, is a bug.
// Ownership: an owning value. Thread rule: share by const reference.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/option_spec.h"

namespace motley {

class OptionValues {
 public:
  // `source` is how the user spelled it ("--threads", "MOTLEY_THREADS"), for error messages.
  // kInvalidArgument for a value of the wrong type or out of range; nothing is set then.
  Status set(const OptionSpec& option, std::vector<std::string> values, std::string source);
  Status set_argument(const ArgumentSpec& argument, std::vector<std::string> values);

  bool given(const OptionSpec& option) const { return find(option) != nullptr; }
  // "--threads" or "MOTLEY_THREADS". REQUIRES: given.
  std::string source(const OptionSpec& option) const;

  bool flag(const OptionSpec& option) const;
  int64_t integer(const OptionSpec& option) const;
  int64_t bytes(const OptionSpec& option) const;
  double real(const OptionSpec& option) const;
  // kText, kFile, kFolder, kChoice.
  std::string text(const OptionSpec& option) const;
  // Every value of a repeatable option; empty when not given.
  std::vector<std::string> texts(const OptionSpec& option) const;

  // By the name in the verb's table; empty when not given.
  std::optional<std::string> argument(std::string_view name) const;
  std::vector<std::string> arguments(std::string_view name) const;

 private:
  struct Entry {
    std::vector<std::string> values;
    std::string source;
  };

  const Entry* find(const OptionSpec& option) const;
  std::string value_of(const OptionSpec& option) const;

  std::map<std::string, Entry, std::less<>> options_;
  std::map<std::string, std::vector<std::string>, std::less<>> arguments_;
};

// Conversions of option text; the whole text must be used.
std::optional<int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);
// Suffixes KB, MB, GB, TB (powers of 1000) and KiB ... TiB (of 1024); none: bytes.
std::optional<int64_t> parse_bytes(std::string_view text);
std::optional<bool> parse_flag(std::string_view text);

}  // namespace motley
