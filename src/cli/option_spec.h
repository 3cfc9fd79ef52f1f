// What a command line may hold, as data: one table per verb, of options and arguments.
//
// Parsing, environment names, help, manual page and shell completion all read these structs, so
// that none of them can disagree. An option that several verbs share is a constant in
// common_options.h.
// Ownership: views of string literals. Thread rule: constants.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace motley {

class Console;
class OptionValues;

enum class OptionType : uint8_t {
  kFlag,     // no value; in the environment 1/0, on/off, true/false, yes/no
  kInteger,  // 64 bits, signed
  kReal,
  kBytes,  // 512MiB, 4GB, 100000
  kText,
  kFile,
  kFolder,
  kChoice,  // one of `choices`
};

struct OptionSpec {
  std::string_view name;  // "prefill-chunk": the flag is --prefill-chunk
  char letter = 0;        // 'n': also -n
  OptionType type = OptionType::kFlag;
  std::string_view value;               // what help calls the value: "N"
  std::string_view help;                // a phrase without full stop
  std::string_view default_value = {};  // as it would be typed; empty: none
  std::string_view default_note = {};   // what happens without it, where no fixed value does
  std::vector<std::string_view> choices = {};
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool repeatable = false;
  std::string_view environment = {};  // where two verbs give a name different meanings
};

// MOTLEY_PREFILL_CHUNK for "prefill-chunk", unless the option has its own.
std::string environment_name(const OptionSpec& option);
// "-n, --max-tokens N"; "--think on|off".
std::string flag_text(const OptionSpec& option);

struct ArgumentSpec {
  std::string_view name;  // "MODEL"
  OptionType type = OptionType::kText;
  std::string_view help;
  bool required = true;
  bool repeatable = false;  // only the last argument may be
  std::vector<std::string_view> choices = {};
};

struct Example {
  std::string_view command;
  std::string_view meaning;
};

// What a verb gets to work with.
struct Invocation {
  const OptionValues& options;
  Console& console;
};

struct VerbSpec {
  std::string_view name;  // "run"; two words for a verb with a subject: "bench model"
  std::string_view summary;
  std::string_view description;  // paragraphs separated by an empty line
  std::vector<ArgumentSpec> arguments;
  std::vector<OptionSpec> options;
  std::vector<Example> examples;
  // Rules between options; an error is a usage error (exit 2). May be null.
  Status (*check)(const Invocation&) = nullptr;
  // The exit status, or an error (exit 1).
  Result<int> (*run)(Invocation&) = nullptr;
};

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

}  // namespace motley
