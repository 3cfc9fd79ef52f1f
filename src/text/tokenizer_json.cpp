#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include "text/json_reader.h"
#include "text/utf8.h"

namespace motley {
namespace {

// Diverts model.vocab and model.merges into vectors: a tree of half a million small arrays would
// cost ten times the memory and most of the loading time.
class TokenizerReader : public JsonBuilder {
 public:
  explicit TokenizerReader(const TextJsonLimits& limits) : JsonBuilder(limits) {}

  bool start_object(size_t size) override {
    if (mode_ != Mode::kTree) return wrong_value();
    if (!at_model_key("vocab")) return JsonBuilder::start_object(size);
    mode_ = Mode::kVocab;
    has_vocab_ = true;
    return JsonBuilder::start_object(size);
  }

  bool end_object() override {
    if (mode_ == Mode::kVocab) mode_ = Mode::kTree;
    return JsonBuilder::end_object();
  }

  bool start_array(size_t size) override {
    switch (mode_) {
      case Mode::kTree:
        if (at_model_key("merges")) {
          mode_ = Mode::kMerges;
          has_merges_ = true;
        }
        return JsonBuilder::start_array(size);
      case Mode::kMerges:
        mode_ = Mode::kPair;
        pair_.clear();
        return true;
      default:
        return wrong_value();
    }
  }

  bool end_array() override {
    if (mode_ == Mode::kPair) {
      mode_ = Mode::kMerges;
      if (pair_.size() != 2) return merge_error("must have two parts");
      return add_merge(std::move(pair_[0]), std::move(pair_[1]));
    }
    if (mode_ == Mode::kMerges) mode_ = Mode::kTree;
    return JsonBuilder::end_array();
  }

  bool key(std::string& name) override {
    if (mode_ != Mode::kVocab) return JsonBuilder::key(name);
    if (name.size() > kMaxTokenBytes) {
      return fail(fmt::format("model.vocab: a token of {} bytes is over the limit of {}",
                              name.size(), kMaxTokenBytes));
    }
    token_ = std::move(name);
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (mode_ == Mode::kTree) return JsonBuilder::number_unsigned(value);
    if (mode_ != Mode::kVocab) return wrong_value();
    if (value >= static_cast<uint64_t>(kTokenIdLimit)) {
      return fail(fmt::format("model.vocab: id {} of '{}' is not below the limit of {}", value,
                              printable_excerpt(token_), kTokenIdLimit));
    }
    raw_.vocab.emplace_back(std::move(token_), static_cast<TokenId>(value));
    if (raw_.vocab.size() <= static_cast<size_t>(kTokenIdLimit)) return true;
    return fail(fmt::format("model.vocab: more than {} tokens", kTokenIdLimit));
  }

  bool string(std::string& value) override {
    switch (mode_) {
      case Mode::kTree:
        return JsonBuilder::string(value);
      case Mode::kPair:
        if (pair_.size() == 2) return merge_error("must have two parts");
        pair_.push_back(std::move(value));
        return true;
      case Mode::kMerges: {
        const size_t space = value.find(' ');
        if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos) {
          return merge_error("must be two parts with one space between them");
        }
        return add_merge(value.substr(0, space), value.substr(space + 1));
      }
      default:
        return wrong_value();
    }
  }

  bool null() override { return in_tree() && JsonBuilder::null(); }
  bool boolean(bool value) override { return in_tree() && JsonBuilder::boolean(value); }
  bool number_integer(int64_t value) override {
    return in_tree() && JsonBuilder::number_integer(value);
  }
  bool number_float(double value, const std::string& text) override {
    return in_tree() && JsonBuilder::number_float(value, text);
  }

  Result<RawTokenizer> finish() {
    raw_.rest = take();
    if (!raw_.rest.is_object()) return corrupt("a tokenizer must be a JSON object");
    if (!has_vocab_) return corrupt("model.vocab is missing or not an object");
    if (!has_merges_) return corrupt("model.merges is missing or not an array");
    return std::move(raw_);
  }

 private:
  enum class Mode { kTree, kVocab, kMerges, kPair };

  bool at_model_key(std::string_view name) const {
    return path().size() == 2 && path()[0] == "model" && path()[1] == name;
  }

  bool in_tree() { return mode_ == Mode::kTree || wrong_value(); }

  bool wrong_value() {
    if (mode_ == Mode::kVocab) {
      return fail(fmt::format("model.vocab: the id of '{}' must be a whole number from 0",
                              printable_excerpt(token_)));
    }
    return merge_error("must be \"a b\" or [\"a\", \"b\"]");
  }

  bool merge_error(std::string_view rule) {
    return fail(fmt::format("model.merges: entry {} {}", raw_.merges.size(), rule));
  }

  bool add_merge(std::string left, std::string right) {
    if (left.empty() || right.empty()) return merge_error("has an empty part");
    raw_.merges.emplace_back(std::move(left), std::move(right));
    if (raw_.merges.size() <= kMaxMerges) return true;
    return fail(fmt::format("model.merges: more than {} entries", kMaxMerges));
  }

  Mode mode_ = Mode::kTree;
  bool has_vocab_ = false;
  bool has_merges_ = false;
  std::string token_;
  std::vector<std::string> pair_;
  RawTokenizer raw_;
};

}  // namespace

Result<RawTokenizer> read_tokenizer_json(std::string_view json) {
  const TextJsonLimits limits{kMaxTokenizerJsonBytes, 32, 2'000'000};
  TokenizerReader reader(limits);
  MOTLEY_RETURN_IF_ERROR(read_json(json, limits, reader));
  return reader.finish();
}

}  // namespace motley
