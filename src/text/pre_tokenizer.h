// Cuts a text into the words that byte pair encoding works on.
//
// A list of Split steps, then the byte-level step. Source: Split, Digits and ByteLevel of Hugging
// Face tokenizers; the behaviours are those of its SplitDelimiterBehavior.
// Ownership: owns its patterns. Thread rule: immutable; a Regex::Scratch belongs to one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/regex.h"

namespace motley {

// What becomes of the matches: dropped, kept apart, or joined to a neighbour.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  std::variant<Regex, std::string> pattern;  // a string is matched as it stands
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the text between the matches counts as the matches
};

class PreTokenizer {
 public:
  using Visit = FunctionRef<Status(std::string_view)>;

  PreTokenizer() = default;

  // `config` is the value of "pre_tokenizer".
  static Result<PreTokenizer> from_json(const nlohmann::json& config);

  // Calls `visit` for every word, in order; never with an empty one. A word may point into `text`
  // or into memory that lives for the call only. REQUIRES: valid UTF-8.
  Status split(std::string_view text, Regex::Scratch& scratch, Visit visit) const;

 private:
  Status add_steps(const nlohmann::json& config, const std::string& where, int depth);
  Status add_split(const nlohmann::json& config, const std::string& where);
  Status add_byte_level(const nlohmann::json& config, const std::string& where);
  Status run_step(size_t index, std::string_view text, Regex::Scratch& scratch, Visit visit) const;

  std::vector<SplitStep> steps_;
  size_t byte_level_at_ = 0;  // steps from here on belong to ByteLevel
  bool has_byte_level_ = false;
  bool add_prefix_space_ = false;
};

}  // namespace motley
