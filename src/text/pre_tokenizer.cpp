#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "text/json_reader.h"
#include "text/utf8.h"

namespace motley {
namespace {

constexpr size_t kMaxSteps = 16;

// The pattern that ByteLevel applies unless use_regex is false; it is GPT-2's.
constexpr std::string_view kByteLevelPattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct Piece {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// Turns the stream of matches and gaps into the pieces of one behaviour.
class PieceMerger {
 public:
  PieceMerger(SplitBehavior behavior, std::string_view text, PreTokenizer::Visit visit)
      : behavior_(behavior), text_(text), visit_(visit) {}

  Status add(const Piece& piece) {
    const bool after_match = previous_is_match_;
    previous_is_match_ = piece.is_match;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        return piece.is_match ? Status::ok() : emit(piece);
      case SplitBehavior::kIsolated:
        return emit(piece);
      case SplitBehavior::kContiguous:
        return join_if(held_ && piece.is_match == after_match, piece);
      case SplitBehavior::kMergedWithPrevious:
        return join_if(held_ && piece.is_match && !after_match, piece);
      case SplitBehavior::kMergedWithNext:
        return join_if(held_ && after_match && !piece.is_match, piece);
    }
    return Status::ok();
  }

  Status finish() { return held_ ? emit(*held_) : Status::ok(); }

 private:
  Status join_if(bool join, const Piece& piece) {
    if (join) {
      held_->end = piece.end;
      return Status::ok();
    }
    if (held_) MOTLEY_RETURN_IF_ERROR(emit(*held_));
    held_ = piece;
    return Status::ok();
  }

  Status emit(const Piece& piece) const {
    if (piece.begin == piece.end) return Status::ok();
    return visit_(text_.substr(piece.begin, piece.end - piece.begin));
  }

  SplitBehavior behavior_;
  std::string_view text_;
  PreTokenizer::Visit visit_;
  std::optional<Piece> held_;
  bool previous_is_match_ = false;
};

Result<std::optional<Regex::Match>> find(const SplitStep& step, std::string_view text, size_t from,
                                         Regex::Scratch& scratch) {
  if (const Regex* regex = std::get_if<Regex>(&step.pattern)) {
    return regex->search(text, from, scratch);
  }
  const std::string& literal = std::get<std::string>(step.pattern);
  const size_t at = literal.empty() ? std::string_view::npos : text.find(literal, from);
  if (at == std::string_view::npos) return std::optional<Regex::Match>();
  return std::optional<Regex::Match>(Regex::Match{at, at + literal.size()});
}

Status split_once(const SplitStep& step, std::string_view text, Regex::Scratch& scratch,
                  PreTokenizer::Visit visit) {
  PieceMerger merger(step.behavior, text, visit);
  size_t from = 0;  // where the next search starts
  size_t done = 0;  // end of the last match
  bool any = false;
  while (from <= text.size()) {
    MOTLEY_ASSIGN_OR_RETURN(const std::optional<Regex::Match> match,
                            find(step, text, from, scratch));
    if (!match) break;
    if (match->begin == match->end && any && match->end == done) {
      // An empty match right after a match does not count: try one character further.
      if (from >= text.size()) break;
      from += next_utf8(text.substr(from)).length;
      continue;
    }
    if (match->begin > done) {
      MOTLEY_RETURN_IF_ERROR(merger.add({done, match->begin, step.invert}));
    }
    MOTLEY_RETURN_IF_ERROR(merger.add({match->begin, match->end, !step.invert}));
    from = done = match->end;
    any = true;
  }
  if (done < text.size()) MOTLEY_RETURN_IF_ERROR(merger.add({done, text.size(), step.invert}));
  return merger.finish();
}

Result<SplitBehavior> behavior_of(const nlohmann::json& config, const std::string& where) {
  static constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  const auto found = config.find("behavior");
  if (found != config.end() && found->is_string()) {
    for (const auto& [name, behavior] : kNames) {
      if (found->get_ref<const std::string&>() == name) return behavior;
    }
  }
  return unsupported(
      fmt::format("{}.behavior must be one of Removed, Isolated, "
                  "MergedWithPrevious, MergedWithNext, Contiguous",
                  where));
}

Result<bool> flag(const nlohmann::json& config, const char* name, bool fallback,
                  const std::string& where) {
  const auto found = config.find(name);
  if (found == config.end()) return fallback;
  if (!found->is_boolean()) return corrupt(fmt::format("{}.{} must be true or false", where, name));
  return found->get<bool>();
}

Result<std::variant<Regex, std::string>> pattern_of(const nlohmann::json& config,
                                                    const std::string& where) {
  using Pattern = std::variant<Regex, std::string>;
  const auto found = config.find("pattern");
  if (found == config.end() || !found->is_object() || found->size() != 1 ||
      !found->begin()->is_string()) {
    return corrupt(
        fmt::format("{}.pattern must be {{\"Regex\": text}} or {{\"String\": text}}", where));
  }
  const auto& text = found->begin()->get_ref<const std::string&>();
  if (found->begin().key() == "String") return Pattern(text);
  if (found->begin().key() != "Regex") {
    return unsupported(fmt::format("{}.pattern must be a Regex or a String", where));
  }
  Result<Regex> regex = Regex::compile(text);
  if (!regex.is_ok()) return regex.status().with_context(where);
  return Pattern(std::move(regex).value());
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const nlohmann::json& config) {
  PreTokenizer result;
  MOTLEY_RETURN_IF_ERROR(result.add_steps(config, "pre_tokenizer", 0));
  if (!result.has_byte_level_) {
    return unsupported("pre_tokenizer has no ByteLevel step; only byte-level models are supported");
  }
  return result;
}

Status PreTokenizer::add_steps(const nlohmann::json& config, const std::string& where, int depth) {
  if (!config.is_object() || !config.contains("type") || !config["type"].is_string()) {
    return unsupported(fmt::format("{} must be an object with a type", where));
  }
  if (depth > 4) return corrupt(fmt::format("{}: sequences nested too deep", where));
  if (has_byte_level_) {
    return unsupported(
        fmt::format("{} stands after ByteLevel, which must be the last step", where));
  }
  if (steps_.size() >= kMaxSteps) {
    return unsupported(fmt::format("{}: more than {} steps", where, kMaxSteps));
  }
  const auto& type = config["type"].get_ref<const std::string&>();
  if (type == "Sequence") {
    MOTLEY_RETURN_IF_ERROR(check_known_keys(config, where, {"type", "pretokenizers"}));
    if (!config.contains("pretokenizers") || !config["pretokenizers"].is_array()) {
      return corrupt(fmt::format("{}.pretokenizers must be a list", where));
    }
    size_t index = 0;
    for (const nlohmann::json& entry : config["pretokenizers"]) {
      MOTLEY_RETURN_IF_ERROR(
          add_steps(entry, fmt::format("{}.pretokenizers[{}]", where, index++), depth + 1));
    }
    return Status::ok();
  }
  if (type == "Split") return add_split(config, where);
  if (type == "ByteLevel") return add_byte_level(config, where);
  if (type == "Digits") {
    MOTLEY_RETURN_IF_ERROR(check_known_keys(config, where, {"type", "individual_digits"}));
    MOTLEY_ASSIGN_OR_RETURN(const bool individual, flag(config, "individual_digits", false, where));
    MOTLEY_ASSIGN_OR_RETURN(Regex regex, Regex::compile("\\p{N}"));
    steps_.push_back({std::move(regex),
                      individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
    return Status::ok();
  }
  return unsupported(fmt::format("{}.type '{}' is not supported", where, printable_excerpt(type)));
}

Status PreTokenizer::add_split(const nlohmann::json& config, const std::string& where) {
  MOTLEY_RETURN_IF_ERROR(
      check_known_keys(config, where, {"type", "pattern", "behavior", "invert"}));
  MOTLEY_ASSIGN_OR_RETURN(auto pattern, pattern_of(config, where));
  MOTLEY_ASSIGN_OR_RETURN(const SplitBehavior behavior, behavior_of(config, where));
  MOTLEY_ASSIGN_OR_RETURN(const bool invert, flag(config, "invert", false, where));
  steps_.push_back({std::move(pattern), behavior, invert});
  return Status::ok();
}

Status PreTokenizer::add_byte_level(const nlohmann::json& config, const std::string& where) {
  // trim_offsets concerns offsets only, which are not reported.
  MOTLEY_RETURN_IF_ERROR(
      check_known_keys(config, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  MOTLEY_ASSIGN_OR_RETURN(add_prefix_space_, flag(config, "add_prefix_space", true, where));
  MOTLEY_ASSIGN_OR_RETURN(const bool use_regex, flag(config, "use_regex", true, where));
  byte_level_at_ = steps_.size();
  has_byte_level_ = true;
  if (use_regex) {
    MOTLEY_ASSIGN_OR_RETURN(Regex regex, Regex::compile(kByteLevelPattern));
    steps_.push_back({std::move(regex), SplitBehavior::kIsolated, false});
  }
  return Status::ok();
}

Status PreTokenizer::split(std::string_view text, Regex::Scratch& scratch, Visit visit) const {
  if (text.empty()) return Status::ok();
  return run_step(0, text, scratch, visit);
}

Status PreTokenizer::run_step(size_t index, std::string_view text, Regex::Scratch& scratch,
                              Visit visit) const {
  std::string prefixed;
  if (index == byte_level_at_ && add_prefix_space_ && !text.starts_with(' ')) {
    prefixed = " ";
    prefixed += text;
    text = prefixed;
  }
  if (index == steps_.size()) return visit(text);
  return split_once(steps_[index], text, scratch, [&](std::string_view piece) {
    return run_step(index + 1, piece, scratch, visit);
  });
}

}  // namespace motley
